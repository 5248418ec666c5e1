"""Is a child better for sure? Parent and child side by side, with three looks and the guards of every comparison."""

from dataclasses import dataclass, field
from math import expm1, log, log1p

from tradewind.core.tuner.adjust import Difference, Measured, adjusted_difference
from tradewind.core.tuner.compare import Comparison, Verdict, believable
from tradewind.core.tuner.settings import CompareSettings
from tradewind.model.tuning import Sample

_UNBOUNDED = 1 << 53  # requests: the comparison beside is there for its guards, the verdict is made here


@dataclass(frozen=True, slots=True, kw_only=True)
class LookSettings:
    """Constants of the tuner study, section 5, where nothing else is said."""

    share: float = 0.5  # of the child
    looks: tuple[int, ...] = (200, 400, 800)  # requests with a first token, both arms
    grace: int = 60  # that may end after them: slow ones that were decided before (own choice)
    z: float = 2.4
    give_up_z: float = 0.4  # of the harm, at any look: the rest of the requests is better spent (own choice)
    guards: CompareSettings = field(default_factory=lambda: CompareSettings(window=_UNBOUNDED))


class Looks:
    """One comparison, by mean log TTFT with what was known before the choice taken out."""

    def __init__(self, *, driver: str, generation: int, settings: LookSettings) -> None:
        self._settings = settings
        self._guards = Comparison(
            driver=driver,
            generation=generation,
            settings=settings.guards,
            physics_p95_s=None,
        )
        self._owner = (driver, generation)
        self._seen: list[tuple[float, bool, Measured]] = []  # when decided, by the child, what became of it
        self._look = 0

    @property
    def starved(self) -> bool:
        """Whether too few of the requests say when their first token came."""
        return self._guards.starved

    def add(self, sample: Sample) -> Verdict | None:
        """A request ended. None = go on."""
        if (sample.driver, sample.generation) != self._owner:
            return None
        if (breach := self._guards.add(sample)) is not None:
            return breach
        s, ttft_s = self._settings, sample.ttft_s
        if ttft_s is None or not believable(ttft_s, s.guards):
            return None
        measured = Measured(log(ttft_s), log1p(sample.least_uncached_tokens), log1p(sample.prompt_tokens))
        self._seen.append((sample.dispatched_s, sample.child, measured))
        if len(self._seen) < s.looks[self._look] + s.grace:
            return None
        self._look += 1
        return self._looked(s.looks[self._look - 1])

    def _looked(self, count: int) -> Verdict | None:
        """The first ones by decision: by their end, the slow ones would be missing."""
        s = self._settings
        first = sorted(self._seen, key=lambda seen: seen[0])[:count]
        parent = [measured for _, child, measured in first if not child]
        child = [measured for _, child, measured in first if child]
        if min(len(parent), len(child)) < 2:
            return Verdict(False, False, f"{len(child)} requests by the child, {len(parent)} by the parent", ())
        found = adjusted_difference(parent, child)
        last = self._look == len(s.looks)
        if -s.z < found.z < s.give_up_z and not last:
            return None
        breach = self._guards.breach(s.guards.z)
        return breach or self._verdict(found, count, better=found.z <= -s.z)

    def _verdict(self, found: Difference, count: int, *, better: bool) -> Verdict:
        reason = (
            f"{'better' if better else 'not better for sure'}: TTFT {100 * expm1(found.change):+.1f} % against the "
            f"parent's in the mean of logarithms, z {found.z:+.2f} over {count} requests"
        )
        figures = (("requests", float(count)), ("log_ttft_change", found.change), ("log_ttft_z", found.z))
        return Verdict(better, False, reason, figures)
