"""The prefix key that a grid's gateways come to share, and what waits for one of them."""

import random
from collections.abc import Callable
from itertools import chain

import pytest

from tradewind.control.prefixes import KEY_KEPT_S, MAX_PROMPT_BLOCKS, PART_BLOCKS, PrefixKey, Waiting, parts_of, sound
from tradewind.wire.pb import tradewind_pb2 as pb


def never() -> int:
    pytest.fail("a key is drawn")


def holding(key: int) -> PrefixKey:
    held = PrefixKey(lambda: key)
    held.settle((), 0.0)
    return held


def test_where_no_gateway_has_a_key_one_is_drawn_once() -> None:
    key = PrefixKey(iter((5, 6)).__next__)
    assert key.value is None
    assert not key.settle((), 0.0)
    assert not key.settle((), 100.0)
    assert key.value == 5


@pytest.mark.parametrize(("said", "taken"), [((9,), 9), ((9, 3), 3), ((3, 9, 9), 9), ((0, 0, 9), 0)])
def test_a_control_that_starts_empty_takes_over_what_most_gateways_go_by(said: tuple[int, ...], taken: int) -> None:
    key = PrefixKey(never)
    assert not key.settle(said, 0.0), "nobody was told another one"
    assert key.value == taken


def test_a_tie_keeps_the_key_and_a_majority_takes_it() -> None:
    key = holding(9)
    assert not key.settle((3, 9), 0.0)
    assert key.value == 9
    assert key.settle((3, 9, 3), 0.0)
    assert key.value == 3
    assert not key.settle((), 100.0), "gateways that are gone take nothing away"
    assert key.value == 3


def test_zero_is_a_key() -> None:
    key = PrefixKey(iter((0, 5)).__next__)
    key.settle((), 0.0)
    assert not key.settle((), 100.0)
    assert not key.settle((0, 5), 100.0)
    assert key.value == 0


def test_after_a_change_what_was_said_before_it_was_heard_changes_nothing() -> None:
    key = holding(9)
    assert key.settle((3,), 10.0)
    assert not key.settle((9,), 10.0 + 0.9 * KEY_KEPT_S)
    assert key.value == 3
    assert key.settle((9,), 10.0 + KEY_KEPT_S)


class World:
    """Gateways and controls that exchange keys with delay, in steps; a gateway follows the first control it reaches."""

    def __init__(self, *, gateways: int, delay: int, seed: int, step_s: float = 0.05) -> None:
        self.rng = random.Random(seed)
        self.controls = [PrefixKey(lambda: self.rng.getrandbits(64)) for _ in range(2)]
        self.gateways: list[int | None] = [None] * gateways
        self.reached: Callable[[int, int], bool] = lambda _gateway, _control: True
        self.changes = 0
        self.now_s = 0.0
        self._step_s = step_s
        self._delay = delay
        self._said: list[dict[int, int | None]] = [{}, {}]
        self._told: list[dict[int, int]] = [{} for _ in range(gateways)]
        self._due: list[tuple[float, Callable[[], None]]] = []

    def restart(self, control: int) -> None:
        self.controls[control] = PrefixKey(lambda: self.rng.getrandbits(64))
        self._said[control] = {}
        for told in self._told:
            told.pop(control, None)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_s += self._step_s
            for item in [item for item in self._due if item[0] <= self.now_s]:
                self._due.remove(item)
                item[1]()
            links = [(g, c) for g in range(len(self.gateways)) for c in range(2)]
            self.rng.shuffle(links)
            for gateway, control in links:
                if self.reached(gateway, control):
                    self._send(gateway, control)
                else:
                    self._said[control].pop(gateway, None)
                    self._told[gateway].pop(control, None)

    def _send(self, gateway: int, control: int) -> None:
        said, told = self.gateways[gateway], self.controls[control].value
        later_s = self.now_s + self._step_s * self.rng.randint(0, self._delay)
        self._due.append((later_s, lambda: self._hear(gateway, control, said)))
        if told is not None and gateway in self._said[control]:
            self._due.append((later_s, lambda: self._tell(gateway, control, told)))

    def _hear(self, gateway: int, control: int, said: int | None) -> None:
        if self.reached(gateway, control):
            self._said[control][gateway] = said
            keys = [key for key in self._said[control].values() if key is not None]
            self.controls[control].settle(keys, self.now_s)

    def _tell(self, gateway: int, control: int, told: int) -> None:
        if self.reached(gateway, control):
            self._told[gateway][control] = told
            key = self._told[gateway][min(self._told[gateway])]
            self.changes += self.gateways[gateway] not in (None, key)
            self.gateways[gateway] = key

    def agreed(self) -> int:
        keys = {*self.gateways, *(control.value for control in self.controls)}
        assert len(keys) == 1, keys
        (key,) = keys
        assert key is not None
        return key


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("gateways", [1, 2, 5])
def test_two_controls_come_to_agree_and_a_restart_of_one_loses_nothing(gateways: int, seed: int) -> None:
    world = World(gateways=gateways, delay=6, seed=seed)
    world.run(200)
    key = world.agreed()
    world.changes = 0
    for control in (0, 1):
        world.restart(control)
        world.run(200)
        assert world.agreed() == key
    assert not world.changes, "no gateway ever left its key"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("gateways", [2, 3, 5])
def test_halves_that_were_apart_come_to_agree_and_do_not_swing(gateways: int, seed: int) -> None:
    world = World(gateways=gateways, delay=6, seed=seed)
    world.reached = lambda gateway, control: gateway % 2 == control
    world.run(200)
    assert len(set(world.gateways)) == 2
    world.changes, world.reached = 0, lambda _gateway, _control: True
    world.run(400)
    world.agreed()
    assert world.changes <= 2 * gateways


def placed(*sizes: int, cell_id: str = "a") -> list[pb.Placed]:
    numbers = iter(range(1 << 30))
    return [pb.Placed(cell_id=cell_id, blocks=[next(numbers) for _ in range(size)]) for size in sizes]


def test_what_makes_no_sense_is_left_out() -> None:
    good = placed(1, MAX_PROMPT_BLOCKS)
    assert sound([*placed(0, MAX_PROMPT_BLOCKS + 1), *placed(3, cell_id="b"), *good], {"a"}) == good


def test_parts_hold_everything_in_order_and_are_small() -> None:
    prompts = placed(*[44] * 500, 3 * PART_BLOCKS, 1)
    parts = list(parts_of(prompts))
    assert sum(part.prompts for part in parts) == len(prompts)
    assert all(part.blocks <= PART_BLOCKS for part in parts if part.prompts > 1)
    read = [pb.ViewDelta.FromString(part.content).placed for part in parts]
    assert [sum(len(entry.blocks) for entry in entries) for entries in read] == [part.blocks for part in parts]
    assert list(chain.from_iterable(read)) == prompts
    assert not list(parts_of([]))


def test_at_the_bound_the_oldest_gives_way() -> None:
    waiting, prompts = Waiting(bound=3 * PART_BLOCKS), placed(*[PART_BLOCKS] * 5)
    assert waiting.add(parts_of(prompts)) == 2
    assert waiting.blocks == 3 * PART_BLOCKS
    assert list(pb.ViewDelta.FromString(waiting.take()).placed) == prompts[2:]
    assert (waiting.blocks, waiting.take()) == (0, b"")
