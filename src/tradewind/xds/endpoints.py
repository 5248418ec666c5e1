"""One pool's endpoints as the bytes of a ClusterLoadAssignment, and as the share table that Lua reads."""

import ipaddress
from itertools import groupby
from operator import attrgetter

from tradewind.model.routing import Endpoint, PoolRouting
from tradewind.xds.encode import message_field, varint_field

MAX_WEIGHT_SUM = 2**32 - 1

# Field numbers of envoy.config.endpoint.v3 and core.v3.
_LB_ENDPOINT_ENDPOINT, _LB_ENDPOINT_WEIGHT = 1, 4
_LOCALITY_LOCALITY, _LOCALITY_LB_ENDPOINTS = 1, 2
_CLA_NAME, _CLA_ENDPOINTS = 1, 2
_ENDPOINT_ADDRESS, _ADDRESS_SOCKET, _SOCKET_ADDRESS, _SOCKET_PORT = 1, 1, 2, 3
_LOCALITY_REGION = 1
_UINT32_VALUE = 1


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
    if not colon or not 1 <= number <= 65535 or not port.isdecimal() or (ip.version == 6) != host.startswith("["):
        raise SnapshotError(f'address "{address}": write ip:port (or [ip6]:port) with a port in 1..65535')
    return str(ip), number


class EndpointBytes:
    """Remembers the encoding of each address and weight, so that a new weight costs one join."""

    def __init__(self) -> None:
        self._addresses: dict[str, tuple[bytes, str]] = {}
        self._weights: dict[int, tuple[bytes, str]] = {}

    def trim(self, *, keep: int) -> None:
        """Forget everything once more than `keep` addresses are held; the next build fills it again."""
        if len(self._addresses) > keep:
            self._addresses.clear()
        if len(self._weights) > 4096:
            self._weights.clear()

    def accepts(self, address: str) -> bool:
        """True if Envoy would take this address."""
        try:
            return address in self._addresses or bool(self._encode_address(address))
        except SnapshotError:
            return False

    def assignment(self, name: str, pool: PoolRouting, *, weighted: bool) -> bytes:
        """The serialised ClusterLoadAssignment: one locality per site, sites and cells in sorted order."""
        if sum([e.weight for e in pool.endpoints]) > MAX_WEIGHT_SUM:
            raise SnapshotError(f'model "{pool.model}": the weights sum to more than {MAX_WEIGHT_SUM}')
        parts = [message_field(_CLA_NAME, name.encode())]
        for site, members in groupby(sorted(pool.endpoints, key=_by_site), key=attrgetter("site")):
            encoded = [self._lb_endpoint(member, weighted=weighted) for member in members]
            locality = message_field(_LOCALITY_LOCALITY, message_field(_LOCALITY_REGION, site.encode()))
            parts.append(message_field(_CLA_ENDPOINTS, locality + b"".join(encoded)))
        return b"".join(parts)

    def table(self, pool: PoolRouting) -> str:
        """The share table: "ip:port=weight," per endpoint in cell order."""
        addresses, weights = self._addresses, self._weights
        return "".join([addresses[e.address][1] + weights[e.weight][1] for e in pool.endpoints])

    def _lb_endpoint(self, endpoint: Endpoint, *, weighted: bool) -> bytes:
        weight = endpoint.weight if weighted else 1
        head = self._addresses.get(endpoint.address) or self._encode_address(endpoint.address)
        tail = self._weights.get(weight) or self._encode_weight(weight)
        body = head[0] + tail[0]
        length = len(body)
        # Field 2 with a one-byte length: every IPv4 and IPv6 endpoint fits.
        return bytes((_LOCALITY_LB_ENDPOINTS << 3 | 2, length)) + body

    def _encode_address(self, address: str) -> tuple[bytes, str]:
        ip, port = split_address(address)
        socket = message_field(_SOCKET_ADDRESS, ip.encode()) + varint_field(_SOCKET_PORT, port)
        endpoint = message_field(_ENDPOINT_ADDRESS, message_field(_ADDRESS_SOCKET, socket))
        text = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
        encoded = (message_field(_LB_ENDPOINT_ENDPOINT, endpoint), text + "=")
        assert len(encoded[0]) < 110, "the one-byte length of _lb_endpoint holds"
        self._addresses[address] = encoded
        return encoded

    def _encode_weight(self, weight: int) -> tuple[bytes, str]:
        if not 1 <= weight <= MAX_WEIGHT_SUM:
            raise SnapshotError(f"weight {weight}: Envoy takes 1..{MAX_WEIGHT_SUM}")
        encoded = (message_field(_LB_ENDPOINT_WEIGHT, varint_field(_UINT32_VALUE, weight)), f"{weight},")
        self._weights[weight] = encoded
        return encoded


def _by_site(endpoint: Endpoint) -> tuple[str, str]:
    return endpoint.site, endpoint.cell_id
