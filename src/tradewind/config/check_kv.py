"""Do the cells' sections on KV events make sense?"""

from collections.abc import Iterator
from urllib.parse import urlsplit

from tradewind.config.addresses import is_ip
from tradewind.config.errors import Problem
from tradewind.config.kv_endpoints import IPC, MOST_RANKS, fault, rank_endpoints
from tradewind.config.schema import GridConfig, KvEventsConfig

TCP_EXAMPLE = "tcp://127.0.0.1:5557"


def kv_problems(grid: GridConfig) -> Iterator[Problem]:
    """Every problem of `kv_events`."""
    heard: dict[str, int] = {}  # endpoint -> the cell that listens to it
    for index, cell in enumerate(grid.cells):
        at, section = f"$.cells[{index}].kv_events", cell.kv_events
        if section is None:
            continue
        found = list(_problems(at, section))
        yield from found
        if found:
            continue
        for endpoint in rank_endpoints(section):
            other = heard.setdefault(endpoint, index)
            if other != index:
                what = f"{endpoint} is already that of $.cells[{other}]"
                yield Problem(where=f"{at}.endpoint", what=what, write="an endpoint of its own for each engine")


def endpoint_fault(section: KvEventsConfig) -> str:
    """What is wrong with an endpoint for the side that is to wait or to connect there, "" for nothing."""
    found = fault(section)
    host = "" if found else urlsplit(section.endpoint).hostname
    named = section.bind and host and not is_ip(host)
    return f"names {host!r}, and what waits there needs an address" if named else found


def _problems(at: str, section: KvEventsConfig) -> Iterator[Problem]:
    if not 1 <= section.ranks <= MOST_RANKS:
        yield Problem(where=f"{at}.ranks", what=f"{section.ranks} ranks", write=f"1 to {MOST_RANKS}")
        return
    what = endpoint_fault(section)
    if what:
        write = f"{TCP_EXAMPLE}, or ipc:///run/engine-kv"
        yield Problem(where=f"{at}.endpoint", what=f"{section.endpoint!r} {what}", write=write)
    elif section.ranks > 1 and section.endpoint.startswith(IPC):
        what = "a file has no port to count the ranks by"
        yield Problem(where=f"{at}.ranks", what=what, write=f"endpoint: {TCP_EXAMPLE} for the first rank")
