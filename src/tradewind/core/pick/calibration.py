"""Slow: how far the table of hardware classes is from this fleet, per class, from calm requests only.

S (prefill) and D (decode) are ratios of discounted sums, observed over predicted. Each cell has its own; a class goes
by the median of its cells, so that one slow cell does not make its class slow. The table itself is never changed, and
near 1 no correction is made.
"""

from collections.abc import Sequence
from math import exp, log
from typing import NamedTuple

from tradewind.core.numbers import median
from tradewind.core.pick.rates import Rates
from tradewind.core.pick.settings import LearningSettings
from tradewind.core.pick.slowness import Slowness

POOL_EVERY = 8  # samples of a class between two looks at its cells
MIN_SAMPLES = 8  # of a cell, before it speaks for its class
SHARE_S = 10.0  # over which the share of prefill is taken
MAX_SHARE = 0.8
PRIOR_TOKENS = 512
ALL_WRONG = 1.0  # |ln S| of prefills above this: the whole row of the table must be wrong, decodes too


class Ratio:
    """Observed over predicted, discounted, starting from a prior of 1."""

    __slots__ = ("_prior", "observed", "predicted", "samples")

    def __init__(self, prior: float) -> None:
        self._prior = self.observed = self.predicted = prior
        self.samples = 0

    def add(self, observed: float, predicted: float, discount: float) -> None:
        """One sample."""
        self.observed = discount * self.observed + observed
        self.predicted = discount * self.predicted + predicted
        self.samples += 1

    def restart(self, value: float) -> None:
        """This is the prior now."""
        self.predicted = self._prior
        self.observed = value * self._prior

    @property
    def value(self) -> float:
        """1 = as predicted."""
        return self.observed / self.predicted


class CellSamples:
    """What one cell says of its class."""

    __slots__ = ("_share_at_s", "_share_s", "decode", "prefill", "slowness")

    def __init__(self, rates: Rates, slowness: Slowness, prior_samples: float) -> None:
        self.slowness = slowness
        step_s = rates.decode_s(1, 0.0)
        self.prefill = Ratio(prior_samples * rates.prefill_s(PRIOR_TOKENS, PRIOR_TOKENS, rates.a0_s))
        self.decode = Ratio(prior_samples * step_s)
        self._share_s = 0.0
        self._share_at_s = 0.0

    def on_dispatch(self, prefill_s: float, now_s: float) -> None:
        """So much prefill was sent."""
        self._share_s = self._decayed_s(now_s) + prefill_s
        self._share_at_s = now_s

    def on_correction(self, moved: float, settings: LearningSettings, correction: float) -> None:
        """The class is thought exp(moved) as slow in prefill as before."""
        self.slowness.explain(moved)
        if abs(moved) > settings.restart:
            self._share_s *= exp(moved)
            self.prefill.restart(correction)

    def prefill_share(self, now_s: float) -> float:
        """Of the engine's time, recently."""
        return min(MAX_SHARE, self._decayed_s(now_s) / SHARE_S)

    def _decayed_s(self, now_s: float) -> float:
        return self._share_s * exp(min(0.0, self._share_at_s - now_s) / SHARE_S)


class ClassRatio(NamedTuple):
    """For metrics and alerts: what was found for one hardware class, before the freeze."""

    hardware: str
    prefill: float
    decode: float
    samples: int
    alert: bool


class Calibration:
    """All classes of one picker."""

    def __init__(self, settings: LearningSettings) -> None:
        self._settings = settings
        self._cells: dict[int, dict[str, CellSamples]] = {}  # class number -> cells
        self._rates: dict[int, Rates] = {}
        self._samples: dict[int, int] = {}
        self._found: dict[int, tuple[float, float]] = {}

    def add_cell(self, cell_id: str, rates: Rates, slowness: Slowness) -> CellSamples:
        """A cell joins its class."""
        samples = CellSamples(rates, slowness, self._settings.prior_samples)
        self._rates[rates.number] = rates
        self._cells.setdefault(rates.number, {})[cell_id] = samples
        return samples

    def remove_cell(self, cell_id: str, rates: Rates) -> None:
        """It left; what the class has learned stays."""
        self._cells.get(rates.number, {}).pop(cell_id, None)

    def on_prefill(self, rates: Rates, samples: CellSamples, *, observed_s: float, predicted_s: float) -> None:
        """A calm first token; `predicted_s` as the table says, uncorrected."""
        samples.prefill.add(max(0.0, observed_s), predicted_s, self._settings.discount)
        self._pool(rates)

    def on_decode(self, rates: Rates, samples: CellSamples, *, observed_s: float, predicted_s: float) -> None:
        """The mean inter-token time of a calm request, without its share of prefill."""
        samples.decode.add(observed_s, predicted_s, self._settings.discount)
        self._pool(rates)

    def report(self) -> tuple[ClassRatio, ...]:
        """Per class, in order of first sight."""
        return tuple(
            ClassRatio(
                rates.hardware,
                prefill,
                decode,
                self._samples[number],
                max(abs(log(prefill)), abs(log(decode))) > self._settings.alert,
            )
            for number, rates in self._rates.items()
            if number in self._found
            for prefill, decode in (self._found[number],)
        )

    def _pool(self, rates: Rates) -> None:
        count = self._samples.get(rates.number, 0) + 1
        self._samples[rates.number] = count
        if count % POOL_EVERY:
            return
        cells = tuple(self._cells.get(rates.number, {}).values())
        prefill = median(cell.prefill.value for cell in cells if cell.prefill.samples >= MIN_SAMPLES)
        decode = median(cell.decode.value for cell in cells if cell.decode.samples >= MIN_SAMPLES)
        if decode is None and prefill and abs(log(prefill)) > ALL_WRONG:
            decode = prefill  # until its own samples tell
            for cell in cells:
                cell.decode.restart(decode)
        self._found[rates.number] = (prefill or 1.0, decode or 1.0)
        if self._settings.calibrate:
            self._correct(rates, cells, self._held(prefill), self._held(decode))

    def _correct(self, rates: Rates, cells: Sequence[CellSamples], prefill: float, decode: float) -> None:
        """Puts them in force. Samples under a correction far from it came from queues that nobody saw as such."""
        s = self._settings
        moved = log(prefill / rates.prefill_factor)
        if moved:
            rates.prefill_factor = prefill
            for cell in cells:
                cell.on_correction(moved, s, prefill)
        if abs(log(decode / rates.decode_factor)) > s.restart:
            for cell in cells:
                cell.decode.restart(decode)
        rates.set_decode_factor(decode)

    def _held(self, found: float | None) -> float:
        return found if found and abs(log(found)) >= self._settings.freeze else 1.0
