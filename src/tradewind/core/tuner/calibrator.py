"""The calibrator: a regression proposes weights, an interleaved comparison with guards disposes, per regime of load."""

from collections import deque
from collections.abc import Sequence
from math import log

from tradewind.core.numbers import known
from tradewind.core.tuner.box import Box
from tradewind.core.tuner.compare import Comparison, Verdict, believable, slower_than_physics
from tradewind.core.tuner.cusum import Shift, Watch
from tradewind.core.tuner.fit import Point, fit
from tradewind.core.tuner.kept import MAX_GENERATION, Reader
from tradewind.core.tuner.orders import Orders
from tradewind.core.tuner.propose import leaves_physics, propose
from tradewind.core.tuner.regimes import NUMBERS, LoadSteps, Regime
from tradewind.core.tuner.settings import CalibratorSettings
from tradewind.core.tuner.tuner import Happened, Kept, TunerEvent
from tradewind.model.tuning import PHYSICS, Sample, TuningOrder, Weights

NAME = "calibrator"
_Events = list[TunerEvent]
_Figures = tuple[tuple[str, float], ...]


class Calibrator:
    """Implements `Tuner`. The same samples in other batches give the same events."""

    def __init__(self, *, driver: str, start: Weights, box: Box, settings: CalibratorSettings | None = None) -> None:
        self._settings = settings or CalibratorSettings()
        self._start = start
        self._box = box
        self._physics = box.clipped(PHYSICS)
        self._frozen = False
        self._orders = Orders(driver, start)
        self._comparison: Comparison | None = None
        self._regimes: dict[int | None, Regime] = {}
        self._load = LoadSteps(self._settings.regime)
        self._watch = Watch(self._settings.cusum)
        self._points: deque[Point] = deque(maxlen=self._settings.fit.window)
        self._since_s = float("-inf")  # earlier decisions are of another world
        self._refused = 0  # proposals in a row
        self._until_fit = self._settings.fit.least
        self._until_refer = self._settings.regime.each
        self._alone_s: deque[float] = deque(maxlen=self._settings.regime.physics_window)  # E2E, not physics, no child

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

    def learn(self, samples: Sequence[Sample], now_s: float) -> Sequence[TunerEvent]:
        """Finished requests, in the order of their end."""
        events: _Events = []
        for sample in samples:
            self._take(sample, now_s, events)
        return events

    def freeze(self, now_s: float) -> Sequence[TunerEvent]:
        """Keep the parent's weights, end a comparison, propose nothing."""
        events: _Events = []
        if not self._frozen:
            self._frozen = True
            self._void("frozen by an operator", now_s, events)
            self._tell(Happened.FROZEN, now_s, events, f"stays at {_said(self.order.weights)} until it is thawed")
        return events

    def thaw(self, now_s: float) -> Sequence[TunerEvent]:
        """Go on."""
        events: _Events = []
        if self._frozen:
            self._frozen = False
            self._tell(Happened.THAWED, now_s, events, f"goes on from {_said(self.order.weights)}")
        return events

    def put(self, weights: Weights, now_s: float, reason: str) -> Sequence[TunerEvent]:
        """An operator's weights, in every regime until something better is accepted in one."""
        if problem := self._box.problem(weights):
            raise ValueError(problem)
        events: _Events = []
        self._void("an operator put other weights", now_s, events)
        for regime in self._regimes.values():
            regime.weights, regime.barred = None, False
        self._regime().weights = weights
        self._move(weights)
        self._anew(now_s)
        self._refused = 0
        self._tell(Happened.SET, now_s, events, f"{reason}: {_said(weights)}")
        return events

    def reset(self, now_s: float) -> Sequence[TunerEvent]:
        """Back to the start; what was learned is void."""
        events: _Events = []
        self._void("reset by an operator", now_s, events)
        self._regimes.clear()
        self._load = LoadSteps(self._settings.regime)
        self._move(self._start)
        self._anew(now_s)
        self._refused = 0
        self._tell(Happened.RESET, now_s, events, f"back to {_said(self._start)}; what was learned is forgotten")
        return events

    def keep(self) -> Kept:
        """Weights and references; samples are learned again within minutes."""
        return {
            "tuner": NAME,
            "generation": self.order.generation,
            "weights": list(self.order.weights),
            "child": None if self.order.child is None else list(self.order.child),
            "frozen": self._frozen,
            "refused": self._refused,
            "regime": self._load.number,
            "regimes": {
                "unknown" if number is None else str(number): {
                    "weights": None if regime.weights is None else list(regime.weights),
                    "physics_p95_e2e_s": regime.physics_p95_s,
                    "barred": regime.barred,
                }
                for number, regime in self._regimes.items()
            },
        }

    def restore(self, kept: Kept, now_s: float) -> Sequence[TunerEvent]:
        """Go on from what `keep` gave. Nothing changes if it cannot be read."""
        read = Reader(kept)
        read.same("tuner", NAME)
        generation = read.whole("generation", 0, MAX_GENERATION)
        weights, frozen = read.weights("weights"), read.flag("frozen")
        child = read.weights("child") if read.has("child") else None
        number = read.whole("regime", *NUMBERS) if read.has("regime") else None
        refused = read.whole("refused", 0, MAX_GENERATION)
        regimes = _regimes(read.under("regimes"), self._box)
        clipped = self._box.clipped(weights)
        self._frozen, self._refused, self._regimes = frozen, refused, regimes
        self._load = LoadSteps(self._settings.regime, number)
        self._orders.follow(generation)
        self._move(clipped)
        self._anew(now_s)
        events: _Events = []
        if child is not None:
            self._tell(Happened.VOIDED, now_s, events, f"a restart ended the comparison with {_said(child)}")
        if clipped != weights:
            reason = f"{_said(weights)} were kept and are outside of the bounds now: {_said(clipped)}"
            self._tell(Happened.SET, now_s, events, reason)
        return events

    # One finished request

    def _take(self, sample: Sample, now_s: float, events: _Events) -> None:
        if known(sample.dispatched_s) is None or sample.dispatched_s < self._since_s:
            return
        ended_s = min(now_s, max(sample.finished_s, sample.dispatched_s))
        first = self._load.number is None
        if self._load.add(sample.dispatched_s):
            self._enter_regime(now_s, None if first else ended_s, events)
        if self._comparison is not None:
            self._compare(self._comparison, sample, now_s, events)
        else:
            self._look_after(sample, now_s, events)
        if (point := self._point(sample)) is None:
            return
        self._points.append(point)
        shift = None if sample.child else self._watch.add(sample.cell_id, self._surprise(point))
        if shift is not None:
            self._alarm(shift, now_s, ended_s, events)
        self._until_fit -= 1
        if self._until_fit <= 0 and self._comparison is None and not self._frozen:
            self._until_fit = self._settings.proposal.each
            self._propose(now_s, events)

    def _point(self, sample: Sample) -> Point | None:
        """None if the first token is unknown, or a time cannot be."""
        compare, ttft_s = self._settings.compare, sample.ttft_s
        believed = (sample.rtt_s, sample.queue_s, sample.prefill_s)
        if (
            ttft_s is None
            or not believable(ttft_s, compare)
            or not all(0.0 <= value <= compare.most_s for value in believed)
        ):
            return None
        return Point(ttft_s, *believed)

    def _surprise(self, point: Point) -> float:
        return log(point.ttft_s / (self._settings.ingest_s + point.rtt_s + point.queue_s + point.prefill_s))

    def _propose(self, now_s: float, events: _Events) -> None:
        fitted = fit(self._points, self._settings.fit)
        if fitted is None:
            return
        parent, regime = self.order.weights, self._regime()
        proposal = propose(fitted, parent, self._box, self._settings.proposal, homewards=regime.barred)
        if proposal is None:
            return
        share = self._settings.compare.share
        self._move(parent, child=proposal.weights)
        self._comparison = Comparison(
            driver=self.order.driver,
            generation=self.order.generation,
            leaves_physics=leaves_physics(proposal.weights, parent),
            settings=self._settings.compare,
            physics_p95_s=regime.physics_p95_s,
        )
        reason = f"{share:.0%} of the requests try {_said(proposal.weights)}: {proposal.reason}"
        self._tell(Happened.PROPOSED, now_s, events, reason, proposal.figures)

    def _compare(self, comparison: Comparison, sample: Sample, now_s: float, events: _Events) -> None:
        verdict = comparison.add(sample)
        if verdict is not None:
            self._end(verdict, now_s, events)
        elif comparison.starved:
            self._cool_down(refused=True)
            self._void(f"only {comparison.measured} requests had a first token to compare", now_s, events)

    def _end(self, verdict: Verdict, now_s: float, events: _Events) -> None:
        child = self.order.child or self.order.weights
        if verdict.accepted:
            self._regime().weights = child
            self._move(child)
            self._watch.restart()  # other weights send other requests to each cell
            self._cool_down(refused=False)
            self._tell(Happened.ACCEPTED, now_s, events, f"{_said(child)} are {verdict.reason}", verdict.figures)
            return
        self._regime().barred |= verdict.breach and leaves_physics(child, self.order.weights)
        back = self._physics if verdict.to_physics else self.order.weights
        if verdict.to_physics:
            self._regime().weights = back
        self._move(back)
        self._cool_down(refused=True)
        what = Happened.ROLLED_BACK if verdict.breach else Happened.REJECTED
        reason = f"{_said(child)} are given up, {_said(back)} hold for all: {verdict.reason}"
        self._tell(what, now_s, events, reason, verdict.figures)

    def _cool_down(self, *, refused: bool) -> None:
        """After refusals in a row it is longer each time: what was refused is not asked all day."""
        s = self._settings.proposal
        self._refused = self._refused + 1 if refused else 0
        self._until_fit = s.cool_down * min(s.patience, 1 << min(30, max(0, self._refused - 1)))

    def _look_after(self, sample: Sample, now_s: float, events: _Events) -> None:
        """Without a comparison: E2E under physics is the reference that other weights are held against."""
        e2e_s = sample.e2e_s
        if not self._orders.has(sample) or e2e_s is None or not believable(e2e_s, self._settings.compare):
            return
        if self.order.weights == self._physics:
            self._regime().under_physics(e2e_s, self._settings.regime)
        else:
            self._alone_s.append(e2e_s)
        self._until_refer -= 1
        if self._until_refer > 0:
            return
        self._until_refer = self._settings.regime.each
        if self.order.weights == self._physics:
            self._regime().refer(self._settings.regime)
        elif not self._frozen:
            self._creep(now_s, events)

    def _creep(self, now_s: float, events: _Events) -> None:
        compare = self._settings.compare
        told = slower_than_physics(self._alone_s, self._regime().physics_p95_s, compare, compare.look_z)
        if told is None or len(self._alone_s) < compare.window:
            return
        before = self.order.weights
        self._regime().weights, self._regime().barred = self._physics, True
        self._move(self._physics)
        self._cool_down(refused=True)
        reason = f"{_said(before)} give way to {_said(self._physics)}: {told[0]}"
        self._tell(Happened.ROLLED_BACK, now_s, events, reason, told[1])

    # The world changes

    def _enter_regime(self, now_s: float, since_s: float | None, events: _Events) -> None:
        """`since_s` None: the first reading; what was learned before it is of this load."""
        rate = self._load.rate or 0.0
        if since_s is None:
            self._regimes[self._load.number] = self._regimes.pop(None, Regime())
        else:
            self._void(f"the load changed to {rate:.3g} requests/s", now_s, events)
            self._anew(since_s)
            self._refused = 0
        regime = self._regime()
        now = self.order.weights
        reason = f"{rate:.3g} requests/s: stays at {_said(now)}"
        if not self._frozen and regime.weights is not None and regime.weights != now:
            self._void("other weights were accepted at this load", now_s, events)
            self._move(regime.weights)
            reason = (
                f"{rate:.3g} requests/s: {_said(regime.weights)}, as accepted at this load before, for {_said(now)}"
            )
        self._tell(Happened.REGIME, now_s, events, reason, (("requests_per_s", rate),))

    def _alarm(self, shift: Shift, now_s: float, ended_s: float, events: _Events) -> None:
        whose = "the fleet" if shift.cell_id is None else shift.cell_id
        what = f"first tokens of {whose} take x{shift.ratio:.2f} of what they took against expectation"
        self._void(what, now_s, events)
        self._anew(ended_s)
        for regime in self._regimes.values():
            regime.barred = False
            regime.recent_s.clear()  # the reference stands until there are enough of the new times
        reason = (
            f"{what} (over {shift.after} requests): learning starts anew, weights stay at {_said(self.order.weights)}"
        )
        self._tell(Happened.REGIME, now_s, events, reason, (("ratio", shift.ratio), ("requests", float(shift.after))))

    def _void(self, reason: str, now_s: float, events: _Events) -> None:
        child = self.order.child
        if child is not None:
            self._move(self.order.weights)
            self._tell(Happened.VOIDED, now_s, events, f"the comparison with {_said(child)} ends: {reason}")

    def _anew(self, since_s: float) -> None:
        """Only what is decided from now on is learned from."""
        self._points.clear()
        self._watch.restart()
        self._alone_s.clear()
        self._until_fit = self._settings.fit.least
        self._since_s = since_s

    # Small things

    def _regime(self) -> Regime:
        return self._regimes.setdefault(self._load.number, Regime())

    def _move(self, weights: Weights, *, child: Weights | None = None) -> None:
        """Another order: what was decided under the one before counts for nothing that begins now."""
        if weights != self.order.weights:
            self._alone_s.clear()
        if child is None:
            self._comparison = None
        self._orders.give(weights, child=child, child_share=self._settings.compare.share)

    def _tell(self, what: Happened, now_s: float, events: _Events, reason: str, figures: _Figures = ()) -> None:
        order = self.order
        events.append(TunerEvent(now_s, what, order.generation, order.weights, order.child, reason, figures))


def _regimes(read: Reader, box: Box) -> dict[int | None, Regime]:
    found: dict[int | None, Regime] = {}
    for name in read.names():
        number = None if name == "unknown" else _number(name)
        one = read.under(name)
        found[number] = Regime(
            weights=box.clipped(one.weights("weights")) if one.has("weights") else None,
            physics_p95_s=one.positive("physics_p95_e2e_s") if one.has("physics_p95_e2e_s") else None,
            barred=one.flag("barred"),
        )
    return found


def _number(name: str) -> int:
    low, high = NUMBERS
    if not name.removeprefix("-").isascii() or not name.removeprefix("-").isdigit() or not low <= int(name) <= high:
        raise ValueError(
            f"kept.regimes: a load is named by a number from {low} to {high}, or unknown; not {name[:20]!r}"
        )
    return int(name)


def _said(weights: Weights) -> str:
    return f"rtt {weights.rtt:.3g}, queue {weights.queue:.3g}"
