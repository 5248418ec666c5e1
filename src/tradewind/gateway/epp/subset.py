"""Addresses as the Endpoint Picker Protocol writes them: "ip:port", "[ip6]:port"; in hints also without a port."""

from collections.abc import Iterable

MAX_HINTS = 4096  # of one hint; more are cut off


def parse_hint(values: Iterable[str]) -> tuple[str, ...]:
    """The entries of a hint: a list, or one string with commas, or both mixed; blanks are dropped."""
    entries = (part.strip() for value in values for part in value.split(","))
    found = [entry for entry in entries if entry]
    return tuple(found[:MAX_HINTS])


def holds(allowed: tuple[str, ...] | None, address: str) -> bool:
    """Whether a hint allows "ip:port". An entry without a port allows every port of its address."""
    if allowed is None:
        return True
    return address in allowed or _host(address) in {_bare(entry) for entry in allowed if _is_bare(entry)}


def _host(address: str) -> str:
    return _bare(address.rpartition(":")[0])


def _bare(host: str) -> str:
    return host.removeprefix("[").removesuffix("]")


def _is_bare(entry: str) -> bool:
    """ "10.0.0.1", "[fd00::1]" and "fd00::1" have no port; "10.0.0.1:80" and "[fd00::1]:80" have."""
    if entry.startswith("["):
        return entry.endswith("]")
    return entry.count(":") != 1
