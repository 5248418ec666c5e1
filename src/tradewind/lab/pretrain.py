"""Weights for the tuner from the simulator: searched on some seeds, held against 1 and 1 on fresh ones, proposed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tradewind.core.tuner.box import Box
from tradewind.lab.experiments.what_if.answer import CHANGE
from tradewind.lab.experiments.what_if.experiment import experiment_of
from tradewind.lab.experiments.what_if.fleet import fleet_of
from tradewind.lab.experiments.what_if.load import LONGEST_S, span_s, traced
from tradewind.lab.experiments.what_if.run import grid_of
from tradewind.lab.experiments.what_if.setup import Setup, SetupError
from tradewind.lab.harness.experiment import Experiment, Options
from tradewind.lab.harness.row import Row
from tradewind.lab.harness.runner import Report
from tradewind.model.tuning import PHYSICS, Weights

AXIS = (0.25, 0.5, 1.0, 2.0)  # of either weight, where the box allows it
TTFT, E2E = "ttft_p95", "e2e_p95"
_TUNED = ("cost", "gorgo")

Simulate = Callable[[Experiment, Options], Report]


class Change(NamedTuple):
    """Against 1 and 1 on the same seeds, in percent; negative is shorter. None: it could not be had."""

    value: float | None
    low: float | None  # 95 % interval; None below two seeds
    high: float | None


class Tried(NamedTuple):
    """One setting, and what it does to the tails."""

    weights: Weights
    ttft: Change
    e2e: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrained:
    """What the simulator says. `proposed` None: keep 1 and 1."""

    proposed: Weights | None
    reason: str
    held: Tried | None  # the best of the search on fresh seeds; None: nothing was better on the search's
    searched: tuple[Tried, ...]  # the shortest TTFT first
    search_seeds: range
    seeds: range
    assumed: str


def policy_of(setup: Setup) -> str:
    """The base name of the policy whose weights are moved. Raises SetupError, ConfigError."""
    written = fleet_of(grid_of(setup), setup).fleet.policy
    base = written.partition(":")[0].partition(";")[0]
    if base not in _TUNED:
        raise SetupError(
            f"{setup.grid}: its gateways decide by {written}, which has no weights to find; "
            "write --policy cost, or gorgo"
        )
    return base


def written_as(base: str, weights: Weights) -> str:
    """A policy with these weights."""
    if base == "gorgo":
        return f"gorgo:{weights.rtt:g}/{weights.queue:g}"
    return f"cost;rtt_weight={weights.rtt:g};queue_weight={weights.queue:g}"


def candidates(box: Box) -> list[Weights]:
    """All but 1 and 1."""
    found = [Weights(rtt, queue) for rtt in AXIS for queue in AXIS]
    return [weights for weights in found if weights != PHYSICS and not box.problem(weights)]


def experiment(setup: Setup, base: str, tried: Sequence[Weights]) -> Experiment:
    """These settings against 1 and 1, each seed with its own window of the load. Raises SetupError before any run."""
    arms = [f"policy:{written_as(base, weights)}" for weights in tried]
    return experiment_of(setup, arms, command="tradewind tuner pretrain")


def pretrain(setup: Setup, *, base: str, box: Box, search_seeds: range, seeds: range, simulate: Simulate) -> Pretrained:
    """`setup.policy` must be that of 1 and 1. The seeds of the search say nothing of what it found: others judge it."""
    assert setup.policy == written_as(base, PHYSICS), "what others are held against"
    assert not set(search_seeds) & set(seeds), "what was found by chance must not be confirmed by the same chance"
    tried = candidates(box)
    made = experiment(setup, base, tried)
    assumed = f"{made.notes}{_overlap(setup, len(search_seeds) + len(seeds))}"
    searched = _sorted(_tried(_rows(simulate, made, search_seeds), base, tried))
    found = Pretrained(
        proposed=None,
        reason=f"none of {len(tried)} settings had a shorter p95 TTFT in the search",
        held=None,
        searched=tuple(searched),
        search_seeds=search_seeds,
        seeds=seeds,
        assumed=assumed,
    )
    best = next((one for one in searched if (one.ttft.value or 0.0) < 0.0 and not _slower(one.e2e)), None)
    if best is None:
        return found
    made = experiment(setup, base, [best.weights])
    (held,) = _tried(_rows(simulate, made, seeds), base, [best.weights])
    reason, good = _judged(held)
    return Pretrained(
        proposed=best.weights if good else None,
        reason=reason,
        held=held,
        searched=found.searched,
        search_seeds=search_seeds,
        seeds=seeds,
        assumed=assumed,
    )


def _overlap(setup: Setup, seeds: int) -> str:
    """Seeds that see the same requests know less of tomorrow than their interval says."""
    if not setup.trace:
        return ""
    span, for_s = span_s(traced(setup)), setup.for_s or LONGEST_S
    if span >= seeds * for_s:
        return ""
    return (
        f" The trace lasts {span:.0f} s, and {seeds} windows of {min(span, for_s):.0f} s overlap in it: intervals are "
        "of this load, and another day may differ by more."
    )


def _judged(held: Tried) -> tuple[str, bool]:
    ttft = held.ttft
    if ttft.value is None or ttft.low is None or ttft.high is None:
        return "the change has no interval", False
    if ttft.high >= 0.0:
        what = "the interval of p95 TTFT holds 0" if ttft.low <= 0.0 else "p95 TTFT is longer"
        return f"{what} on fresh seeds", False
    if _slower(held.e2e):
        return "p95 TTFT is shorter on fresh seeds, and p95 E2E longer", False
    return "p95 TTFT is shorter on fresh seeds, and p95 E2E not shown to be longer", True


def _slower(change: Change) -> bool:
    return change.value is None or (change.low is not None and change.low > 0.0)


def _rows(simulate: Simulate, made: Experiment, seeds: range) -> Sequence[Row]:
    report = simulate(made, Options(seeds=len(seeds), first_seed=seeds.start))
    if report.failures:
        raise SetupError(
            f"{len(report.failures)} runs failed, so there is nothing to propose: {report.failures[0].error}"
        )
    return report.rows


def _tried(rows: Sequence[Row], base: str, tried: Sequence[Weights]) -> list[Tried]:
    found = {(row.profile, row.metric): row for row in rows}

    def change(weights: Weights, metric: str) -> Change:
        row = found.get((f"policy:{written_as(base, weights)}", metric + CHANGE))
        return Change(None, None, None) if row is None else Change(row.value, row.lo, row.hi)

    return [Tried(weights, change(weights, TTFT), change(weights, E2E)) for weights in tried]


def _sorted(tried: Sequence[Tried]) -> list[Tried]:
    return sorted(tried, key=lambda one: float("inf") if one.ttft.value is None else one.ttft.value)
