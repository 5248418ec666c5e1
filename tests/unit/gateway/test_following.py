"""Which tuner's order a gateway follows, for how long, and whom it tells what became of it."""

from collections import deque
from pathlib import Path

import msgspec.structs
import pytest

from tests.unit.gateway.test_worker import Rig, cell
from tests.unit.pick.fakes import cell_view, outcome, picked, picker, request
from tradewind.config.schema import ControlConfig
from tradewind.core.pick.picker import Picker
from tradewind.gateway.merge import ViewMerger
from tradewind.gateway.pick.following import MAX_KEPT, MAX_PER_REPORT, Following, described
from tradewind.model.tuning import Sample, TuningOrder, Weights
from tradewind.model.view import ViewDelta, ViewVersion

ORDER = TuningOrder(driver="a.1", generation=1, weights=Weights(0.5, 1.5))
OTHER = TuningOrder(driver="b.1", generation=9, weights=Weights(1.0, 0.5))


def says(control: str, order: TuningOrder | None, *, incarnation: str = "c1") -> ViewDelta:
    version = ViewVersion(control_id=control, incarnation=incarnation, counter=1)
    return ViewDelta(version=version, full=True, order=order)


def test_the_first_control_of_the_list_that_is_connected_is_followed() -> None:
    merger = ViewMerger("gw")
    assert merger.order(["b", "a"]) is None
    merger.apply("a", says("a", ORDER), now_s=0)
    assert merger.order(["b", "a"]) == ORDER
    merger.apply("b", says("b", OTHER), now_s=1)
    assert merger.order(["b", "a"]) == OTHER
    assert merger.order(["a", "b"]) == ORDER, "the list decides, not who came first"
    merger.disconnected("b")
    assert merger.order(["b", "a"]) == ORDER


def test_the_last_order_holds_while_no_control_is_there() -> None:
    merger = ViewMerger("gw")
    merger.apply("a", says("a", ORDER), now_s=0)
    assert merger.order(["a"]) == ORDER
    merger.disconnected("a")
    assert merger.order(["a"]) == ORDER
    merger.apply("a", says("a", None, incarnation="c2"), now_s=5)
    assert merger.order(["a"]) is None, "a control that is there and tunes nothing"


def test_a_control_without_a_tuner_does_not_hide_one_that_has() -> None:
    merger = ViewMerger("gw")
    merger.apply("a", says("a", None), now_s=0)
    merger.apply("b", says("b", OTHER), now_s=0)
    assert merger.order(["a", "b"]) == OTHER


@pytest.mark.parametrize("weights", [Weights(float("nan"), 1.0), Weights(1.0, -1.0)])
def test_an_order_that_no_picker_may_follow_is_none(weights: Weights) -> None:
    merger = ViewMerger("gw")
    merger.apply("a", says("a", ORDER._replace(weights=weights)), now_s=0)
    assert merger.order(["a"]) is None


class Fed(Picker):
    """A picker whose samples a test gives."""

    def __init__(self) -> None:
        self.waiting: deque[Sample] = deque()

    def take_samples(self) -> tuple[Sample, ...]:
        taken = tuple(self.waiting)
        self.waiting.clear()
        return taken


def samples(count: int) -> tuple[Sample, ...]:
    """Of one picker: sample i has i prompt tokens."""
    made = picker(cell_view("x"), rtts_s={"x": 0.001})
    made.set_order(ORDER)
    decision = picked(made, request(50))
    made.finished(decision.decision_id, outcome(decision, ttft_s=0.4), 3.0)
    (one,) = made.take_samples()
    return tuple(one._replace(prompt_tokens=number) for number in range(count))


def numbers(told: tuple[Sample, ...]) -> list[int]:
    return [sample.prompt_tokens for sample in told]


def test_each_control_is_told_each_sample_once() -> None:
    following, fed = Following(), Fed()
    assert following.samples("a", fed, 10.0) == ()
    fed.waiting.extend(samples(3))
    assert numbers(following.samples("b", fed, 10.0)) == [0, 1, 2]
    told = following.samples("a", fed, 10.0)
    assert numbers(told) == [0, 1, 2]
    assert [sample.finished_s for sample in told] == [-7.0] * 3, "from the moment of the report"
    assert following.samples("a", fed, 11.0) == following.samples("b", fed, 11.0) == ()
    assert following.sent == {"a": 3, "b": 3}
    assert numbers(following.samples("c", fed, 11.0)) == [], "who comes later is told what comes later"


def test_a_report_is_bounded_and_a_control_that_was_away_misses_the_oldest() -> None:
    following, fed = Following(), Fed()
    following.samples("a", fed, 0.0)
    fed.waiting.extend(samples(MAX_KEPT + 100))
    told = [numbers(following.samples("a", fed, 0.0)) for _ in range(6)]
    assert [len(part) for part in told] == [MAX_PER_REPORT] * 4 + [MAX_KEPT - 4 * MAX_PER_REPORT, 0]
    assert told[0][0] == 100
    assert told[4][-1] == MAX_KEPT + 99


def followed(rig: Rig) -> TuningOrder | None:
    """By the picker itself, as the sample of a request tells."""
    desk = rig.worker.desk
    assert desk is not None
    decision = picked(desk.picker, request(50), now_s=rig.now_s)
    desk.picker.finished(decision.decision_id, outcome(decision, ttft_s=0.4), rig.now_s + 1.0)
    told = rig.worker.report("a").samples
    assert [(s.driver, s.generation) for s in told] == ([(ORDER.driver, 1)] if rig.worker.following.order else [])
    return rig.worker.following.order


def shows(rig: Rig, order: TuningOrder | None, *, counter: int = 1) -> None:
    version = ViewVersion(control_id="a", incarnation="c1", counter=counter)
    rig.worker.on_delta("a", ViewDelta(version=version, full=True, cells=(cell("x", 1000),), order=order))


def test_picks_follow_the_view_and_the_disk_and_outlast_control(tmp_path: Path) -> None:
    rig = picking(tmp_path)
    shows(rig, None)
    rig.tick()
    assert followed(rig) is None
    shows(rig, ORDER, counter=2)
    assert followed(rig) == ORDER
    assert rig.effects.saves == 1
    shows(rig, ORDER, counter=3)
    assert rig.effects.saves == 1, "an order is news once"
    rig.worker.on_control_lost("a")
    assert followed(rig) == ORDER
    state = rig.worker.state_to_save()
    assert state is not None
    assert rig.worker.saved.store(state)

    again = picking(tmp_path)
    assert again.worker.restore()
    assert again.worker.report("a").samples == ()
    assert followed(again) == ORDER
    shows(again, None)
    assert followed(again) is None


def picking(tmp_path: Path) -> Rig:
    """A gateway that picks and knows one control, "a"."""
    rig = Rig(tmp_path, routing="pick")
    rig.worker.config = msgspec.structs.replace(rig.config, controls=[ControlConfig(id="a")])
    return rig


def test_a_gateway_of_weights_has_nothing_to_tune(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.worker.config = msgspec.structs.replace(rig.config, controls=[ControlConfig(id="a")])
    shows(rig, ORDER)
    assert rig.worker.following.order is None


def test_an_order_for_people() -> None:
    assert described(None) == "none: the policy's own weights"
    compared = ORDER._replace(child=Weights(1.0, 1.0), child_share=0.5)
    assert described(compared) == "a.1 generation 1: rtt 0.5, queue 1.5, 50 % by rtt 1, queue 1"
