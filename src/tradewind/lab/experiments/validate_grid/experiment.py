"""validate-grid: does the simulator say of a live grid what a client of that grid measures?"""

from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.experiments.validate_grid.course import POLICIES
from tradewind.lab.experiments.validate_grid.live import live_run
from tradewind.lab.experiments.validate_grid.model import FIGURES, assigned, measured, simulated
from tradewind.lab.experiments.validate_grid.ranking import ranking
from tradewind.lab.experiments.validate_grid.sent import LiveRun, recorded_runs
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial, Work
from tradewind.lab.harness.figure import Figure, Series
from tradewind.lab.harness.row import Row

NAME = "validate-grid"
BOUND = 0.10
FOR_S, QUICK_FOR_S = 75.0, 10.0  # of each live run
QUICK_POLICIES = ("round_robin", "cost")
SEEDS, QUICK_SEEDS = 20, 1  # of the simulation: near ties and orders of rotation are chance, there and live
METRICS = tuple(f"{name} {label}" for name, label, _ in FIGURES)
LIVE, ASSIGNED, SIMULATED = "live", "simulated, decisions as live", "simulated"
ERRORS = {ASSIGNED: "error, decisions as live", SIMULATED: "error"}


def plan(options: Options) -> Sequence[Trial]:
    """The recorded runs, each simulated; a policy that was not recorded has nothing to be compared with."""
    seeds = options.seed_range(seeds=SEEDS, first=1, quick=QUICK_SEEDS)
    known = [run.policy for run in recorded_runs()]
    wanted = options.policies or (QUICK_POLICIES if options.quick else known)
    policies = [policy for policy in wanted if policy in known]
    args = {"first_seed": seeds.start, "seeds": len(seeds)}
    return [Trial(experiment=NAME, args={"policy": policy, **args}) for policy in policies]


def run(trial: Trial) -> Result:
    """One recorded run beside its simulation."""
    found = next(run for run in recorded_runs() if run.policy == trial.args["policy"])
    return beside(found, first_seed=_whole(trial, "first_seed"), seeds=_whole(trial, "seeds"))


def plan_live(options: Options) -> Sequence[Trial]:
    """A live run of each policy; the trace's seed is the first one."""
    seeds = options.seed_range(seeds=SEEDS, first=1, quick=QUICK_SEEDS)
    for_s = QUICK_FOR_S if options.quick else FOR_S
    args = {"for_s": for_s, "first_seed": seeds.start, "seeds": len(seeds)}
    policies = POLICIES if options.policies is None else options.policies
    return [Trial(experiment=NAME, args={"policy": policy, **args}) for policy in policies]


def run_live(trial: Trial) -> Result:
    """One live run, kept whole, beside its simulation."""
    for_s = trial.args["for_s"]
    assert isinstance(for_s, float)
    found = live_run(str(trial.args["policy"]), seed=_whole(trial, "first_seed"), for_s=for_s)
    result = beside(found, first_seed=_whole(trial, "first_seed"), seeds=_whole(trial, "seeds"))
    return {**result, "run": msgspec.to_builtins(found)}


def beside(run: LiveRun, *, first_seed: int, seeds: int) -> dict[str, object]:
    """The figures of a live run, and of its simulation under each seed; and what the machine was like."""
    return {
        "live": measured(run),
        "assigned": assigned(run),
        "simulated": [simulated(run, seed=seed) for seed in range(first_seed, first_seed + seeds)],
        "requests": len(run.sent),
        "asked": run.asked,
        "for_s": run.for_s,
        "commit": run.commit,
        "machine": msgspec.to_builtins(run.machine),
    }


def _whole(trial: Trial, name: str) -> int:
    value = trial.args[name]
    assert isinstance(value, int)
    return value


# --- figures ---------------------------------------------------------------------------------------------------------


def rows(done: Done) -> Sequence[Row]:
    """Both in milliseconds; a simulated figure is the median over seeds, from the lowest to the highest."""
    found: list[Row] = []
    for trial, result in done:
        for metric, live in result["live"].items():
            scale, unit = (1e3, "ms") if metric in METRICS else (100.0, "%")
            row = Row(
                experiment=NAME, profile=LIVE, policy=str(trial.args["policy"]), metric=metric, value=scale * live,
                unit=unit, n=result["requests"], seed=_whole(trial, "first_seed"),
            )  # fmt: skip
            values = [scale * one.get(metric, 0.0) for one in result["simulated"]]
            same = msgspec.structs.replace(row, profile=ASSIGNED, value=scale * result["assigned"].get(metric, 0.0))
            own = msgspec.structs.replace(
                row, profile=SIMULATED, value=median(values), lo=min(values), hi=max(values), n=len(values)
            )
            found += [row, same, own]
            if metric in METRICS:
                found += [_error(row, ours) for ours in (same, own)]
        found += _machine_rows(str(trial.args["policy"]), result)
    return found


def _error(live: Row, ours: Row) -> Row:
    assert live.value
    assert ours.value is not None
    error = 100 * (ours.value / live.value - 1)
    return msgspec.structs.replace(live, profile=ERRORS[ours.profile], value=error, unit="%")


def _machine_rows(policy: str, result: Result) -> list[Row]:
    machine = result["machine"]
    shown = (
        ("processor time used by others before", _percent(machine["busy_before_ratio"]), "%"),
        ("processor time used during the load", _percent(machine["busy_ratio"]), "%"),
        ("load average before", machine["load_before"], ""),
        ("client late p95", machine["late_p95_ms"], "ms"),
        ("not served", float(result["asked"] - result["requests"]), "requests"),
    )
    return [
        Row(experiment=NAME, profile="machine", policy=policy, metric=metric, value=value, unit=unit)
        for metric, value, unit in shown
    ]


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * ratio


# --- verdicts --------------------------------------------------------------------------------------------------------


def claims(rows: Sequence[Row]) -> Sequence[Check]:
    """Figures within the bound, and the same order of policies wherever the live run tells two apart.

    With the decisions as they were live, the figure itself. With the simulator's own, which chance makes differ from
    seed to seed, how far the live figure lies outside of what the seeds give.
    """
    quiet = _note(rows)
    found: list[Check] = []
    for metric in METRICS:
        live, same = (_values(rows, profile, metric) for profile in (LIVE, ASSIGNED))
        errors = {policy: abs(same[policy] / live[policy] - 1) for policy in live}
        found.append(_worst(f"{metric}, decisions as live: largest error", errors, quiet))
    for metric in METRICS:
        live = _values(rows, LIVE, metric)
        ours = {row.policy: row for row in rows if row.profile == SIMULATED and row.metric == metric}
        errors = {policy: _outside(live[policy], ours[policy]) for policy in live}
        found.append(_worst(f"{metric}, own decisions: live outside of the seeds' range by", errors, quiet))
    for metric in METRICS:
        order = ranking(_values(rows, LIVE, metric), _values(rows, SIMULATED, metric), apart=BOUND)
        name = f"{metric}: pairs of policies that live tells apart and the simulator orders otherwise"
        if order.pairs:
            found.append(at_most(name, order.swapped, 0, note=f"of {order.pairs}: {order.text}"))
        else:
            found.append(reported(name, None, note=f"no two policies are {BOUND:.0%} apart"))
    return found


def _worst(name: str, errors: Mapping[str, float], note: str) -> Check:
    policy = max(errors, key=lambda policy: errors[policy], default="")
    return at_most(name, errors.get(policy), BOUND, note=f"{policy}; {note}")


def _outside(live: float, ours: Row) -> float:
    assert ours.lo is not None
    assert ours.hi is not None
    return max(0.0, ours.lo / live - 1, 1 - ours.hi / live)


def _values(rows: Sequence[Row], profile: str, metric: str) -> dict[str, float]:
    chosen = [row for row in rows if row.profile == profile and row.metric == metric]
    return {row.policy: row.value for row in chosen if row.value is not None}


def _note(rows: Sequence[Row]) -> str:
    """How much else the machine had to do."""
    busy = [row.value for row in rows if row.metric == "processor time used during the load" and row.value is not None]
    return f"processors {min(busy):.0f} to {max(busy):.0f} % busy" if busy else "load unknown"


def figures(rows: Sequence[Row]) -> Sequence[Figure]:
    """Live and simulated side by side, by policy."""
    found = []
    for metric in METRICS:
        series = []
        for profile in (LIVE, ASSIGNED, SIMULATED):
            chosen = [row for row in rows if row.profile == profile and row.metric == metric]
            ends = {"lo": [row.lo for row in chosen], "hi": [row.hi for row in chosen]} if profile == SIMULATED else {}
            series.append(
                Series(name=profile, x=[row.policy for row in chosen], y=[row.value for row in chosen], **ends)
            )
        name = metric.lower().replace(" ", "-")
        found.append(
            Figure(name=name, title=f"{metric}: live grid and simulator", kind="bars", x_label="", y_label="ms",
                   series=series, caption="Bars of the simulator end at its lowest and highest seed.")
        )  # fmt: skip
    return found


EXPERIMENT = Experiment(
    name=NAME,
    title="the simulator against a live emulated grid",
    question="Given the very requests that a live client sent, does the simulator give the TTFT and E2E that the "
    "client saw behind real Envoy within 10 %, and the same order of policies?",
    plan=plan,
    run=run,
    live=Work(plan=plan_live, run=run_live),
    rows=rows,
    figures=figures,
    claims=claims,
    notes="Without --live, recorded live runs that ship with the project are simulated. --live records fresh ones, "
    "four policies in about seven minutes: on a quiet machine of two cores or more, or the machine is measured.",
)
