"""The four resource types of a snapshot, in the order in which Envoy must hear of them."""

from typing import Final

_PREFIX: Final = "type.googleapis.com/envoy.config."

CLUSTER: Final = _PREFIX + "cluster.v3.Cluster"
ENDPOINT: Final = _PREFIX + "endpoint.v3.ClusterLoadAssignment"
LISTENER: Final = _PREFIX + "listener.v3.Listener"
ROUTE: Final = _PREFIX + "route.v3.RouteConfiguration"

# Make before break: what is named must exist before the name is used.
ORDER: Final = (CLUSTER, ENDPOINT, LISTENER, ROUTE)

# Envoy subscribes to these without naming them ("wildcard"); the others by name.
WILDCARD: Final = frozenset({CLUSTER, LISTENER})

SHORT: Final = {CLUSTER: "cds", ENDPOINT: "eds", LISTENER: "lds", ROUTE: "rds"}
