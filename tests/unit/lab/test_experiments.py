"""The frame of experiments: results are kept, one broken trial spares the others, every figure reaches the reader."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tradewind.lab.checks import Check, at_least
from tradewind.lab.experiments.registry import NAMES, UnknownExperimentError, experiment_named
from tradewind.lab.harness.document import document, write_document
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial, Work
from tradewind.lab.harness.figure import Figure, Series, series_of
from tradewind.lab.harness.page import page
from tradewind.lab.harness.row import Published, Row
from tradewind.lab.harness.runner import NoSuchFormError, Report, Watch, run_alone, run_experiment

CALLS: list[int] = []
BROKEN: set[int] = set()
ALL = Options()


def _plan(options: Options) -> Sequence[Trial]:
    return [Trial(experiment="doubling", args={"seed": seed}) for seed in options.seed_range(seeds=3, first=7)]


def _run(trial: Trial) -> Result:
    seed = trial.args["seed"]
    assert isinstance(seed, int)
    CALLS.append(seed)
    if seed in BROKEN:
        raise ValueError(f"seed {seed} is broken")
    return {"double": 2.0 * seed}


def _rows(done: Done) -> Sequence[Row]:
    values = [result["double"] for _, result in done]
    return [
        Row(
            experiment="doubling",
            profile="clean",
            policy="p",
            metric="sum",
            value=sum(values),
            unit="ms",
            n=len(values),
        )
    ]


def _figures(rows: Sequence[Row]) -> Sequence[Figure]:
    series = Series(name="<ours>", x=["a"], y=[rows[0].value], lo=[1.0], hi=[None])
    return [
        Figure(name="sum", title="Sum", kind="bars", x_label="x", y_label="ms", series=[series], caption="A caption.")
    ]


def _claims(rows: Sequence[Row]) -> Sequence[Check]:
    return [at_least("the sum", rows[0].value, 40.0, unit="ms")]


DOUBLING = Experiment(
    name="doubling",
    title="Doubling <seeds>",
    question="What is twice a seed?",
    plan=_plan,
    run=_run,
    rows=_rows,
    figures=_figures,
    claims=_claims,
    published=(
        Published(
            profile="clean", policy="p", metric="sum", value=50.0, unit="ms", source="Nobody 2026", note="no such seed"
        ),
    ),
)


@pytest.fixture(autouse=True)
def fresh() -> None:
    CALLS.clear()
    BROKEN.clear()


def _ran(folder: Path, options: Options = ALL, experiment: Experiment = DOUBLING) -> Report:
    return run_experiment(experiment, options, live=False, folder=folder, jobs=1, watch=Watch())


def test_results_are_kept_and_only_what_is_missing_runs(tmp_path: Path) -> None:
    assert _ran(tmp_path, Options(seeds=2)).rows[0].value == 30.0
    more = _ran(tmp_path)
    assert (more.rows[0].value, more.rows[0].n, more.reused, CALLS) == (48.0, 3, 2, [7, 8, 9])
    assert more.rows[0].commit
    assert [claim.holds for claim in more.claims] == [True]
    assert [claim.holds for claim in _ran(tmp_path, Options(seeds=3, quick=True)).claims] == [None]


def test_a_broken_trial_is_told_with_its_replay_and_spares_the_others(tmp_path: Path) -> None:
    BROKEN.add(8)
    report = _ran(tmp_path, Options(seeds=3))
    assert report.rows[0].value == 32.0
    (failure,) = report.failures
    assert "seed 8 is broken" in failure.error
    key = failure.replay.rpartition(" ")[2]
    assert failure.replay == f"tradewind lab run doubling --seeds 3 --trial {key}"
    BROKEN.clear()
    assert run_alone(DOUBLING, Options(seeds=3), key=key, live=False) == {"double": 16.0}
    assert _ran(tmp_path, Options(seeds=3)).rows[0].value == 48.0, "what failed was not kept as a result"


def test_a_result_that_is_no_json_is_run_again(tmp_path: Path) -> None:
    _ran(tmp_path)
    for path in tmp_path.rglob("*.json"):
        path.write_text("{")
    assert _ran(tmp_path).reused == 0


def test_a_changed_file_of_policies_is_another_trial(tmp_path: Path) -> None:
    policy = tmp_path / "mine.py"
    policy.write_text("one")
    plan = lambda _options: [Trial(experiment="doubling", args={"seed": 1, "policy": f"{policy}:Mine"})]  # noqa: E731
    own = replace(DOUBLING, plan=plan)
    assert [_ran(tmp_path, experiment=own).reused for _ in range(2)] == [0, 1]
    policy.write_text("two")
    assert _ran(tmp_path, experiment=own).reused == 0


def test_a_form_that_there_is_not_is_an_error_that_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(NoSuchFormError, match="leave --live out"):
        run_experiment(DOUBLING, Options(), live=True, folder=tmp_path, jobs=1, watch=Watch())
    only_live = replace(DOUBLING, plan=None, run=None, live=Work(plan=_plan, run=_run))
    with pytest.raises(NoSuchFormError, match="add --live"):
        _ran(tmp_path, experiment=only_live)
    assert run_experiment(only_live, Options(), live=True, folder=tmp_path, jobs=2, watch=Watch()).rows[0].value == 48.0


def test_the_page_and_the_document_show_all_of_it(tmp_path: Path) -> None:
    report = _ran(tmp_path)
    text = page([report], facts={"commit": "abc"})
    for wanted in (
        "sum, ms",
        "published 50*",
        "* no such seed",
        "A caption.",
        "Nobody 2026",
        "Doubling &lt;seeds&gt;",
        "&gt;= 40",
    ):
        assert wanted in text, wanted
    assert "src=" not in text.partition("</script>")[2], "the page needs no other file"
    write_document(tmp_path / "rows.json", document([report], facts={"commit": "abc"}))
    (one,) = json.loads((tmp_path / "rows.json").read_text())["experiments"]
    assert one["rows"][0] | {"commit": ""} == {
        "experiment": "doubling",
        "profile": "clean",
        "policy": "p",
        "metric": "sum",
        "value": 48.0,
        "unit": "ms",
        "lo": None,
        "hi": None,
        "n": 3,
        "seed": None,
        "commit": "",
    }
    assert one["claims"][0]["holds"] is True


def test_every_registered_experiment_says_what_it_is() -> None:
    for name in NAMES:
        experiment = experiment_named(name)
        assert experiment.title, name
        assert experiment.question.endswith(("?", ".")), name
        assert experiment.work(live=False) or experiment.work(live=True), name
        assert all(item.source for item in experiment.published), name
    with pytest.raises(UnknownExperimentError, match="known: all"):
        experiment_named("nothing")


def test_a_series_of_rows_has_their_intervals_and_a_gap_for_a_row_that_is_not_there() -> None:
    row = Row(experiment="doubling", profile="clean", policy="p", metric="sum", value=48.0, lo=40.0, hi=50.0)
    made = series_of("p", ["a", "b"], [row, None])
    assert (made.x, made.y, made.lo, made.hi) == (["a", "b"], [48.0, None], [40.0, None], [50.0, None])
