"""Endpoints of an engine's KV events, as ZeroMQ writes them: which are usable, and which port each rank has."""

import re
from urllib.parse import urlsplit

from tradewind.config.schema import KvEventsConfig

TCP, IPC = "tcp", "ipc"
MOST_RANKS = 64
MAX_PORT = 65_535
_HOST = re.compile(r"[A-Za-z0-9._:-]+")


def rank_endpoints(section: KvEventsConfig) -> list[str]:
    """The endpoint of each data-parallel rank of a section without a fault: vLLM adds the rank to the port."""
    if section.ranks == 1:
        return [section.endpoint]
    base, _, port = section.endpoint.rpartition(":")
    return [f"{base}:{int(port) + rank}" for rank in range(section.ranks)]


def fault(section: KvEventsConfig) -> str:
    """What is wrong with an endpoint, "" for nothing."""
    try:
        parts = urlsplit(section.endpoint)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        return f"is not an endpoint ({error})"
    if "://" not in section.endpoint:
        return "does not begin with tcp:// or ipc://"
    if parts.scheme == IPC:
        return "" if not parts.netloc and len(parts.path) > 1 else "does not name a file by its whole path"
    if parts.scheme != TCP:
        return f"has the scheme {parts.scheme!r}, which no other process can be heard by"
    if port is None or parts.path or parts.query or parts.fragment or parts.username:
        return "is not tcp://host:port"
    if host == "*":
        return "is what an engine binds; an agent needs the address" + (" to wait at" if section.bind else "")
    if not _HOST.fullmatch(host):
        return "has no host"
    return "" if port and port + section.ranks - 1 <= MAX_PORT else f"has no port from 1 to {MAX_PORT} for each rank"
