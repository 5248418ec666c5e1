"""How long a request a cell takes when it does not say so itself: learned from refusals, three of them at most.

A refusal of a request that is longer than anything the cell has served, and no longer than what a peer serves, is about
its length. From then on the cell gets what is a little longer than what it has served, so that the bound grows with
each success and a second refusal is near the limit; from the second on the steps are smaller, and after the third only
what it has served is sent. Once, after a minute, a single request of any length tries whether the bound holds. A probe
that passes, or another engine, clears everything.

A refusal that no peer has answered yet makes the cell a suspect: like requests go to others while there are others. If
they refuse as well it was the request, and nothing is learned.
"""

from math import inf

from tradewind.core.memory import LimitMemory

MAX_REFUSALS = 3
TRIAL_AFTER_S = 60.0  # after the first refusal
GROWTH = (1.25, 1.1)  # over the longest served, after the first and the second refusal
START = 0.25  # of the shortest refused, where nothing long was served yet
SUSPECT_S = 30.0
BELOW_REFUSED = 0.97  # estimates differ a little between like requests
LIKE = 0.9  # a peer that served this share of a length speaks for all of it
LONGER = 1.03  # ... and a refusal must be this much longer than what the cell itself served


class LearnedLimit:
    """What one cell served and refused, in tokens of prompt and allowed output together."""

    __slots__ = ("_refused", "_suspect_s", "bound", "refusals", "served", "suspected", "trial_s", "unexplained")

    def __init__(self) -> None:
        self.served = 0  # the longest
        self.refusals = 0  # about length
        self.bound = inf  # requests of so many tokens or more are not sent
        self.trial_s = inf  # when one of them may try
        self.suspected = inf  # likewise, while others can serve them
        self.unexplained = False  # something shorter than the bound was refused since it was learned
        self._suspect_s = -inf
        self._refused = inf  # the shortest

    @property
    def quiet(self) -> bool:
        """Nothing learned and nothing suspected."""
        return self.bound == inf and self.suspected == inf

    @property
    def explains(self) -> bool:
        """Whether all that was refused of late is what the bound keeps away."""
        return self.bound < inf and not self.unexplained

    def allows(self, tokens: int, now_s: float) -> bool:
        """Whether a request of this length is sent; a due trial lets one through."""
        return tokens < self.bound or now_s >= self.trial_s

    def doubts(self, tokens: int, now_s: float) -> bool:
        """Whether others should get it while there are others."""
        return tokens >= self.suspected and now_s < self._suspect_s + SUSPECT_S

    def on_sent(self, tokens: int, now_s: float) -> None:
        """A request was sent; if it was the trial, there is no second one."""
        if tokens >= self.bound and now_s >= self.trial_s:
            self.trial_s = inf

    def on_served(self, tokens: int) -> None:
        """A request of this length was served here."""
        if tokens > self.served:
            self.served = tokens
            if tokens >= self._refused * BELOW_REFUSED:
                self.refusals, self._refused = 0, inf
                self.bound = self.trial_s = inf
            elif self.refusals:
                self._rebound()
        if tokens >= self.suspected:
            self.suspected = inf

    def on_refused(self, tokens: int, *, peers_served: int, now_s: float) -> None:
        """Refused here; `peers_served` is the longest that a peer has served."""
        if tokens < self.served * LONGER:
            self.on_refused_otherwise(tokens)
            return
        if peers_served >= tokens * LIKE:
            self._learn(tokens, now_s)
        else:
            self.suspected = min(self.suspected, tokens * BELOW_REFUSED)
            self._suspect_s = now_s

    def on_refused_otherwise(self, tokens: int) -> None:
        """Refused with a status that is not about length."""
        self.unexplained = self.unexplained or tokens < self.bound

    def on_peer_served(self, tokens: int, now_s: float) -> None:
        """A peer served what this cell is suspected of refusing."""
        if tokens >= self.suspected and now_s < self._suspect_s + SUSPECT_S:
            refused, self.suspected = self.suspected / BELOW_REFUSED, inf
            self._learn(refused, now_s)

    def on_peer_refused(self, tokens: int) -> None:
        """A peer refused it too: it was the request."""
        if tokens * LONGER >= self.suspected:
            self.suspected = inf

    def forget_suspicion(self, now_s: float) -> None:
        """Nothing confirmed it in time."""
        if now_s >= self._suspect_s + SUSPECT_S:
            self.suspected = inf

    def clear(self) -> None:
        """A probe of the refused length passed, or the engine is another one."""
        self.served, self.refusals, self._refused = 0, 0, inf
        self.unexplained = False
        self.bound = self.trial_s = self.suspected = inf

    def remembered(self, cell_id: str, engine_start_s: float | None, now_s: float) -> LimitMemory | None:
        """For a restart: what refusals have taught, None where they have not. Mere suspicions do not last so long."""
        if not self.refusals:
            return None
        return LimitMemory(
            cell_id=cell_id,
            served=self.served,
            refusals=self.refusals,
            shortest_refused=self._refused,
            bound=self.bound,
            trial_in_s=None if self.trial_s == inf else max(0.0, self.trial_s - now_s),
            unexplained=self.unexplained,
            engine_start_s=engine_start_s,
        )

    def recall(self, memory: LimitMemory, now_s: float) -> None:
        """Goes on from what was remembered."""
        self.served, self.refusals, self._refused = memory.served, memory.refusals, memory.shortest_refused
        self.bound, self.unexplained = memory.bound, memory.unexplained
        self.trial_s = inf if memory.trial_in_s is None else now_s + memory.trial_in_s

    def _learn(self, tokens: float, now_s: float) -> None:
        self.refusals += 1
        self._refused = min(self._refused, tokens)
        self.unexplained = False
        self.trial_s = now_s + TRIAL_AFTER_S if self.refusals == 1 else inf
        self._rebound()

    def _rebound(self) -> None:
        """A little over what was served, below what was refused."""
        if self.refusals >= MAX_REFUSALS:
            self.bound = self.served + 1.0
            return
        grown = max(START * self._refused, GROWTH[self.refusals - 1] * self.served)
        self.bound = max(self.served + 1.0, min(BELOW_REFUSED * self._refused, grown))
