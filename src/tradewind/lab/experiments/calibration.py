"""`calibration`: an unimpaired fleet at a third of its capacity, published table 1."""

from collections.abc import Mapping, Sequence

from tradewind.lab.checks import Check, at_least, at_most
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial
from tradewind.lab.harness.figure import Figure, Series, series_of
from tradewind.lab.harness.row import Published, Row, measured
from tradewind.lab.simulated.nine import (
    AS_PUBLISHED,
    LEAST_REQUEST,
    POLICIES,
    ROUND_ROBIN,
    SOURCE,
    between,
    e2e_ms,
    mean_row,
    nine,
    number,
    ran,
    success,
    text,
    ttft_ms,
)
from tradewind.workload.arrivals import CONSTANT, POISSON, Arrivals
from tradewind.workload.classes import baseline_mixed

NAME = "calibration"
RATE_RPS, WARM_UP_S, COUNTED_S = 10.0, 10.0, 60.0
QUICK_S = 10.0
SEEDS, FIRST_SEED = 10, 100
ARRIVALS: Mapping[str, Arrivals] = {"constant": CONSTANT, "poisson": POISSON}
METRICS = {
    "success": "%",
    "TTFT p50": "ms",
    "TTFT p95": "ms",
    "TTFT p99": "ms",
    "E2E p95": "ms",
}


def profile(arrivals: str) -> str:
    """As rows name it."""
    return f"clean, 10 RPS {arrivals}"


def plan(options: Options) -> Sequence[Trial]:
    """Both processes of arrivals, every policy, every seed."""
    quick = options.quick
    return [
        Trial(experiment=NAME, args={"arrivals": arrivals, "policy": policy, "seed": seed, "quick": quick})
        for seed in options.seed_range(seeds=SEEDS, first=FIRST_SEED)
        for arrivals in ARRIVALS
        for policy in options.policies or POLICIES
    ]


def run(trial: Trial) -> Result:
    """Figures of one run, warm-up aside."""
    counted_s = QUICK_S if trial.args["quick"] else COUNTED_S
    for_s = WARM_UP_S + counted_s
    arrivals = ARRIVALS[text(trial, "arrivals")]
    scenario = nine(
        NAME, lambda rng: baseline_mixed(rng, rate_per_s=RATE_RPS, for_s=for_s, arrivals=arrivals), for_s=for_s
    )
    records = between(ran(scenario, text(trial, "policy"), seed=int(number(trial, "seed"))).records, WARM_UP_S, for_s)
    return {
        "success": success(records),
        "TTFT p50": ttft_ms(records, 0.50),
        "TTFT p95": ttft_ms(records, 0.95),
        "TTFT p99": ttft_ms(records, 0.99),
        "E2E p95": e2e_ms(records, 0.95),
    }


def rows(done: Done) -> Sequence[Row]:
    """Means over seeds."""
    groups: dict[tuple[str, str], dict[int, Result]] = {}
    for trial, result in done:
        key = (text(trial, "arrivals"), text(trial, "policy"))
        groups.setdefault(key, {})[int(number(trial, "seed"))] = result
    return [
        mean_row(
            NAME,
            profile=profile(arrivals),
            policy=policy,
            metric=metric,
            values={seed: result[metric] for seed, result in by_seed.items()},
            unit=unit,
        )
        for (arrivals, policy), by_seed in groups.items()
        for metric, unit in METRICS.items()
    ]


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """The engine model is that of the published fleet: its medians come out, and nothing is lost."""
    checks: list[Check] = []
    for policy, metric, published in ((ROUND_ROBIN, "TTFT p50", 352.5), (ROUND_ROBIN, "E2E p95", 5_810.0)):
        row = measured(list(found), profile=profile("poisson"), policy=policy, metric=metric)
        if row is not None and row.value is not None:
            off = 1e2 * abs(row.value / published - 1.0)
            checks.append(at_most(f"{NAME}: {metric} of {policy}, off the published one", off, 20.0, unit="%"))
    served = [row.value for row in found if row.metric == "success"]
    checks.append(at_least(f"{NAME}: least success of any policy", min(served, default=None), 99.0, unit="%"))  # type: ignore[type-var]
    return checks


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """TTFT of every policy."""
    return [
        Figure(
            name="ttft",
            title="TTFT at 10 RPS on an unimpaired fleet (Poisson arrivals)",
            kind="bars",
            x_label="policy",
            y_label="ms",
            series=[_series(found, metric) for metric in ("TTFT p50", "TTFT p95", "TTFT p99")],
            caption="Means over seeds, 95 % by bootstrap.",
        )
    ]


def _series(found: Sequence[Row], metric: str) -> Series:
    chosen = [row for row in found if row.metric == metric and row.profile == profile("poisson")]
    return series_of(metric, [row.policy for row in chosen], chosen)


_NOTE = "tables 1 and 2 cannot come from one stationary fleet: at this load a clean one is at 28 % of its prefill"
_TABLE_1 = {
    AS_PUBLISHED: (100.0, 306.5, 609.6, 742.9, 5_340.0),
    LEAST_REQUEST: (100.0, 348.7, 628.1, 814.7, 5_809.0),
    ROUND_ROBIN: (99.75, 352.5, 649.5, 853.1, 5_810.0),
}
PUBLISHED = tuple(
    Published(
        profile=profile(arrivals),
        policy=policy,
        metric=metric,
        value=value,
        unit=unit,
        source=f"{SOURCE}, table 1",
        note=_NOTE if metric in ("TTFT p95", "TTFT p99") else "",
    )
    for arrivals in ARRIVALS
    for policy, values in _TABLE_1.items()
    for (metric, unit), value in zip(METRICS.items(), values, strict=True)
)

EXPERIMENT = Experiment(
    name=NAME,
    title="Calibration: an unimpaired fleet at a third of its capacity",
    question=(
        "Does the engine model show what the published fleet showed before anything was tuned or broken, and does the "
        "choice of policy matter there?"
    ),
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    published=PUBLISHED,
    notes=(
        "baseline_mixed at 10 RPS, 60 s after 10 s of warm-up. The published arrivals are of constant rate; on an "
        "unimpaired fleet they make round robin more regular than any real client is, so Poisson stands beside them."
    ),
)
