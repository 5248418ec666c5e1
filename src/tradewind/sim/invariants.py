"""What must hold in every run, whatever the policy and whatever dies: checked after every event where asked for."""

from tradewind.measure.record import Failure
from tradewind.sim.carrier import MOST_DEATHS, RETRIES
from tradewind.sim.grid import RunResult, SimGrid
from tradewind.sim.journal import Entry
from tradewind.sim.status import HTTP_UNAVAILABLE, HTTP_UNPROCESSABLE

_POOL_CHECK_EVENTS = 499  # the block pools are walked through this often


class InvariantBrokenError(AssertionError):
    """A run that cannot be; the message ends with the command that replays it."""


def run_checked(grid: SimGrid, *, replay: str) -> RunResult:
    """Run to the end with all checks. Raises InvariantBrokenError with `replay` in its message."""
    try:
        while grid.step():
            check_event(grid)
        check_end(grid)
    except AssertionError as error:
        raise InvariantBrokenError(f"{error} (at {grid.loop.now_s:.6f} s); replay: {replay}") from error
    return grid.result()


def check_event(grid: SimGrid) -> None:
    """Requests are neither lost nor doubled on the way; blocks are neither lost nor doubled in an engine."""
    sent = sum(gateway.in_flight for gateway in grid.gateways)
    carried = grid.carried
    assert 0 <= carried <= sent, f"{carried} requests inside engines, {sent} sent and not ended"
    inside, foreign = sum(cell.engine.unfinished for cell in grid.cells), grid.foreign
    assert inside <= carried + foreign, f"{inside} requests inside engines, {carried} carried there, {foreign} foreign"
    if grid.loop.events % _POOL_CHECK_EVENTS == 0:
        for cell in grid.cells:
            cell.engine.pool.check()


def check_end(grid: SimGrid) -> None:
    """Every request that arrived ended in exactly one way, and its times make sense."""
    for entry in grid.journal.entries:
        name = f"request {entry.number}"
        if entry.refused:
            assert entry.outcomes == 0, f"{name} was refused and has an outcome"
            continue
        if entry.end_s is None:
            assert grid.loop.now_s >= grid.scenario.for_s, f"{name} has no end in a run that has one"
            continue
        assert entry.outcomes == 1, f"{name} has {entry.outcomes} outcomes"
        if entry.failure is not Failure.NONE:
            _check_failed(entry, gate=grid.scenario.gate)
            continue
        assert entry.first_s is not None, f"{name} ended without a first token"
        assert entry.traced.at_s < entry.first_s <= entry.end_s, f"{name} is out of order"
        assert 0 <= entry.cached_tokens <= entry.traced.prompt_tokens, f"{name} has more cached tokens than prompt"
        assert 0 <= entry.predicted_tokens <= entry.traced.prompt_tokens, f"{name} has more matched tokens than prompt"


def _check_failed(entry: Entry, *, gate: bool) -> None:
    """A request fails for a reason; none is lost before its first token while there is a gate and a cell to go to."""
    name, tries = f"request {entry.number}", len(entry.attempts)
    assert 1 <= tries <= RETRIES + 1, f"{name} was tried {tries} times"
    assert entry.deaths <= MOST_DEATHS, f"{name} ended {entry.deaths} engines"
    match entry.failure:
        case Failure.HEADERS_ONLY:
            assert not gate, f"{name} was lost before its first token, behind a gate"
            assert entry.first_s is None, f"{name} had a token"
        case Failure.BYTES_DELIVERED:
            assert entry.first_s is not None, f"{name} was cut after tokens that it never had"
        case Failure.STATUS if entry.status == HTTP_UNPROCESSABLE:
            assert entry.deaths == MOST_DEATHS, f"{name} was refused for {entry.deaths} deaths"
        case Failure.STATUS if entry.status == HTTP_UNAVAILABLE:
            assert entry.first_s is None, f"{name} had a token and was answered 503"
        case _:
            assert entry.failure is Failure.STATUS, f"{name} ended as {entry.failure!r}"
