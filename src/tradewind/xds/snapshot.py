"""An immutable, content-addressed set of everything one Envoy is told."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import xxhash
from google.protobuf import any_pb2

from tradewind.xds import types
from tradewind.xds.endpoints import SnapshotError


@dataclass(frozen=True, slots=True)
class Resource:
    """One named resource; `version` is the hash of its bytes."""

    name: str
    version: str
    body: any_pb2.Any

    @staticmethod
    def of(type_url: str, name: str, payload: bytes) -> "Resource":
        """Wrap serialised bytes."""
        return Resource(name, xxhash.xxh3_128_hexdigest(payload), any_pb2.Any(type_url=type_url, value=payload))


def digest(resources: Iterable[Resource]) -> str:
    """The version of a set of resources: equal for equal content, whoever builds it and whenever."""
    state = xxhash.xxh3_128()
    for resource in resources:
        state.update(f"{resource.name}\0{resource.version}\0".encode())
    return state.hexdigest()


class Snapshot:
    """Resources by type and name. The constructor refuses a set that is not whole."""

    __slots__ = ("_resources", "refused", "versions")

    def __init__(
        self, resources: Mapping[str, Mapping[str, Resource]], *, refused: tuple[tuple[str, str], ...] = ()
    ) -> None:
        """`refused`: (cell id or model, reason) of what was left out. Raises SnapshotError if references dangle."""
        self._resources = {
            kind: MappingProxyType({name: by_name[name] for name in sorted(by_name)})
            for kind in types.ORDER
            for by_name in (resources.get(kind, {}),)
        }
        self.refused = refused
        self.versions: Mapping[str, str] = MappingProxyType(
            {kind: digest(self._resources[kind].values()) for kind in types.ORDER}
        )
        self._check()

    def of(self, type_url: str) -> Mapping[str, Resource]:
        """All resources of one type, by name in sorted order."""
        return self._resources[type_url]

    @property
    def version(self) -> str:
        """One hash over all types."""
        return xxhash.xxh3_128_hexdigest("".join(self.versions[kind] for kind in types.ORDER).encode())

    def _check(self) -> None:
        clusters, endpoints = self.of(types.CLUSTER), self.of(types.ENDPOINT)
        if clusters.keys() != endpoints.keys():
            odd = sorted(clusters.keys() ^ endpoints.keys())
            raise SnapshotError(f"clusters and endpoint sets differ: {', '.join(odd)}")
        if not self.of(types.LISTENER):
            raise SnapshotError("no listener: Envoy would close the one it has")
        if not self.of(types.ROUTE):
            raise SnapshotError("no routes: the listener would wait for them for ever")
