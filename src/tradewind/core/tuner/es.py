"""GORGO's tuner as published: a (1+1) evolution strategy on the p95 TTFT of whatever completes.

Source: "GORGO: Online Tuning for Cross-Region Network-Aware LLM Serving" and the constants of its published code. Kept
as they are, because they are what it is compared for:
- the score of a window is the negative p95, and a child is accepted if its score is above the best one times 1.005: of
  two negative numbers that is up to 0.5 % worse;
- the best score is never measured again, so that the luckiest window wins for ever;
- windows of 128 overlap by 96, and a request counts where it completes, not where it was decided;
- the whole traffic goes by the child; sigma has no upper bound that it could reach; below its floor the search ends.
"""

import random
from collections import deque
from collections.abc import Sequence
from math import exp, log

from tradewind.core.numbers import clip, known
from tradewind.core.tuner.box import Box
from tradewind.core.tuner.kept import MAX_GENERATION, Reader
from tradewind.core.tuner.orders import Orders
from tradewind.core.tuner.tuner import Happened, Kept, TunerEvent
from tradewind.model.tuning import Sample, TuningOrder, Weights

NAME = "es"
WINDOW, HOP = 128, 32  # completions
SIGMA, LEAST_SIGMA, SIGMA_DECAY = 0.5, 0.05, 0.817
JUDGED, SUCCESS_RATE = 8, 0.2  # verdicts that the 1/5 rule looks back on
TOLERANCE = 0.005
RATIO = 0.95
_FAR = 100.0  # e-folds: far outside of every box, and a number still


def score_of(ttfts_s: Sequence[float]) -> float:
    """Higher is better: the negative p95, the sample at the rounded rank."""
    ordered = sorted(ttfts_s)
    return -ordered[round(RATIO * (len(ordered) - 1))]


def stepped(weights: Weights, sigma: float, rng: random.Random, box: Box) -> Weights:
    """A child: each weight by its own lognormal factor."""
    rtt, queue = (exp(clip(log(weight) + sigma * rng.gauss(0.0, 1.0), -_FAR, _FAR)) for weight in weights)
    return box.clipped(Weights(rtt, queue))


class Es:
    """While a child is tried, `order.weights` are the child's; frozen or ended, the parent's."""

    def __init__(self, *, driver: str, seed: int, start: Weights, box: Box) -> None:
        self._seed = seed
        self._start = start
        self._box = box
        self._orders = Orders(driver, start)
        self._frozen = False
        self._ended = False  # frozen, by itself
        self._window: deque[float] = deque(maxlen=WINDOW)
        self._since = 0  # completions since the last verdict
        self._parent = start
        self._best: float | None = None  # score; None until a window is full
        self._sigma = SIGMA
        self._recent: deque[bool] = deque(maxlen=JUDGED)

    @property
    def name(self) -> str:
        """As it is written in configuration."""
        return NAME

    @property
    def order(self) -> TuningOrder:
        """What is in force."""
        return self._orders.last

    @property
    def frozen(self) -> bool:
        """Whether it only watches."""
        return self._frozen

    @property
    def sigma(self) -> float:
        """Of the next step, in e-folds."""
        return self._sigma

    @property
    def parent(self) -> Weights:
        """The best so far."""
        return self._parent

    def learn(self, samples: Sequence[Sample], now_s: float) -> Sequence[TunerEvent]:
        """Finished requests, in the order of their end."""
        events: list[TunerEvent] = []
        for sample in samples:
            ttft_s = known(sample.ttft_s)
            if self._frozen or ttft_s is None or ttft_s <= 0.0 or sample.driver != self.order.driver:
                continue  # of any generation: it counts where it completes
            self._window.append(ttft_s)
            self._since += 1
            if self._since >= HOP and len(self._window) == WINDOW:
                self._since = 0
                events += self._judge(score_of(self._window), now_s)
        return events

    def freeze(self, now_s: float) -> Sequence[TunerEvent]:
        """Keep the parent's weights, propose nothing."""
        if self._frozen:
            return ()
        return (self._stop(now_s, "by an operator"),)

    def thaw(self, now_s: float) -> Sequence[TunerEvent]:
        """Go on, as the original does when it is switched on: from these weights, with everything else anew."""
        if not self._frozen:
            return ()
        self._frozen = self._ended = False
        return (self._again(self._parent, Happened.THAWED, now_s, "the search begins anew at these weights"),)

    def put(self, weights: Weights, now_s: float, reason: str) -> Sequence[TunerEvent]:
        """An operator's weights; raises ValueError outside the box."""
        if problem := self._box.problem(weights):
            raise ValueError(problem)
        return (self._again(weights, Happened.SET, now_s, reason),)

    def reset(self, now_s: float) -> Sequence[TunerEvent]:
        """Back to the start; what was learned is void."""
        return (self._again(self._start, Happened.RESET, now_s, "back to the start"),)

    def keep(self) -> Kept:
        """Everything that must outlive a restart; the window is not part of it."""
        return {
            "tuner": NAME,
            "weights": list(self._parent),
            "best_p95_s": None if self._best is None else -self._best,
            "sigma": self._sigma,
            "recent": "".join("+" if accepted else "-" for accepted in self._recent),
            "generation": self.order.generation,
            "frozen": self._frozen,
            "ended": self._ended,
        }

    def restore(self, kept: Kept, now_s: float) -> Sequence[TunerEvent]:
        """Go on from what `keep` gave. Nothing changes if it cannot be read."""
        read = Reader(kept)
        read.same("tuner", NAME)
        parent, sigma, recent = self._box.clipped(read.weights("weights")), read.positive("sigma"), read.text("recent")
        best = -read.positive("best_p95_s") if read.has("best_p95_s") else None
        frozen, ended = read.flag("frozen"), read.flag("ended")
        self._orders.follow(read.whole("generation", 0, MAX_GENERATION))
        self._begin(parent)
        self._window.clear()
        self._frozen, self._ended, self._best, self._sigma = frozen, ended, best, sigma
        self._recent.extend(verdict == "+" for verdict in recent)
        self._orders.give(parent)
        return () if frozen or best is None else (self._propose(now_s),)

    def _judge(self, score: float, now_s: float) -> list[TunerEvent]:
        if self._best is None:
            self._best = score
            return [self._propose(now_s)]
        best, child = self._best, self.order.weights
        accepted = score > best * (1.0 + TOLERANCE)
        if accepted:
            self._best, self._parent = score, child
        self._recent.append(accepted)
        self._adapt()
        figures = (("p95_ttft_s", -score), ("best_p95_ttft_s", -best), ("sigma", self._sigma))
        reason = f"p95 TTFT {-score * 1e3:.0f} ms in its window, the best one so far {-best * 1e3:.0f} ms"
        what = Happened.ACCEPTED if accepted else Happened.REJECTED
        verdict = TunerEvent(now_s, what, self.order.generation, self._parent, child, reason, figures)
        if self._sigma < LEAST_SIGMA:
            self._ended = True
            return [verdict, self._stop(now_s, f"sigma {self._sigma:.3f} is below {LEAST_SIGMA}: the search has ended")]
        return [verdict, self._propose(now_s)]

    def _adapt(self) -> None:
        if len(self._recent) < JUDGED:
            return
        rate = sum(self._recent) / JUDGED
        if rate > SUCCESS_RATE:
            self._sigma = min(self._sigma / SIGMA_DECAY, _FAR)
        elif rate < SUCCESS_RATE:
            self._sigma *= SIGMA_DECAY

    def _propose(self, now_s: float) -> TunerEvent:
        # By generation, so that a restarted search goes on and does not draw the same again.
        rng = random.Random(f"{self._seed}/{self.order.generation}")
        child = stepped(self._parent, self._sigma, rng, self._box)
        generation = self._orders.give(child).generation
        reason = f"all requests go by it; sigma {self._sigma:.2f}"
        return TunerEvent(now_s, Happened.PROPOSED, generation, child, child, reason, (("sigma", self._sigma),))

    def _stop(self, now_s: float, reason: str) -> TunerEvent:
        self._frozen = True
        generation = self._orders.give(self._parent).generation
        return TunerEvent(now_s, Happened.FROZEN, generation, self._parent, None, reason)

    def _again(self, parent: Weights, what: Happened, now_s: float, reason: str) -> TunerEvent:
        self._begin(parent)
        if self._ended:
            self._frozen = self._ended = False
        return TunerEvent(now_s, what, self._orders.give(parent).generation, parent, None, reason)

    def _begin(self, parent: Weights) -> None:
        """As when the original is switched on: the samples stay, the score is unknown, sigma is wide."""
        self._parent, self._best, self._sigma, self._since = parent, None, SIGMA, 0
        self._recent.clear()
