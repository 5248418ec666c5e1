"""Issue 6: the tuner. What it must not do where there is nothing to find, and what it must do where there is."""

from collections.abc import Sequence

from tradewind.lab.checks import Check
from tradewind.lab.grid import LiveGrid
from tradewind.lab.promises.bench import Bench, Item
from tradewind.lab.promises.laboratory import claims_of
from tradewind.lab.scenarios import tuner_live


def _live(bench: Bench) -> list[Check]:
    """Ten minutes of the emulated cross-region grid with the calibrator, while the grid changes and control dies."""
    options = tuner_live.TunerOptions()

    async def script(grid: LiveGrid) -> list[Check]:
        bench.say(f"calibrator, three regions: {options.for_s:g} s")
        return await tuner_live.ten_minutes(grid, options, state_dir=bench.state_dir)

    return bench.live(tuner_live.far_tuned(bench.state_dir, seed=options.seed, for_s=options.for_s), script)


ITEMS: Sequence[Item] = (
    Item(item="6/1", title="tuners where weights have no effect", run=claims_of("tuner-aa")),
    Item(item="6/2", title="tuners from priors that are 10x wrong", run=claims_of("tuner-prior")),
    Item(item="6/3", title="the trap of a queue weight of 0", run=claims_of("tuner-trap")),
    Item(item="6/4", title="tuners while the world changes", run=claims_of("tuner-change")),
    Item(item="6/5", title="learned rates: a wrong table, a halved cell", run=claims_of("rates")),
    Item(item="6/6", title="weights tuned on one window, judged on two", run=claims_of("tuner-windows")),
    Item(item="6/7", title="the calibrator live, while the grid changes and control dies", run=_live),
)
