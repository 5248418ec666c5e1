"""What goes wrong in the demo, and when; every time is a share of the run's length."""

from collections.abc import Sequence

from tradewind.lab.faults import (
    PlannedFault,
    Seen,
    by_event,
    earliest,
    emulator_fault,
    flagged,
    limit_learned,
    out_of_pool,
    share_fell,
)
from tradewind.lab.grid import LiveGrid
from tradewind.lab.observe import Observer

HOT, SMALL, KILLED, DARK_SITE = "east-1", "west-1", "south-1", "west"
SMALL_TOKENS = 1_024
KILL_BEGINS, KILL_ENDS = 0.45, 0.62  # shares of the run's length
LOOK_S = 0.5  # how coarsely the demo itself looks, on a machine that it keeps busy; `make verify` looks closely


def demo_faults(duration_s: float, *, dark_cells: Sequence[str]) -> list[PlannedFault]:
    """The five faults of the demo, spread over `duration_s`. `dark_cells`: the cells of DARK_SITE."""

    def span(begin: float, end: float) -> tuple[float, float]:
        return begin * duration_s, end * duration_s

    hot, small = span(0.13, 1.0), span(0.25, 0.75)
    kill, dark, control = span(KILL_BEGINS, KILL_ENDS), span(0.6, 0.8), span(0.72, 0.84)
    return [
        emulator_fault(
            "thermal",
            name="cell throttles (cooling failure)",
            cell=HOT,
            params={"heat_c": 60.0, "floor": 0.25},
            at_s=hot[0],
            until_s=hot[1],
            seen=earliest(by_event(HOT, "alert."), share_fell(HOT, to_ratio=0.8)),
            within_s=15.0,
            scored=True,
        ),
        emulator_fault(
            "max_model_len",
            name="max_model_len falls to 1,024 (not advertised)",
            cell=SMALL,
            params={"tokens": SMALL_TOKENS, "advertise": False},
            at_s=small[0],
            until_s=small[1],
            seen=earliest(limit_learned(SMALL), by_event(SMALL, "verdict."), out_of_pool(SMALL)),
            within_s=small[1] - small[0],  # how soon long prompts reach it is a matter of chance
            scored=True,
        ),
        emulator_fault(
            "kill",
            name="engine killed (SIGKILL)",
            cell=KILLED,
            at_s=kill[0],
            until_s=kill[1],
            seen=earliest(by_event(KILLED, "cell.faulted", "cell.ejected"), out_of_pool(KILLED)),
            within_s=0.5 + LOOK_S,
        ),
        emulator_fault(
            "exporter_dead",
            name="GPU exporter of a site dies",
            site=DARK_SITE,
            at_s=dark[0],
            until_s=dark[1],
            seen=flagged(dark_cells, "dcgm_fallback"),
            within_s=1.0 + LOOK_S,
        ),
        _control_killed(*control),
    ]


def _control_killed(at_s: float, until_s: float) -> PlannedFault:
    async def begin(grid: LiveGrid) -> None:
        await grid.crash(grid.control)

    async def end(grid: LiveGrid) -> None:
        grid.forget(grid.control)
        await grid.start(grid.control)

    def seen(observer: Observer, after_s: float) -> Seen | None:
        sample = next((item for item in observer.between(after_s, observer.now_s) if not item.control_live), None)
        return None if sample is None else (sample.at_s, "the gateway has no control")

    return PlannedFault(
        name="control killed, comes back empty",
        target="control",
        at_s=at_s,
        until_s=until_s,
        begin=begin,
        end=end,
        seen=seen,
        within_s=6.0,
    )
