"""Pickers of simulated gateways whose tapes are kept, as a live gateway's is."""

import random
from collections.abc import Mapping

import msgspec

from tradewind.core.pick.cell import OthersLoad
from tradewind.core.pick.picker import Picker
from tradewind.core.pick.settings import PickSettings
from tradewind.core.pick.tape import Heard
from tradewind.core.prefix.index import PrefixIndex
from tradewind.gateway.pick.capture import Begin, Note
from tradewind.model.decision import Decision, Refusal
from tradewind.model.outcome import Outcome
from tradewind.model.request import Request
from tradewind.model.view import GridView, PathReading
from tradewind.sim.scenario import Scenario


class Lines:
    """A tape in memory, with the lines that a file would have."""

    def __init__(self, begin: Begin) -> None:
        self._encoder = msgspec.json.Encoder()
        self._lines = [self._encoder.encode(begin)]

    def note(self, kind: Heard, now_s: float, value: object) -> None:
        """Keep one note."""
        self._lines.append(self._encoder.encode(Note(kind, now_s, value)))

    @property
    def data(self) -> bytes:
        """All of it, as a file's content."""
        return b"\n".join(self._lines) + b"\n"


class TapedPicker:
    """The live picker of one simulated gateway; near ties are drawn from a stream of its own, whose seed is known."""

    def __init__(self, scenario: Scenario, policy: str, *, seed: int) -> None:
        settings = PickSettings()
        self.lines = Lines(Begin(policy=policy, seed=seed, settings=settings))
        index = PrefixIndex()
        for cell in scenario.cells:
            blocks = cell.kv_capacity_tokens // cell.limits.block_size_tokens // len(scenario.rtts_s)
            self.lines.note(Heard.CAPACITY, 0.0, (cell.cell_id, blocks))
            index.set_capacity(cell.cell_id, blocks)
        self._picker = Picker(settings, policy=policy, index=index, tape=self.lines)
        self._ties = random.Random(seed)

    def pick(self, request: Request, *, now_s: float, rng: random.Random) -> Decision | Refusal:
        """A cell."""
        return self._picker.pick(request, now_s=now_s, rng=self._ties)

    def first_token(self, decision_id: str, now_s: float) -> None:
        """Its first token passed."""
        self._picker.first_token(decision_id, now_s)

    def finished(self, decision_id: str, outcome: Outcome, now_s: float) -> None:
        """Its outcome."""
        self._picker.finished(decision_id, outcome, now_s)

    def observe_view(self, view: GridView, now_s: float) -> None:
        """A view."""
        self._picker.observe_view(view, now_s)
        self._picker.expire(now_s)

    def observe_path(self, path: PathReading, now_s: float) -> None:
        """A probe."""
        self._picker.observe_path(path, now_s)

    def outstanding(self) -> Mapping[str, OthersLoad]:
        """Own work in flight."""
        return self._picker.outstanding()

    def observe_others(self, loads: Mapping[str, OthersLoad], now_s: float) -> None:
        """The other gateways'."""
        self._picker.observe_others(loads, now_s)
