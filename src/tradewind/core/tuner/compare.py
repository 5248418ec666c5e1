"""Parent and child side by side: is the child no worse in first tokens, and does it break a guard?"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log, sqrt
from typing import NamedTuple

from tradewind.core.tuner.settings import CompareSettings
from tradewind.model.tuning import Sample

_LEAST = 20  # values of an arm, for a mean that is compared


class Verdict(NamedTuple):
    """What a comparison came to."""

    accepted: bool
    breach: bool  # a guard decided, not the first tokens
    reason: str
    figures: tuple[tuple[str, float], ...]
    to_physics: bool = False  # both arms are too slow: the parent is no place to go back to


@dataclass(slots=True)
class _Arm:
    ttfts_s: list[float] = field(default_factory=list)
    e2es_s: list[float] = field(default_factory=list)
    itls_s: list[float] = field(default_factory=list)
    cells: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    ended: int = 0

    def top(self) -> tuple[str, float]:
        """The cell with most of the requests, and its share."""
        if not self.cells:
            return "", 0.0
        cell_id = min(self.cells, key=lambda name: (-self.cells[name], name))
        return cell_id, self.cells[cell_id] / self.cells.total()


class Comparison:
    """Of one generation of one driver; nothing else counts, whenever it ends."""

    def __init__(
        self,
        *,
        driver: str,
        generation: int,
        leaves_physics: bool = False,
        settings: CompareSettings,
        physics_p95_s: float | None,
    ) -> None:
        self._driver = driver
        self._generation = generation
        self._leaves_physics = leaves_physics
        self._settings = settings
        self._physics_p95_s = physics_p95_s
        self._parent, self._child = _Arm(), _Arm()
        self._ended = 0
        self._late = 0  # ended after the window was full
        self._cut_s: float | None = None  # decisions after it are not in the window

    @property
    def measured(self) -> int:
        """Requests of both arms with a first token."""
        return len(self._parent.ttfts_s) + len(self._child.ttfts_s)

    @property
    def starved(self) -> bool:
        """Whether too few of the requests say when their first token came."""
        return self._cut_s is None and self._ended >= self._settings.starved

    def add(self, sample: Sample) -> Verdict | None:
        """A request ended. A breach is told at once, the rest when the window is full and slow ones had time."""
        if sample.driver != self._driver or sample.generation != self._generation:
            return None
        s = self._settings
        self._ended += 1
        if self._cut_s is not None:
            self._late += 1
        if self._cut_s is None or sample.dispatched_s <= self._cut_s:
            self._count(self._child if sample.child else self._parent, sample)
        if self._cut_s is None and self.measured >= s.window:
            self._cut_s = sample.dispatched_s
        if self._cut_s is not None and self._late >= s.grace:
            return self._verdict()
        if self._ended >= s.look_from and self._ended % s.look_each == 0:
            return self.breach(s.look_z)
        return None

    def _count(self, arm: _Arm, sample: Sample) -> None:
        arm.ended += 1
        if sample.failed:
            arm.failed += 1
            return
        arm.cells[sample.cell_id] += 1
        for value, values in (
            (sample.ttft_s, arm.ttfts_s),
            (sample.e2e_s, arm.e2es_s),
            (sample.itl_s, arm.itls_s),
        ):
            if value is not None and believable(value, self._settings):
                values.append(value)

    def _verdict(self) -> Verdict:
        s = self._settings
        breach = self.breach(s.z)
        if breach is not None:
            return breach
        parent, child = self._parent.ttfts_s, self._child.ttfts_s
        if min(len(parent), len(child)) < _LEAST:
            return Verdict(
                False, False, f"{len(child)} requests by the child, {len(parent)} by the parent: too few", ()
            )
        cut_s = quantile(parent + child, s.winsor)
        logs = _difference([log(value) for value in parent], [log(value) for value in child])
        means = _difference([min(value, cut_s) for value in parent], [min(value, cut_s) for value in child])
        figures = (
            ("requests", float(self.measured)),
            ("log_ttft_change", logs.change),
            ("log_ttft_z", logs.z),
            ("mean_ttft_parent_s", means.parent),
            ("mean_ttft_child_s", means.child),
            ("mean_ttft_z", means.z),
        )
        told = (
            f"mean TTFT {1e3 * means.child:.0f} ms by the child, {1e3 * means.parent:.0f} ms by the parent "
            f"(z of the harm: {means.z:+.2f} by the mean, {logs.z:+.2f} by the logarithm; "
            f"{len(child)} and {len(parent)} requests)"
        )
        if max(means.z, logs.z) > s.z:
            return Verdict(False, False, f"worse: {told}", figures)
        if self._leaves_physics and (doubt := self._doubt(max(means.z, logs.z))):
            return Verdict(
                False, False, f"what leaves the physical default must look no worse, and {doubt}: {told}", figures
            )
        return Verdict(True, False, f"no worse: {told}", figures)

    def _doubt(self, ttft_z: float) -> str:
        """In what the child looks worse, surely or not: the benefit of the doubt is the default's. "" = in nothing."""
        parent, child = self._parent, self._child
        for name, before, after in (("E2E", parent.e2es_s, child.e2es_s), ("ITL", parent.itls_s, child.itls_s)):
            if min(len(before), len(after)) >= _LEAST and (means := _difference(before, after)).z > 0.0:
                return f"its mean {name} is x{means.child / means.parent:.2f}"
        return "its first tokens come later" if ttft_z > 0.0 else ""

    def breach(self, z: float) -> Verdict | None:
        """Of the first guard that the child breaks, with this certainty; None = of none, so far."""
        parent, child = self._parent, self._child
        return (
            self._mean_guard("E2E", "e2e", parent.e2es_s, child.e2es_s, z)
            or self._mean_guard("ITL", "itl", parent.itls_s, child.itls_s, z)
            or self._top_guard(z)
            or self._failure_guard(z)
            or self._physics_guard(z)
        )

    def _mean_guard(
        self, name: str, key: str, parent: Sequence[float], child: Sequence[float], z: float
    ) -> Verdict | None:
        if min(len(parent), len(child)) < _LEAST:
            return None
        means = _difference(parent, child)
        if means.child <= self._settings.guard_ratio * means.parent or means.z <= z:
            return None
        reason = (
            f"mean {name} {1e3 * means.child:,.0f} ms by the child, {1e3 * means.parent:,.0f} ms by the parent: "
            f"x{means.child / means.parent:.2f}, z {means.z:.2f}, {len(child)} and {len(parent)} requests"
        )
        return Verdict(
            False,
            True,
            reason,
            ((f"mean_{key}_parent_s", means.parent), (f"mean_{key}_child_s", means.child), (f"mean_{key}_z", means.z)),
        )

    def _top_guard(self, z: float) -> Verdict | None:
        """More of the child's requests on one cell: it wins first tokens by crowding, which both arms pay for."""
        s, (cell_id, share), (_, before) = self._settings, self._child.top(), self._parent.top()
        count, other = self._child.cells.total(), self._parent.cells.total()
        if min(count, other) < _LEAST or share <= max(s.top_share, before + s.top_more):
            return None
        if _proportions_z(before, other, share, count) <= z:
            return None
        reason = (
            f"{share:.0%} of the child's requests went to {cell_id}, {before:.0%} of the parent's to its busiest cell"
        )
        return Verdict(False, True, reason, (("top_share_parent", before), ("top_share_child", share)))

    def _failure_guard(self, z: float) -> Verdict | None:
        child, parent = self._child, self._parent
        if child.failed < self._settings.least_failures or not parent.ended:
            return None
        rate, before = child.failed / child.ended, parent.failed / parent.ended
        if _proportions_z(before, parent.ended, rate, child.ended) <= z:
            return None
        reason = (
            f"{child.failed} of {child.ended} requests failed by the child, "
            f"{parent.failed} of {parent.ended} by the parent"
        )
        return Verdict(False, True, reason, (("failed_parent", before), ("failed_child", rate)))

    def _physics_guard(self, z: float) -> Verdict | None:
        e2es_s = self._parent.e2es_s + self._child.e2es_s
        told = slower_than_physics(e2es_s, self._physics_p95_s, self._settings, z)
        return None if told is None else Verdict(False, True, *told, to_physics=True)


def slower_than_physics(
    e2es_s: Sequence[float], physics_p95_s: float | None, settings: CompareSettings, z: float
) -> tuple[str, tuple[tuple[str, float], ...]] | None:
    """Reason and figures, if p95 is surely over that of physics and a tenth; None = it is not, or nobody knows."""
    if physics_p95_s is None or len(e2es_s) < settings.look_from:
        return None
    limit_s = settings.physics_ratio * physics_p95_s
    count = len(e2es_s)
    beyond = sum(value > limit_s for value in e2es_s)
    if beyond <= 0.05 * count + z * sqrt(0.05 * 0.95 * count):
        return None
    p95_s = quantile(e2es_s, 0.95)
    reason = (
        f"p95 of E2E {p95_s:.2f} s over {count} requests, {physics_p95_s:.2f} s under physics at this load: "
        f"{beyond / count:.1%} are beyond {settings.physics_ratio:g} times that, 5 % would be"
    )
    return reason, (("p95_e2e_s", p95_s), ("physics_p95_e2e_s", physics_p95_s))


def believable(value_s: float, settings: CompareSettings) -> bool:
    """Whether a request can have taken so long."""
    return settings.least_s <= value_s <= settings.most_s


def quantile(values: Sequence[float], at: float) -> float:
    """The value at this rank; of nothing it is a fault of ours."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(at * len(ordered)))]


class _Difference(NamedTuple):
    parent: float
    child: float
    z: float  # > 0 if the child's is higher: worse

    @property
    def change(self) -> float:
        return self.child - self.parent


def _difference(parent: Sequence[float], child: Sequence[float]) -> _Difference:
    first, second = sum(parent) / len(parent), sum(child) / len(child)
    error = sqrt(_spread(parent, first) / len(parent) + _spread(child, second) / len(child))
    return _Difference(first, second, (second - first) / error if error > 0.0 else 0.0)


def _spread(values: Sequence[float], mean: float) -> float:
    return sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)


def _proportions_z(before: float, parent: int, after: float, child: int) -> float:
    pooled = (before * parent + after * child) / (parent + child)
    error = sqrt(pooled * (1.0 - pooled) * (1.0 / parent + 1.0 / child))
    return (after - before) / error if error > 0.0 else 0.0
