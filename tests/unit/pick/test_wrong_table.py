"""A table of hardware classes that is 10x wrong: classes are tried, believed, and corrected without overshooting."""

from math import log, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pick.fakes import cell_view, outcome, picked, picker, request
from tradewind.core.pick.calibration import Calibration
from tradewind.core.pick.picker import Picker
from tradewind.core.pick.rates import RateTable
from tradewind.core.pick.settings import CostSettings, LearningSettings, PickSettings
from tradewind.core.pick.slowness import Slowness
from tradewind.core.steplaw import scaled, step_law
from tradewind.lab.simulated.constants import UnknownPolicyError
from tradewind.lab.simulated.policies import maker

TOKENS = 2_000
H100_S = (9.0 + sqrt(15.0**2 + (0.3 * TOKENS) ** 2) + 3e-6 * TOKENS**2 / 2) / 1e3
RTX_S = (3.5 + sqrt(24.0**2 + (0.5 * TOKENS) ** 2) + 8.6e-6 * TOKENS**2 / 2) / 1e3


def served_by(made: Picker, *, turns: int, h100_s: float) -> list[str]:
    """One request after the other, each answered as its cell would: which cells they went to."""
    cells = []
    for turn in range(turns):
        now_s = 1.0 + 8.0 * turn
        decision = picked(made, request(TOKENS), now_s=now_s)
        ttft_s = 0.025 + (h100_s if decision.cell_id == "h" else RTX_S)
        made.first_token(decision.decision_id, now_s + ttft_s)
        ended = outcome(decision, ttft_s=ttft_s, duration_s=ttft_s + 0.1, completion_tokens=8)
        made.finished(decision.decision_id, ended, now_s + ttft_s + 0.1)
        cells.append(decision.cell_id)
    return cells


def two_classes(*, thought: float, trials: int = CostSettings().trials) -> Picker:
    """An H100 whose times are thought this many times the true ones, and an RTX PRO 6000."""
    settings = PickSettings(cost=CostSettings(trials=trials), rates=(("h100", thought),))
    return picker(cell_view("h", hardware="h100"), cell_view("r"), settings=settings)


def test_a_class_that_is_thought_too_slow_is_tried_and_found_fast() -> None:
    assert "h" not in served_by(two_classes(thought=10.0, trials=0), turns=40, h100_s=H100_S)
    cells = served_by(two_classes(thought=10.0), turns=40, h100_s=H100_S)
    assert cells[10:].count("h") >= 28, "a fast one gets nearly everything"


def test_a_class_that_is_slow_in_truth_is_tried_a_few_times_and_left() -> None:
    cells = served_by(two_classes(thought=10.0), turns=60, h100_s=10.0 * H100_S)
    assert cells.count("h") <= CostSettings().trials
    assert "h" not in cells[10:]


def test_trials_are_one_at_a_time_on_a_cell() -> None:
    made = two_classes(thought=10.0)
    assert [picked(made, request(TOKENS), now_s=1.0).cell_id for _ in range(3)].count("h") == 1


def test_a_single_class_has_nothing_to_be_compared_with() -> None:
    table = RateTable(trials=4)
    first = table.of("h100")
    assert first.trials == 0
    second, third = table.of("h200"), table.of("l40s")
    assert (first.trials, second.trials, third.trials) == (4, 4, 4)
    first.trials = 1
    table.of("a100")
    assert first.trials == 1, "tried once"


def learned(ratios: list[float]) -> float:
    """What 8 of each are taken for, per class of one cell."""
    calibration, rates = Calibration(LearningSettings()), RateTable().of("h100")
    cell = calibration.add_cell("a", rates, Slowness(LearningSettings()))
    for ratio in ratios:
        for _ in range(8):
            calibration.on_prefill(rates, cell, observed_s=0.2 * ratio, predicted_s=0.2)
    return rates.prefill_factor


def test_samples_under_a_table_that_was_far_off_are_soon_forgotten() -> None:
    """While engines are thought ten times too fast they are flooded, and nobody sees the queues."""
    assert learned([40.0]) > 20.0
    assert learned([40.0, 10.0, 10.0, 10.0, 10.0]) == pytest.approx(10.0, rel=0.15)


def test_decodes_are_thought_as_far_off_as_prefills_until_they_are_seen() -> None:
    calibration, rates = Calibration(LearningSettings()), RateTable().of("h100")
    cell = calibration.add_cell("a", rates, Slowness(LearningSettings()))
    for _ in range(16):
        calibration.on_prefill(rates, cell, observed_s=0.8, predicted_s=0.2)
    assert rates.decode_factor == pytest.approx(4.0, rel=0.3)
    for _ in range(64):
        calibration.on_decode(rates, cell, observed_s=0.03, predicted_s=0.03)
    assert rates.decode_factor == 1.0
    assert rates.prefill_factor == pytest.approx(4.0, rel=0.2)


def test_an_early_first_token_of_an_idle_cell_is_believed_and_a_late_one_is_not() -> None:
    def after(observed_s: float, *, calm: bool) -> float:
        slowness = Slowness(LearningSettings())
        slowness.learn(observed_s=observed_s, predicted_s=1.0, now_s=1.0, calm=calm)
        return log(slowness.factor)

    assert after(0.1, calm=True) == pytest.approx(log(0.2 / 1.1) + 0.15)
    assert after(0.1, calm=False) == pytest.approx(0.2 * log(0.2 / 1.1) + 0.15)
    assert after(6.0, calm=True) == after(6.0, calm=False), "an engine that has just started is slow"


@given(st.floats(0.05, 20.0), st.floats(-3.0, 3.0))
def test_what_a_class_explains_is_not_the_cells_own(observed_s: float, moved: float) -> None:
    slowness = Slowness(LearningSettings(dead_zone=0.0, alpha=1.0))
    slowness.learn(observed_s=observed_s, predicted_s=1.0, now_s=1.0)
    before = log(slowness.factor)
    slowness.explain(moved)
    after = log(slowness.factor)
    assert abs(after) <= abs(before) + 1e-9
    assert after * before >= -1e-9, "never beyond 0"
    expected = (
        before - moved if before * moved > 0 and abs(moved) < abs(before) else 0.0 if before * moved > 0 else before
    )
    assert after == pytest.approx(expected, abs=1e-9)


def test_factors_scale_the_law_of_a_class_or_of_all() -> None:
    law = step_law("h100")
    assert scaled(law, 1.0) == law
    assert scaled(law, 10.0).b == pytest.approx(10.0 * law.b)
    assert scaled(law, 10.0).ingest == law.ingest
    table = RateTable((("", 2.0), ("h200", 5.0)))
    plain = RateTable()
    assert table.of("h100").b_s == pytest.approx(2.0 * plain.of("h100").b_s)
    assert table.of("h200").a0_s == pytest.approx(10.0 * plain.of("h200").a0_s)


@pytest.mark.parametrize("written", ["cost;rates=0", "cost;rates=h100:-1", "cost;rates=h100", "cost;rates=inf"])
def test_a_factor_must_be_a_number_above_0(written: str) -> None:
    with pytest.raises(UnknownPolicyError, match=r"rates="):
        maker(written)
