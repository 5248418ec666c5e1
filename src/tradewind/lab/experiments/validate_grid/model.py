"""The simulated half, and the figures of both."""

from collections.abc import Sequence

from tradewind.lab.experiments.validate_grid.assigned import Assigned
from tradewind.lab.experiments.validate_grid.course import scenario_of
from tradewind.lab.experiments.validate_grid.sent import LiveRun, traced
from tradewind.lab.simulated.policies import maker
from tradewind.measure.statistics import percentile
from tradewind.sim.grid import SimGrid
from tradewind.sim.policy import MakePolicy

WARM_UP_RATIO = 0.1  # of the load's time: requests sent in it are not counted
FIGURES = tuple((name, label, ratio) for name in ("TTFT", "E2E") for label, ratio in (("p50", 0.5), ("p95", 0.95)))


def simulated(run: LiveRun, *, seed: int) -> dict[str, float]:
    """The run's requests in virtual time, under its policy."""
    return _figures_of(run, maker(run.policy), seed=seed)


def assigned(run: LiveRun) -> dict[str, float]:
    """The same with every decision as it was live."""
    return _figures_of(run, lambda _scenario: Assigned([one.cell for one in run.sent]), seed=run.seed)


def _figures_of(run: LiveRun, make: MakePolicy, *, seed: int) -> dict[str, float]:
    records = SimGrid(scenario_of(traced(run.sent), for_s=run.for_s), make, seed=seed).run().records
    counted = [record for record in records if record.intended_s >= WARM_UP_RATIO * run.for_s]
    ttft = [record.ttft_s for record in counted if record.ttft_s is not None]
    e2e = [record.e2e_s for record in counted if record.e2e_s is not None]
    cached = sum(record.usage_cached_tokens or 0 for record in counted)
    return figures(ttft, e2e) | shares([record.cell or "" for record in counted], cached, _prompt(run))


def measured(run: LiveRun) -> dict[str, float]:
    """The same figures as the live client saw them."""
    counted = [one for one in run.sent if one.sent_ms >= 1e3 * WARM_UP_RATIO * run.for_s]
    found = figures([one.ttft_s for one in counted], [one.e2e_s for one in counted])
    return found | shares([one.cell for one in counted], sum(one.cached_tokens for one in counted), _prompt(run))


def figures(ttft_s: Sequence[float], e2e_s: Sequence[float]) -> dict[str, float]:
    """Seconds. Percentiles over the requests that were served."""
    values = {"TTFT": ttft_s, "E2E": e2e_s}
    found = {f"{name} {label}": percentile(values[name], ratio) for name, label, ratio in FIGURES}
    return {name: value for name, value in found.items() if value is not None}


def shares(cells: Sequence[str], cached_tokens: int, prompt_tokens: int) -> dict[str, float]:
    """Where requests went, and what of their prompts was cached."""
    found = {f"share of {cell}": cells.count(cell) / len(cells) for cell in sorted(set(cells)) if cell}
    return found | {"hit rate": cached_tokens / max(1, prompt_tokens)}


def _prompt(run: LiveRun) -> int:
    return sum(one.prompt_tokens for one in run.sent if one.sent_ms >= 1e3 * WARM_UP_RATIO * run.for_s)
