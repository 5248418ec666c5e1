"""What gateways tell each other of where they have sent what, and under which key."""

from random import Random

from tests.unit.pick.fakes import cell_view, grid, request
from tradewind.core.pick.picker import Picker
from tradewind.core.pick.settings import PickSettings
from tradewind.core.prefix.index import PrefixIndex
from tradewind.gateway.pick.sharing import HURRY_S, KEPT_S, TOGETHER_S, Sharing
from tradewind.model.decision import Decision
from tradewind.model.view import GatewayLoad, Placed, ViewDelta, ViewVersion

CONTROLS = ("one", "two")
VERSION = ViewVersion(control_id="one", incarnation="i", counter=1)
OTHERS = (GatewayLoad(gateway_id="other", age_s=0.1),)
BLOCKS = (1, 2, 3)


class Made:
    """A sharing gateway without a network."""

    def __init__(self) -> None:
        self.index = PrefixIndex()
        self.picker = Picker(PickSettings(), index=self.index)
        self.picker.observe_view(grid(cell_view("a"), cell_view("b")), 0.0)
        self.keys: list[int] = []
        self.sharing = Sharing(self.index, self.picker, self.keys.append)

    def hear(
        self,
        control_id: str = "one",
        *,
        key: int | None = 7,
        others: tuple[GatewayLoad, ...] = OTHERS,
        placed: tuple[Placed, ...] = (),
        now_s: float = 1.0,
    ) -> None:
        """A message, and what comes of it."""
        delta = ViewDelta(version=VERSION, full=False, others=others, prefix_key=key, placed=placed)
        self.picker.observe_placed(self.sharing.observe(control_id, delta, CONTROLS, now_s), now_s)


def test_what_one_gateway_has_sent_another_finds() -> None:
    one, two = Made(), Made()
    for made in (one, two):
        made.hear()
    one.index.record("a", BLOCKS, 2.0)
    key, placed = one.sharing.report("one", 2.5)
    assert (key, placed) == (7, (Placed(cell_id="a", blocks=BLOCKS),))
    assert one.sharing.report("one", 3.0) == (7, ()), "each is told once"
    two.hear(placed=placed, now_s=2.6)
    assert two.index.matches((*BLOCKS, 9)) == {"a": 3}
    assert two.sharing.report("one", 3.0) == (7, ()), "what was heard is not told again"
    assert two.sharing.counters.heard == one.sharing.counters.told == 1


def test_nothing_is_kept_while_there_is_nobody_to_tell() -> None:
    made = Made()
    made.hear(others=())
    made.index.record("a", BLOCKS, 2.0)
    assert made.sharing.report("one", 2.5) == (7, ())
    assert not made.sharing.hears(2.5)
    made.hear()
    made.index.record("a", (4,), 3.0)
    assert made.sharing.report("one", 3.5)[1] == (Placed(cell_id="a", blocks=(4,)),)
    made.index.record("a", (5,), 4.0)
    assert made.sharing.report("one", 1.0 + KEPT_S) == (7, ()), "the others have been away for too long"


def test_only_the_followed_control_is_told_and_the_next_one_takes_over() -> None:
    made = Made()
    made.hear("two", key=8)
    made.index.record("a", BLOCKS, 1.0)
    assert made.sharing.report("one", 1.5) == (8, ())
    assert made.sharing.report("two", 1.5)[1]
    made.index.record("a", BLOCKS, 1.6)
    made.hear("one", key=7)
    assert made.keys == [8, 7]
    assert made.index.matches(BLOCKS) == {}, "hashed by the old key"
    assert made.sharing.report("one", 2.0) == (7, ())
    made.index.record("b", BLOCKS, 2.1)
    made.sharing.lost("one", CONTROLS, 3.0)
    assert made.sharing.key == 8, "the only control that is left tells another"
    made.sharing.lost("two", CONTROLS, 4.0)
    assert made.sharing.key == 8, "a key outlives its control: nothing is forgotten for the lack of one"


def test_a_control_that_comes_back_with_the_same_key_costs_nothing() -> None:
    made = Made()
    made.hear()
    made.index.record("a", BLOCKS, 2.0)
    made.sharing.lost("one", CONTROLS, 3.0)
    made.hear(key=None, now_s=4.0)
    made.hear(key=7, now_s=4.1)
    assert made.index.matches(BLOCKS) == {"a": 3}
    assert made.keys == [7]


def test_prompts_under_another_key_and_of_unknown_cells_are_left_out() -> None:
    made = Made()
    made.hear(key=7)
    made.hear("two", key=9, placed=(Placed(cell_id="a", blocks=BLOCKS),))
    assert made.index.matches(BLOCKS) == {}
    assert made.sharing.counters.strange == 1
    made.hear(placed=(Placed(cell_id="gone", blocks=BLOCKS), Placed(cell_id="b", blocks=())))
    assert made.index.matches(BLOCKS) == {}


def test_too_much_to_tell_drops_the_oldest() -> None:
    index, rng = PrefixIndex(), Random(1)
    index.share(100)
    prompts = [tuple(rng.getrandbits(63) for _ in range(30)) for _ in range(5)]
    for prompt in prompts:
        index.record("a", prompt, 1.0)
    assert [blocks for _, blocks in index.take_placed()] == prompts[2:]
    assert index.untold == 2
    index.record("a", tuple(range(101)), 2.0)
    assert index.take_placed() == []


def test_work_that_changes_is_in_a_hurry_while_others_listen() -> None:
    made = Made()
    assert made.sharing.hurry("one") is None, "nobody was heard of"
    made.hear()
    made.sharing.report("one", 1.0)
    assert made.sharing.hurry("one") is None
    picked = made.picker.pick(request(), now_s=1.1, rng=Random(1))
    assert isinstance(picked, Decision)
    assert made.sharing.hurry("one") == HURRY_S
    assert made.sharing.hurry("two") is None, "one control is enough"
    made.sharing.report("one", 1.2)
    assert made.sharing.hurry("one") is None, "it is told"
    made.picker.first_token(picked.decision_id, 1.3)
    assert made.sharing.hurry("one") == HURRY_S, "a prompt was processed"


def test_many_gateways_hurry_less_each() -> None:
    made = Made()
    made.hear(others=tuple(GatewayLoad(gateway_id=f"g{n}", age_s=0.1) for n in range(9)))
    made.sharing.report("one", 1.0)
    made.picker.pick(request(), now_s=1.1, rng=Random(1))
    assert made.sharing.hurry("one") == 10 * TOGETHER_S
