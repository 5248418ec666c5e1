"""The Endpoint Picker's state as Prometheus series; reads only."""

from collections.abc import Iterator

from tradewind.gateway.epp.server import EppServer
from tradewind.gateway.families import Family, counter, gauge
from tradewind.gateway.status import EppStatus


def epp_status(server: EppServer) -> EppStatus:
    """The state of this moment."""
    counters = server.counters
    return EppStatus(
        requests=counters.streams,
        picked=counters.picked,
        refused=counters.refused,
        late=counters.late,
        bad=counters.bad,
        aborted=counters.aborted,
        open_requests=server.open_streams,
        held_bytes=server.held_bytes,
        connections=server.connections,
        turned_away=server.turned_away,
        broken_connections=server.broken,
    )


def epp_families(epp: EppStatus) -> Iterator[Family]:
    """All families of a gateway that listens for foreign proxies."""
    yield counter("epp_requests", "Requests that foreign proxies showed to the endpoint picker", epp.requests)
    yield counter("epp_picked_requests", "Of them, those for which a cell was picked", epp.picked)
    yield counter("epp_refused_requests", "Of them, those that were refused, 413 and 429 included", epp.refused)
    yield counter("epp_early_requests", "Decided by the beginning of a body that was too slow or too large", epp.late)
    yield counter("epp_broken_requests", "Streams ended for breaking the protocol or a bound", epp.bad)
    yield counter("epp_aborted_requests", "Picked, and the stream ended in the middle of the response", epp.aborted)
    yield gauge("epp_open_requests", "Streams of foreign proxies that are open", epp.open_requests)
    yield gauge("epp_held_bytes", "Of request bodies that wait for their decision", epp.held_bytes)
    yield gauge("epp_connections", "Connections of foreign proxies", epp.connections)
    yield counter("epp_refused_connections", "Connections beyond the bound, closed at once", epp.turned_away)
    yield counter("epp_broken_connections", "Connections closed for breaking HTTP/2 or a bound", epp.broken_connections)
