"""Tells other gateways, by way of control, which prompts went to which cell, and hears the same of them.

Prompts travel as chained hashes. They mean the same to two gateways only under one key, which control tells: that of
the first connected control in this gateway's list, so that gateways with the same list agree. Until one is told, and
where no other gateway is heard of, nothing is told; the key goes on when all controls are lost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tradewind.core.pick.cell import OthersLoad
from tradewind.core.pick.picker import Picker
from tradewind.core.prefix.index import MAX_PLACED_BLOCKS, PrefixIndex
from tradewind.model.view import Placed, ViewDelta

HURRY_S = 0.05  # after one report, the next that tells of other work
TOGETHER_S = 0.01  # all gateways together send no more reports than one in so long
KEPT_S = 60.0  # so long after other gateways were heard of last, the index goes on as if they could be


@dataclass(slots=True)
class SharingCounters:
    """Plain counts since the start, for metrics."""

    told: int = 0  # prompts that a control was told of
    heard: int = 0  # of other gateways
    strange: int = 0  # under another key: left out


class Sharing:
    """One per picking gateway. `rekey` hands a new key to whoever hashes prompts."""

    def __init__(self, index: PrefixIndex, picker: Picker, rekey: Callable[[int], None]) -> None:
        self.key: int | None = None  # as a control has told it
        self.counters = SharingCounters()
        self._index = index
        self._picker = picker
        self._rekey = rekey
        self._keys: dict[str, int] = {}  # of connected controls
        self._followed = ""
        self._peers_s: float | None = None  # when other gateways were heard of last
        self._tells = False
        self._peers = 0  # how many they were
        self._told_work: dict[str, OthersLoad] = {}  # own requests in flight by cell, as of the last report

    def observe(self, control_id: str, delta: ViewDelta, controls: Sequence[str], now_s: float) -> tuple[Placed, ...]:
        """A message of this control, one of `controls`; what to believe of other gateways' requests."""
        if delta.prefix_key is not None:
            self._keys[control_id] = delta.prefix_key
        if delta.others:
            self._peers_s = now_s
            self._peers = len(delta.others)
        self._follow(controls, now_s)
        if not delta.placed:
            return ()
        if delta.prefix_key is None or delta.prefix_key != self.key:
            self.counters.strange += len(delta.placed)
            return ()
        self.counters.heard += len(delta.placed)
        return delta.placed

    def lost(self, control_id: str, controls: Sequence[str], now_s: float) -> None:
        """The stream of this control has ended."""
        self._keys.pop(control_id, None)
        self._follow(controls, now_s)

    def hears(self, now_s: float) -> bool:
        """Whether what other gateways send is in the index, too."""
        return self.key is not None and self._peers_s is not None and now_s - self._peers_s < KEPT_S

    def report(self, control_id: str, now_s: float) -> tuple[int | None, tuple[Placed, ...]]:
        """The key, and what to tell this control now."""
        self._listen(now_s)
        if not self._tells or control_id != self._followed:
            return self.key, ()
        self._told_work = self._picker.outstanding()
        placed = self._picker.take_placed()
        self.counters.told += len(placed)
        return self.key, placed

    def hurry(self, control_id: str) -> float | None:
        """How soon after the last report this control should have another; None: the regular one is soon enough.

        Others decide by what is in flight here: half a second later the cell that looked idle to them has a queue.
        """
        if not self._tells or control_id != self._followed or self._picker.outstanding() == self._told_work:
            return None
        return max(HURRY_S, TOGETHER_S * (1 + self._peers))

    def _follow(self, controls: Sequence[str], now_s: float) -> None:
        self._followed = next((control for control in controls if control in self._keys), "")
        key = self._keys.get(self._followed, self.key)
        if key is not None and key != self.key:
            self.key = key
            self._rekey(key)
            self._picker.renamed(now_s)
        self._listen(now_s)

    def _listen(self, now_s: float) -> None:
        """Keep what is sent only while there is somebody to tell."""
        tells = bool(self._followed) and self.hears(now_s)
        if tells != self._tells:
            self._tells = tells
            self._index.share(MAX_PLACED_BLOCKS if tells else 0)
