"""How long a request a cell takes when it does not say so itself: learned from refusals, three of them at most.

A refusal begins a row of refusals, see `refusals`, which ends when something as long is served. A limit may fall a
second time: a refusal of what was served within a row begins another, and the older bound stays. A refusal that no
peer has answered yet makes the cell a suspect: like requests go to others while there are others, and what they make of
the first of them decides. If they refuse as well it was the request, and nothing is learned.
"""

from collections.abc import Sequence
from math import inf

from tradewind.core.memory import LimitMemory
from tradewind.core.pick.refusals import LIKE, Refusals, Size

MAX_ROWS = 2
NOISY_S = 600.0  # after a refusal that was not about length, the next ones bound nothing: others are preferred


class LearnedLimit:
    """What one cell served and refused."""

    __slots__ = ("_noise_s", "_rows", "served", "unexplained")

    def __init__(self) -> None:
        self.served = (0, 0)  # the longest, by each measure
        self.unexplained = False  # something shorter than the bound was refused since it was learned
        self._rows: list[Refusals] = []  # oldest first
        self._noise_s = -inf  # when a refusal here has proved to be about something else

    @property
    def quiet(self) -> bool:
        """Nothing learned and nothing suspected."""
        return not self._rows

    @property
    def suspected(self) -> bool:
        """Whether something was refused of which no peer has served the like yet."""
        return any(not row.count for row in self._rows)

    @property
    def refusals(self) -> int:
        """About length, as far as it is known."""
        return sum(row.count for row in self._rows)

    @property
    def bound(self) -> float:
        """Requests of so many tokens or more are not sent."""
        return min((row.bound for row in self._rows), default=inf)

    @property
    def explains(self) -> bool:
        """Whether all that was refused of late is what the bound keeps away."""
        return not self.quiet and all(row.hard for row in self._rows) and not self.unexplained

    def longer(self, size: Size) -> bool:
        """Whether nothing so long was served yet."""
        part, whole = size.measures
        return part > self.served[0] or whole > self.served[1]

    def speaks_for(self, size: Size) -> bool:
        """Whether what was served here, at any time, shows that a refusal of this is the cell's own."""
        return all(served >= LIKE * one for served, one in zip(self.served, size.measures, strict=True))

    def allows(self, size: Size, now_s: float) -> bool:
        """Whether a request of this length is sent; a due trial lets one through."""
        measures = size.measures
        return all(row.allows(measures, now_s) for row in self._rows)

    def doubts(self, size: Size, now_s: float) -> bool:
        """Whether others should get it while there are others."""
        measures = size.measures
        return any(row.doubts(measures, now_s) for row in self._rows)

    def suspects(self, size: Size) -> bool:
        """Whether the like was refused here, and no peer has answered yet."""
        return any(not row.count and row.like(size.measures) for row in self._rows)

    def on_sent(self, size: Size, now_s: float) -> None:
        """A request was sent; a trial is not repeated at once."""
        for row in self._rows:
            row.on_sent(size.measures, now_s)

    def on_served(self, size: Size, *, sent_s: float, now_s: float) -> None:
        """A request of this length, sent then, was served here."""
        measures = size.measures
        self.served = max(self.served[0], measures[0]), max(self.served[1], measures[1])
        for row in self._rows:
            row.on_served(measures, sent_s=sent_s)
        self._drop_what_is_over(now_s)

    def on_refused(self, size: Size, *, answered: bool, sent_s: float, now_s: float, request_bytes: int = 0) -> None:
        """Refused here; `answered`: a peer has served the like."""
        row = self._rows[-1] if self._rows else None
        if row is None or row.within(size.measures):
            row = self._begin(row.since if row is not None else self.served, sent_s)
        self.unexplained = False
        row.on_refused(
            size, sent_s=sent_s, now_s=now_s, request_bytes=request_bytes, answered=answered, noisy=self._noisy(now_s)
        )

    def on_refused_otherwise(self, size: Size) -> None:
        """Refused with a status that is not about length."""
        self.unexplained = self.unexplained or size.prompt + size.output < self.bound

    def on_peer_served(self, size: Size, now_s: float) -> None:
        """A peer served what this cell is suspected of refusing."""
        for row in self._rows:
            if not row.count and row.like(size.measures):
                row.on_answered(now_s, noisy=self._noisy(now_s))

    def on_peer_refused(self, size: Size) -> None:
        """A peer refused it too: it was the request."""
        self._rows = [row for row in self._rows if row.count or not row.like(size.measures)]

    def on_probe_served(self, prompt_bytes: int, prompt_tokens: int | None, now_s: float) -> None:
        """The cell served a probe; `prompt_tokens` where it has counted them."""
        for row in self._rows:
            row.on_probe_served(prompt_bytes, prompt_tokens, now_s)
        self._drop_what_is_over(now_s)

    def clear(self) -> None:
        """The engine is another one."""
        self.served, self._rows = (0, 0), []
        self.unexplained, self._noise_s = False, -inf

    def remembered(self, cell_id: str, engine_start_s: float | None, now_s: float) -> LimitMemory | None:
        """For a restart: what refusals have taught, None where they have not. Mere suspicions do not last so long."""
        if not self.refusals:
            return None
        return LimitMemory(
            cell_id=cell_id,
            served=self.served,
            rows=tuple(row.remembered(now_s) for row in self._rows if row.count),
            unexplained=self.unexplained,
            engine_start_s=engine_start_s,
        )

    def recall(self, memory: LimitMemory, now_s: float) -> None:
        """Goes on from what was remembered."""
        self.served, self.unexplained = memory.served, memory.unexplained
        self._rows = [Refusals.recalled(row, now_s) for row in memory.rows[-MAX_ROWS:]]

    def _begin(self, before: Sequence[int], sent_s: float) -> Refusals:
        if len(self._rows) == MAX_ROWS:
            del self._rows[0 if self._rows[-1].final else -1]
        self._rows.append(Refusals(before, sent_s=sent_s))
        return self._rows[-1]

    def _drop_what_is_over(self, now_s: float) -> None:
        if any(row.over and not row.hard for row in self._rows):
            self._noise_s = now_s
            for row in self._rows:
                row.on_noise(now_s)
        self._rows = [row for row in self._rows if not row.over]

    def _noisy(self, now_s: float) -> bool:
        return now_s < self._noise_s + NOISY_S
