"""Are the addresses of a grid free? Envoy shares a port that another Envoy has (SO_REUSEPORT), and would not tell."""

import errno
import socket
import time

from tradewind.config.addresses import Listen, listens, split_address
from tradewind.config.schema import GridConfig
from tradewind.runtime.supervise import StartFailed

PATIENCE_S = 3.0  # children of a supervisor that was killed end soon after it
_LOOK_EACH_S = 0.1


def taken(grid: GridConfig, *, within: str = "$") -> list[tuple[Listen, str]]:
    """What cannot be listened on, and why; `within` a part of the file such as "$.gateways[0]."."""
    own = [listen for listen in listens(grid) if listen.where.startswith(within)]
    return [(listen, fault) for listen in own if (fault := address_fault(listen.address))]


def wait_until_free(grid: GridConfig, *, within: str = "$", patience_s: float | None = None) -> None:
    """Raises StartFailed with every address that somebody has for longer than `patience_s`, PATIENCE_S if not told."""
    deadline_s = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    while faults := taken(grid, within=within):
        if time.monotonic() > deadline_s:
            lines = [f"{listen.where}: {listen.address}: {fault}" for listen, fault in faults]
            raise StartFailed(
                "\n".join([*lines, "end what is there, or write another port, or port 0 for any free one"])
            )
        time.sleep(_LOOK_EACH_S)


def address_fault(address: str) -> str:
    """Why this address cannot be listened on; "" also for one of another host, whose ports are not ours to try."""
    split = split_address(address)
    if split is None or split[1] == 0:
        return ""
    family = socket.AF_INET6 if ":" in split[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(split)
        except OSError as error:
            return "" if error.errno == errno.EADDRNOTAVAIL else error.strerror or str(error)
    return ""
