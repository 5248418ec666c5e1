"""Every constant of the calibrator, named: the tuner study's, section 5, unless it says that it is not."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """The regression of the time to the first token on what the picker believed."""

    window: int = 1_500  # outcomes
    least: int = 300  # outcomes, before anything is said
    base_s: float = 0.150  # relative weight of a sample: 1 / (base + rtt + .5 queue + .7 prefill)
    queue_part: float = 0.5
    prefill_part: float = 0.7
    passes: int = 5
    huber: float = 1.5  # median absolute deviations; beyond, a residual counts by its size and not by its square
    covariance: float = 1.5  # neighbours in time are alike: fewer samples than there seem to be
    least_t: float = 4.0  # of the prefill slope: without it there is no unit to compare with


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalSettings:
    """When a fit is worth a comparison."""

    each: int = 100  # outcomes between fits
    cool_down: int = 200  # outcomes after a verdict
    least_change: float = 0.25
    least_t: float = 2.0
    told: float = 2.0  # standard errors: a ratio not so far from 0 is not identified
    floor: float = 0.3  # of a ratio that is not identified: never 0
    dead_band: float = 2.5  # a ratio within this factor of 1 counts as 1
    step: float = 10.5  # factor, at most, per proposal
    patience: int = 16  # cool-downs, at most, after refusals in a row (each doubles it; own choice, not the study's)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings:
    """The interleaved comparison."""

    share: float = 0.5  # of the child
    window: int = 300  # requests with a first token
    grace: int = 60  # that may end after them: slow ones that were decided before (own choice)
    starved: int = 3_000  # requests of any kind, after which a window that is not full is given up (own choice)
    z: float = 1.64
    least_s: float = 1e-5  # shorter and longer times are not believed: one of them would be most of a mean
    most_s: float = 3_600.0
    winsor: float = 0.97  # quantile at which first tokens are cut for their mean
    guard_ratio: float = 1.03  # mean E2E and mean ITL, child over parent
    top_share: float = 0.70  # of the child's requests, on one cell
    top_more: float = 0.02  # ... or as much over the parent's
    least_failures: int = 3  # of the child (own choice)
    physics_ratio: float = 1.10  # p95 of E2E over what physics had in the same regime
    look_each: int = 20  # samples between looks at the guards
    look_from: int = 100
    look_z: float = 2.6  # at those: at 1.64 guards ended 29 % of comparisons of equals, so 12 % (own choice)


@dataclass(frozen=True, slots=True, kw_only=True)
class CusumSettings:
    """Section 7 of the study: no false alarm in 1,000 requests, a halved cell seen after 60."""

    k: float = 1.0
    h: float = 6.0
    clip: float = 4.0
    reference: int = 1_500  # requests
    block: int = 20
    cell_block: int = 10
    cells: int = 512  # watched at most; the one that is silent longest goes


@dataclass(frozen=True, slots=True, kw_only=True)
class RegimeSettings:
    """Load in steps of x2 (section 7: a CUSUM on the arrival rate alarms all the time on real arrivals)."""

    window: int = 300  # requests, for one reading of the rate
    each: int = 100  # requests between readings
    beyond: float = 0.8  # of a step from the middle of the regime: half a step and the hysteresis
    readings: int = 3  # that must agree
    physics_window: int = 1_000  # latest E2E times under physics
    physics_least: int = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratorSettings:
    """All of it."""

    fit: FitSettings = field(default_factory=FitSettings)
    proposal: ProposalSettings = field(default_factory=ProposalSettings)
    compare: CompareSettings = field(default_factory=CompareSettings)
    cusum: CusumSettings = field(default_factory=CusumSettings)
    regime: RegimeSettings = field(default_factory=RegimeSettings)
    ingest_s: float = 0.015  # what an engine takes to read a request: part of the expected time
