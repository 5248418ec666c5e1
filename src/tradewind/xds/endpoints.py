"""One pool's endpoints as the bytes of a ClusterLoadAssignment, and as the share table that Lua reads."""

import ipaddress
from collections import defaultdict
from collections.abc import Iterable

from envoy.config.endpoint.v3 import endpoint_pb2

from tradewind.model.routing import Endpoint, PoolRouting
from tradewind.xds.encode import message_field, varint, varint_field

MAX_WEIGHT_SUM = 2**32 - 1

# Field numbers of envoy.config.endpoint.v3 and core.v3.
_LB_ENDPOINT_ENDPOINT, _LB_ENDPOINT_WEIGHT = 1, 4
_LOCALITY_LOCALITY, _LOCALITY_LB_ENDPOINTS = 1, 2
_CLA_NAME, _CLA_ENDPOINTS = 1, 2
_ENDPOINT_ADDRESS, _ADDRESS_SOCKET, _SOCKET_ADDRESS, _SOCKET_PORT = 1, 1, 2, 3
_LOCALITY_REGION = 1
_UINT32_VALUE = 1
_MAX_WEIGHT_FIELD = 8  # bytes: tag, length, tag, and a varint of at most five
_MAX_WEIGHTS_KEPT = 4096


class SnapshotError(ValueError):
    """Content that Envoy would refuse, or take and then fail requests; the message names the culprit."""


def split_address(address: str) -> tuple[str, int]:
    """Split "ip:port" or "[ip6]:port". Raises SnapshotError unless the host is an IP literal and the port 1..65535."""
    host, colon, port = address.rpartition(":")
    try:
        ip = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        number = int(port)
    except ValueError:
        raise SnapshotError(f'address "{address}": write ip:port, the host as an IP literal') from None
    if (
        not colon
        or not 1 <= number <= 65535
        or not (port.isascii() and port.isdecimal())
        or (ip.version == 6) != host.startswith("[")
    ):
        raise SnapshotError(f'address "{address}": write ip:port (or [ip6]:port) with a port in 1..65535')
    return str(ip), number


def addresses_of(assignment: bytes) -> frozenset[str]:
    """Every "ip:port" or "[ip6]:port" of a serialised ClusterLoadAssignment."""
    message = endpoint_pb2.ClusterLoadAssignment.FromString(assignment)
    sockets = (e.endpoint.address.socket_address for site in message.endpoints for e in site.lb_endpoints)
    return frozenset(
        f"[{s.address}]:{s.port_value}" if ":" in s.address else f"{s.address}:{s.port_value}" for s in sockets
    )


class EndpointBytes:
    """Remembers the encoding of each address and weight, so that a new weight costs one look-up and one join."""

    def __init__(self) -> None:
        self._framed: dict[str, tuple[bytes, ...]] = {}
        self._texts: dict[str, str] = {}
        self._weights: dict[int, bytes] = {}
        self._weight_texts: dict[int, str] = {}

    def trim(self, *, keep: int) -> None:
        """Forget everything once more than `keep` addresses are held; the next build fills it again."""
        if len(self._framed) > keep:
            self._framed.clear()
            self._texts.clear()
        if len(self._weights) > _MAX_WEIGHTS_KEPT:
            self._weights.clear()
            self._weight_texts.clear()

    def refused(self, addresses: Iterable[str]) -> set[str]:
        """Those that Envoy would not take; the others are known from now on."""
        return {address for address in set(addresses) - self._framed.keys() if not self._learn_address(address)}

    def assignment(self, name: str, pool: PoolRouting, *, weighted: bool) -> bytes:
        """The serialised ClusterLoadAssignment: one locality per site, sites sorted, cells in the pool's order.

        Every address must have passed `refused`. Raises SnapshotError on weights that Envoy would refuse.
        """
        self._learn_weights(pool, weighted=weighted)
        sites: defaultdict[str, list[Endpoint]] = defaultdict(list)
        for endpoint in pool.endpoints:
            sites[endpoint.site].append(endpoint)
        parts = [message_field(_CLA_NAME, name.encode())]
        for site in sorted(sites):
            locality = message_field(_LOCALITY_LOCALITY, message_field(_LOCALITY_REGION, site.encode()))
            members = self._weighted(sites[site]) if weighted else self._equal(sites[site])
            parts.append(message_field(_CLA_ENDPOINTS, locality + members))
        return b"".join(parts)

    def table(self, pool: PoolRouting) -> str:
        """The share table: "ip:port=weight," per endpoint in the pool's order. Addresses and errors as for a set."""
        self._learn_weights(pool, weighted=True)
        texts, weights = self._texts, self._weight_texts
        return "".join([texts[e.address] + weights[e.weight] for e in pool.endpoints])

    def _weighted(self, endpoints: list[Endpoint]) -> bytes:
        framed, weights = self._framed, self._weights
        return b"".join([framed[e.address][len(w := weights[e.weight])] + w for e in endpoints])

    def _equal(self, endpoints: list[Endpoint]) -> bytes:
        weight = self._weights[1]
        return b"".join([self._framed[e.address][len(weight)] + weight for e in endpoints])

    def _learn_address(self, address: str) -> bool:
        try:
            ip, port = split_address(address)
        except SnapshotError:
            return False
        socket = message_field(_SOCKET_ADDRESS, ip.encode()) + varint_field(_SOCKET_PORT, port)
        body = message_field(
            _LB_ENDPOINT_ENDPOINT, message_field(_ENDPOINT_ADDRESS, message_field(_ADDRESS_SOCKET, socket))
        )
        tag = varint(_LOCALITY_LB_ENDPOINTS << 3 | 2)
        self._framed[address] = tuple(tag + varint(len(body) + tail) + body for tail in range(_MAX_WEIGHT_FIELD + 1))
        self._texts[address] = f"[{ip}]:{port}=" if ":" in ip else f"{ip}:{port}="
        return True

    def _learn_weights(self, pool: PoolRouting, *, weighted: bool) -> None:
        weights = [e.weight for e in pool.endpoints] if weighted else [1]
        for weight in set(weights) - self._weights.keys():
            if not 1 <= weight <= MAX_WEIGHT_SUM:
                raise SnapshotError(f'model "{pool.model}": weight {weight}; Envoy takes 1..{MAX_WEIGHT_SUM}')
            self._weights[weight] = message_field(_LB_ENDPOINT_WEIGHT, varint_field(_UINT32_VALUE, weight))
            self._weight_texts[weight] = f"{weight},"
        if sum(weights) > MAX_WEIGHT_SUM:
            raise SnapshotError(f'model "{pool.model}": the weights sum to more than {MAX_WEIGHT_SUM}')
