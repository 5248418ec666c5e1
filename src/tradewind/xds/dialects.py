"""The two ADS variants: state of the world and delta."""

from collections.abc import Iterable

from envoy.service.discovery.v3 import discovery_pb2

from tradewind.xds.snapshot import Resource
from tradewind.xds.stream import MAX_REASON_CHARS, Ask


class StateOfTheWorld:
    """DiscoveryRequest and DiscoveryResponse."""

    full_state = True

    def ask(self, request: discovery_pb2.DiscoveryRequest, *, first: bool) -> Ask:
        """Read one request; `first` of its type on this stream."""
        return Ask(
            kind=request.type_url,
            nonce=request.response_nonce,
            names=frozenset(request.resource_names),
            has_version=request.version_info if first else "",
            error=_error(request),
        )

    def response(
        self, *, kind: str, version: str, nonce: str, resources: Iterable[Resource], removed: list[str]
    ) -> discovery_pb2.DiscoveryResponse:
        """What is removed needs no word: it is absent."""
        return discovery_pb2.DiscoveryResponse(
            type_url=kind, version_info=version, nonce=nonce, resources=[resource.body for resource in resources]
        )


class Delta:
    """DeltaDiscoveryRequest and DeltaDiscoveryResponse."""

    full_state = False

    def ask(self, request: discovery_pb2.DeltaDiscoveryRequest, *, first: bool) -> Ask:
        """Read one request; `first` of its type on this stream."""
        return Ask(
            kind=request.type_url,
            nonce=request.response_nonce,
            subscribe=frozenset(request.resource_names_subscribe),
            unsubscribe=frozenset(request.resource_names_unsubscribe),
            has_versions=dict(request.initial_resource_versions) if first else {},
            error=_error(request),
        )

    def response(
        self, *, kind: str, version: str, nonce: str, resources: Iterable[Resource], removed: list[str]
    ) -> discovery_pb2.DeltaDiscoveryResponse:
        """Changed resources with their own versions, and the names of those that are gone."""
        return discovery_pb2.DeltaDiscoveryResponse(
            type_url=kind,
            system_version_info=version,
            nonce=nonce,
            resources=[
                discovery_pb2.Resource(name=resource.name, version=resource.version, resource=resource.body)
                for resource in resources
            ],
            removed_resources=removed,
        )


def _error(request: discovery_pb2.DiscoveryRequest | discovery_pb2.DeltaDiscoveryRequest) -> str | None:
    """The reason of a NACK; Envoy's text may hold the whole resource."""
    if not request.HasField("error_detail"):
        return None
    message: str = request.error_detail.message
    return message[: 64 * MAX_REASON_CHARS] or "refused without a reason"
