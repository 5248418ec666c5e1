"""How long a request a cell takes when it does not say so itself: learned from refusals, three of them at most.

A refusal of a request that is longer than anything the cell has served, and no longer than what a peer serves, is about
its length. The first such refusal bounds the cell between what it served and what it refused; the bound is put to the
test again by single requests after a minute and after ten, and after the third refusal only what it has served is
sent, until it serves more after all, a probe clears it, or the engine is another one.

A refusal that no peer has answered yet makes the cell a suspect: like requests go to others while there are others. If
they refuse as well it was the request, and nothing is learned.
"""

from math import inf, sqrt

MAX_REFUSALS = 3
TRIAL_AFTER_S = (60.0, 600.0)  # after the first and the second refusal
SUSPECT_S = 30.0
BELOW_REFUSED = 0.97  # estimates differ a little between like requests
LIKE = 0.9  # a peer that served this share of a length speaks for all of it
LONGER = 1.03  # ... and a refusal must be this much longer than what the cell itself served


class LearnedLimit:
    """What one cell served and refused, in tokens of prompt and allowed output together."""

    __slots__ = ("_refused", "_suspect_s", "bound", "refusals", "served", "suspected", "trial_s")

    def __init__(self) -> None:
        self.served = 0  # the longest
        self.refusals = 0  # about length
        self.bound = inf  # requests of so many tokens or more are not sent
        self.trial_s = inf  # when one of them may try
        self.suspected = inf  # likewise, while others can serve them
        self._suspect_s = -inf
        self._refused = inf  # the shortest

    @property
    def quiet(self) -> bool:
        """Nothing learned and nothing suspected."""
        return self.bound == inf and self.suspected == inf

    def allows(self, tokens: int, now_s: float) -> bool:
        """Whether a request of this length is sent; a due trial lets one through."""
        return tokens < self.bound or now_s >= self.trial_s

    def doubts(self, tokens: int, now_s: float) -> bool:
        """Whether others should get it while there are others."""
        return tokens >= self.suspected and now_s < self._suspect_s + SUSPECT_S

    def on_sent(self, tokens: int, now_s: float) -> None:
        """A request was sent; if it was the trial, no second one goes before it is answered."""
        if tokens >= self.bound and now_s >= self.trial_s:
            self.trial_s = now_s + TRIAL_AFTER_S[0]

    def on_served(self, tokens: int) -> None:
        """A request of this length was served here."""
        if tokens > self.served:
            self.served = tokens
            if tokens >= self.bound:
                self._believe()
        if tokens >= self.suspected:
            self.suspected = inf

    def on_refused(self, tokens: int, *, peers_served: int, now_s: float) -> None:
        """Refused here; `peers_served` is the longest that a peer has served."""
        if tokens < self.served * LONGER:
            return
        if peers_served >= tokens * LIKE:
            self._learn(tokens, now_s)
        else:
            self.suspected = min(self.suspected, tokens * BELOW_REFUSED)
            self._suspect_s = now_s

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
        self.bound = self.trial_s = self.suspected = inf

    def _learn(self, tokens: float, now_s: float) -> None:
        self.refusals += 1
        self._refused = min(self._refused, tokens)
        middle = sqrt(max(self.served, 0.25 * self._refused) * self._refused)
        tight = self.refusals >= MAX_REFUSALS
        self.bound = self.served + 1.0 if tight else min(BELOW_REFUSED * self._refused, max(self.served + 1.0, middle))
        self.trial_s = inf if tight else now_s + TRIAL_AFTER_S[self.refusals - 1]

    def _believe(self) -> None:
        """It served what it was thought to refuse."""
        if self.served >= self._refused * BELOW_REFUSED:
            self.refusals, self._refused = 0, inf
            self.bound = self.trial_s = inf
        else:
            self.bound = max(self.bound, self.served + 1.0)
