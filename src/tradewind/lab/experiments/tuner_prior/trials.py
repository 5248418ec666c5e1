"""What is run: fixed weights at every point of a grid, and tuners from priors that are 10x wrong."""

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence

from tradewind.lab.experiments.tuner_prior.grids import PROFILES, SCALES, grid
from tradewind.lab.experiments.tuner_prior.surface import AXIS
from tradewind.lab.harness.experiment import Options, Result, Trial
from tradewind.lab.simulated.nine import number, ran, text
from tradewind.lab.simulated.policies import maker
from tradewind.measure.statistics import percentile
from tradewind.model.decision import Decision, Refusal
from tradewind.model.request import Request
from tradewind.model.tuning import PHYSICS, Weights
from tradewind.sim.policy import Policy
from tradewind.sim.scenario import Scenario
from tradewind.sim.steered import PicksPolicy
from tradewind.sim.tuning import TuningHistory

NAME = "tuner-prior"
CALIBRATOR, PUBLISHED, REPAIRED = "cost;tuner=calibrator", "cost;tuner=es", "cost;tuner=es-repaired"
ARMS = (CALIBRATOR, PUBLISHED, REPAIRED)
AGAIN = "cost, drawn again"  # physics with other draws among near ties: what chance alone does
STARTS = (Weights(10.0, 1.0), Weights(0.1, 1.0), Weights(1.0, 10.0), Weights(1.0, 0.1))
SEEDS, FIRST_SEED = 20, 900
GRID_SEEDS, BLIND_SEEDS = 5, 3  # of them, for the grid of fixed weights and for the evolution strategies
TRACE_S, AFTER = 1_000.0, 2_000  # about 4,000 requests, of which those from this one on are counted
QUICK_S, QUICK_AFTER, QUICK_AXIS = 30.0, 60, (1.0, 10.0)


def fixed(weights: Weights) -> str:
    """The written form without a tuner."""
    return f"cost;rtt_weight={weights.rtt:g};queue_weight={weights.queue:g}"


def tuned(arm: str, start: Weights) -> str:
    """The written form of a tuner from this prior."""
    return f"{arm};start={start.rtt:g}/{start.queue:g};box=tested"


def plan(options: Options) -> Sequence[Trial]:
    """Seeds outermost, so that a run that was cut has whole seeds."""
    arms = options.policies or ((CALIBRATOR,) if options.quick else ARMS)
    trace_s, after = (QUICK_S, QUICK_AFTER) if options.quick else (TRACE_S, AFTER)
    profiles = ("scale 1",) if options.quick else tuple(PROFILES)
    return [
        Trial(
            experiment=NAME,
            args={"profile": profile, "policy": policy, "seed": seed, "trace_s": trace_s, "after": after},
        )
        for place, seed in enumerate(options.seed_range(seeds=SEEDS, first=FIRST_SEED))
        for profile in profiles
        for policy in _policies(profile, place, arms, quick=options.quick)
    ]


def _policies(profile: str, place: int, arms: Sequence[str], *, quick: bool) -> Iterator[str]:
    axis, loads = QUICK_AXIS if quick else AXIS, profile in SCALES
    if place < GRID_SEEDS:
        yield from (fixed(Weights(rtt, queue)) for rtt in axis for queue in axis)
    else:
        yield fixed(PHYSICS)
    if loads:
        yield AGAIN
    for arm in arms:
        if arm in (PUBLISHED, REPAIRED) and (place >= BLIND_SEEDS or not loads):
            continue
        starts = STARTS[:1] if quick else (*STARTS, PHYSICS) if loads and arm == CALIBRATOR else STARTS
        yield from (tuned(arm, start) for start in starts)


def run(trial: Trial) -> Result:
    """One run: its tail after the first requests, and the weights that it went by."""
    profile, after = PROFILES[text(trial, "profile")], int(number(trial, "after"))
    scenario = grid(text(trial, "profile"), trace_s=number(trial, "trace_s"))
    written = text(trial, "policy")
    policy = _redrawn if written == AGAIN else f"{written}{profile.suffix}"
    done = ran(scenario, policy, seed=int(number(trial, "seed")))
    late = [record for record in done.records[after:] if record.ok]
    return {
        "requests": len(done.records),
        "success": sum(record.ok for record in done.records) / max(1, len(done.records)),
        "p95_s": percentile([record.ttft_s for record in late if record.ttft_s is not None], 0.95),
        "e2e_p95_s": percentile([record.e2e_s for record in late if record.e2e_s is not None], 0.95),
        **_of_tuner(done.result.tuning, [record.intended_s for record in done.records]),
    }


class _Redrawn(PicksPolicy):
    """Draws among near ties as the policy inside would one draw later."""

    _begun = False

    def pick(self, request: Request, *, now_s: float, rng: random.Random) -> Decision | Refusal:
        """One draw is thrown away before the first request."""
        if not self._begun:
            self._begun = True
            rng.random()
        return super().pick(request, now_s=now_s, rng=rng)


def _redrawn(scenario: Scenario) -> Policy:
    made = maker("cost")(scenario)
    assert isinstance(made, PicksPolicy)
    return _Redrawn(made.steer, made.picker)


def _of_tuner(history: TuningHistory | None, arrivals_s: Sequence[float]) -> Result:
    if history is None:
        return {}
    course: list[tuple[int, float, float]] = []
    for at_s, order in history.orders:
        if not course or course[-1][1:] != tuple(order.weights):
            course.append((bisect_right(arrivals_s, at_s) if course else 0, *order.weights))
    return {"course": course, "events": dict(Counter(event.what.value for event in history.events))}
