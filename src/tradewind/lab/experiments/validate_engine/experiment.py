"""validate-engine: is an emulated engine as fast, request by request, as the real one whose coefficients it has?"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.experiments.validate_engine.cases import CASES, Case, case_named
from tradewind.lab.experiments.validate_engine.compare import ALL, HELD_OUT, PARTS, UNQUEUED, nine, part_of
from tradewind.lab.experiments.validate_engine.fit import fitted
from tradewind.lab.experiments.validate_engine.model import simulated
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial
from tradewind.lab.harness.figure import Figure, Series
from tradewind.lab.harness.row import Published, Row
from tradewind.workload.measured import measured_runs

NAME = "validate-engine"
BOUND = 0.05
AHEAD, AT_ONCE = "one step ahead", "at once"  # when the scheduler makes the next batch
SOURCE = "LLMServingSim, bench/examples/RTXPRO6000: vLLM 0.19.0, 300 ShareGPT requests at 10/s"


def plan(options: Options) -> Sequence[Trial]:
    """A run of each case; the long form also plans at once, and fits a0 and b again."""
    cases = CASES[:1] if options.quick else CASES
    trials = [_trial("compare", case, ahead=True) for case in cases]
    if not options.quick:
        trials += [_trial("compare", case, ahead=False) for case in cases]
        trials += [_trial("fit", case, ahead=True) for case in cases]
    return trials


def _trial(task: str, case: Case, *, ahead: bool) -> Trial:
    return Trial(experiment=NAME, args={"task": task, "run": case.run, "ahead": ahead})


def run(trial: Trial) -> Result:
    """Figures in seconds by part, or the two fitted coefficients in milliseconds."""
    case = case_named(str(trial.args["run"]))
    measured = measured_runs()[case.run]
    if trial.args["task"] == "fit":
        profile = fitted(case, measured)
        return {"a0": 1e3 * profile.a0_s, "b": 1e3 * profile.b_s}
    found = simulated(case, measured, profile=case.profile, ahead=bool(trial.args["ahead"]))
    return {part: nine([found[number] for number in part_of(measured, part)]) for part in PARTS}


def rows(done: Done) -> Sequence[Row]:
    """Ours in milliseconds, and beside each how far it is from the measurement."""
    found: list[Row] = []
    runs = measured_runs()
    for trial, result in done:
        case = case_named(str(trial.args["run"]))
        if trial.args["task"] == "fit":
            found += _fit_rows(case, result)
            continue
        measured, policy = runs[case.run], AHEAD if trial.args["ahead"] else AT_ONCE
        for part in PARTS:
            chosen = part_of(measured, part)
            real = nine([measured[number] for number in chosen])
            for metric, value in result[part].items():
                row = Row(
                    experiment=NAME, profile=f"{case.run}, {part}", policy=policy, metric=metric, value=1e3 * value,
                    unit="ms", n=len(chosen),
                )  # fmt: skip
                error = 100 * (value / real[metric] - 1)
                found += [row, replace(row, metric=f"{metric}, error", value=error, unit="%")]
    return found


def _fit_rows(case: Case, result: Result) -> Iterable[Row]:
    used = {"a0": 1e3 * case.profile.a0_s, "b": 1e3 * case.profile.b_s}
    for name, value in used.items():
        row = Row(
            experiment=NAME, profile=f"{case.run}, fit", policy=AHEAD, metric=f"{name} in use", value=value, unit="ms"
        )
        yield row
        yield replace(row, metric=f"{name} fitted again", value=result[name])


def claims(rows: Sequence[Row]) -> Sequence[Check]:
    """Within the bound over the whole run, and over the half that no coefficient has seen."""
    found = []
    for case in CASES:
        for part in (ALL, HELD_OUT):
            errors = {
                row.metric: abs(row.value) / 100
                for row in rows
                if row.profile == f"{case.run}, {part}" and row.policy == AHEAD and row.metric.endswith(", error")
                if row.value is not None
            }
            if not errors:
                continue
            worst = max(errors, key=lambda metric: errors[metric])
            name = f"{case.title}: largest error of nine figures, {part}"
            where = worst.removesuffix(", error")
            if part in case.bounded:
                found.append(at_most(name, errors[worst], BOUND, note=where))
            else:
                met = sum(error <= BOUND for error in errors.values())
                found.append(reported(name, errors[worst], note=f"{where}; {met} of 9 within {BOUND:g}; {case.note}"))
    return found


def figures(rows: Sequence[Row]) -> Sequence[Figure]:
    """Errors of the nine figures, by run: of the half that was not fitted, and of those who met no queue."""
    found = []
    for part, name, ways in ((HELD_OUT, "held-out", (AHEAD,)), (UNQUEUED, "unqueued", (AHEAD, AT_ONCE))):
        series = [
            _series(rows, f"{case.run}, {part}", way, f"{case.run}, batch made {way}") for case in CASES for way in ways
        ]
        series = [one for one in series if one.x]
        if series:
            title = f"Engine model against real vLLM on RTX PRO 6000: {part}"
            found.append(
                Figure(name=name, title=title, kind="bars", x_label="", y_label="error, %", series=series,
                       caption="0 is the measurement; 5 % either way is the bound.")
            )  # fmt: skip
    return found


def _series(rows: Sequence[Row], profile: str, policy: str, name: str) -> Series:
    of = [row for row in rows if row.profile == profile and row.policy == policy and row.metric.endswith(", error")]
    return Series(name=name, x=[row.metric.removesuffix(", error") for row in of], y=[row.value for row in of])


def published() -> tuple[Published, ...]:
    """The measurements, beside both ways of making batches."""
    runs = measured_runs()
    return tuple(
        Published(
            profile=f"{case.run}, {part}", policy=policy, metric=metric, value=1e3 * value, unit="ms", source=SOURCE,
            note=case.note,
        )
        for case in CASES
        for part in PARTS
        for metric, value in nine([runs[case.run][number] for number in part_of(runs[case.run], part)]).items()
        for policy in (AHEAD, AT_ONCE)
    )  # fmt: skip


EXPERIMENT = Experiment(
    name=NAME,
    title="the engine model against real vLLM runs",
    question="Given the arrivals and lengths of three measured runs, does the engine model give their TTFT, TPOT and "
    "E2E within 5 %, also on the half of each run that no coefficient was fitted on?",
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    published=published(),
    notes="a0 and b of the first two runs are fitted on their first half, so that half is in-sample and the second is "
    "not; of the third, four coefficients are fitted on all of it. w, d and e are of another model's layer profile. "
    "Two of the three runs queue for tens of seconds: their TTFT is throughput. 'no queue' shows the requests that the "
    "real scheduler took at once.",
)
