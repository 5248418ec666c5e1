"""Pools and weights to a snapshot, reusing whatever a weight change does not touch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import xxhash

from tradewind.model.routing import PoolRouting, Routing
from tradewind.xds import types
from tradewind.xds.cluster import build_cluster
from tradewind.xds.endpoints import EndpointBytes
from tradewind.xds.fallback import still_serves
from tradewind.xds.listener import build_listener
from tradewind.xds.routes import (
    fixed_routes,
    pool_route,
    residency_refusals,
    residency_unserved,
    route_configuration,
    with_shares,
)
from tradewind.xds.settings import LISTENER_NAME, ROUTES_NAME, ModelInfo, ResidencyRule, XdsSettings
from tradewind.xds.snapshot import Resource, Snapshot

_MAX_MODEL_CHARS = 256
_CLUSTER_PREFIX = "pool/"


class SnapshotBuilder:
    """Builds snapshots for one gateway. What it remembers saves time, and lets endpoint sets stand under small changes
    of weight (`fallback`); nothing else of a result depends on it."""

    def __init__(self, settings: XdsSettings) -> None:
        self._settings = settings
        self._bytes = EndpointBytes()
        payload = build_listener(settings).SerializeToString(deterministic=True)
        self._listener = Resource.of(types.LISTENER, LISTENER_NAME, payload)
        self._clusters: dict[str, Resource] = {}
        self._sets: dict[str, tuple[PoolRouting, Resource]] = {}
        self._pool_routes: dict[str, bytes] = {}
        self._fixed: tuple[tuple[ModelInfo, ...], str, bytes] | None = None

    def build(self, routing: Routing, models: Sequence[ModelInfo] = ()) -> Snapshot:
        """A snapshot of these pools. `models`: what is known of them for GET /v1/models.

        An endpoint or model that Envoy could not take is left out and named in `Snapshot.refused`: one bad cell
        must not hold back its neighbours.
        """
        refused: list[tuple[str, str]] = []
        pools = [self._usable(pool, refused) for pool in routing.pools if _nameable(pool.model, refused)]
        self._bytes.trim(keep=2 * sum(len(pool.endpoints) for pool in pools) + 1024)
        parts = list(self._parts(pools))
        self._clusters = {part.cluster: self._cluster(part.cluster) for part in parts}
        self._pool_routes = {part.cluster: self._base_route(part) for part in parts}
        weighted = self._settings.policy.weighted
        self._sets = {part.cluster: self._endpoint_set(part.cluster, part.pool, weighted=weighted) for part in parts}
        routes = [residency_refusals(self._settings.residency)]
        routes += [self._pool_route(part, weighted=weighted) for part in parts]
        routes.append(self._fixed_routes(pools, models))
        table = Resource.of(types.ROUTE, ROUTES_NAME, route_configuration(b"".join(routes)))
        resources = {
            types.CLUSTER: self._clusters,
            types.ENDPOINT: {name: resource for name, (_, resource) in self._sets.items()},
            types.LISTENER: {LISTENER_NAME: self._listener},
            types.ROUTE: {ROUTES_NAME: table},
        }
        return Snapshot(resources, refused=tuple(refused))

    def _parts(self, pools: Sequence[PoolRouting]) -> Iterator["_Part"]:
        """Every pool, after the parts of it that residency rules leave: the first route that matches is taken."""
        for pool in pools:
            for rule in self._settings.residency:
                allowed = tuple(endpoint for endpoint in pool.endpoints if endpoint.site in rule.sites)
                yield _Part(f"residency/{rule.name}/{pool.model}", replace(pool, endpoints=allowed), rule)
            yield _Part(_cluster_name(pool), pool)

    def _endpoint_set(self, name: str, pool: PoolRouting, *, weighted: bool) -> tuple[PoolRouting, Resource]:
        held = self._sets.get(name)
        if weighted and held is not None and still_serves(held[0].endpoints, pool.endpoints):
            return held
        payload = self._bytes.assignment(name, pool, weighted=weighted)
        return pool, Resource.of(types.ENDPOINT, name, payload)

    def _usable(self, pool: PoolRouting, refused: list[tuple[str, str]]) -> PoolRouting:
        """The pool without endpoints that Envoy would refuse, or drop in silence as twins."""
        addresses = [e.address for e in pool.endpoints]
        bad = self._bytes.refused(addresses)
        if not bad and len(set(addresses)) == len(addresses):
            return pool
        kept = []
        taken: dict[str, str] = {}
        for endpoint in pool.endpoints:
            if endpoint.address in bad:
                refused.append((endpoint.cell_id, f'address "{endpoint.address}" is not ip:port'))
            elif endpoint.address in taken:
                refused.append((endpoint.cell_id, f"address {endpoint.address} is cell {taken[endpoint.address]}'s"))
            else:
                taken[endpoint.address] = endpoint.cell_id
                kept.append(endpoint)
        return PoolRouting(model=pool.model, endpoints=tuple(kept))

    def _cluster(self, name: str) -> Resource:
        known = self._clusters.get(name)
        if known is not None:
            return known
        return Resource.of(
            types.CLUSTER, name, build_cluster(name, self._settings).SerializeToString(deterministic=True)
        )

    def _base_route(self, part: "_Part") -> bytes:
        known = self._pool_routes.get(part.cluster)
        return pool_route(part.pool.model, part.cluster, self._settings, part.rule) if known is None else known

    def _pool_route(self, part: "_Part", *, weighted: bool) -> bytes:
        pool, rule = part.pool, part.rule
        if rule is not None and not pool.endpoints:
            return residency_unserved(pool.model, rule)
        table = self._bytes.table(pool) if weighted else ""
        version = xxhash.xxh3_64_hexdigest(table.encode())  # Lua reads a table anew when its route's name changes
        base, name = self._pool_routes[part.cluster], rule.name if rule else ""
        return with_shares(base, model=pool.model, version=version, table=table, rule=name)

    def _fixed_routes(self, pools: Sequence[PoolRouting], models: Sequence[ModelInfo]) -> bytes:
        known = {info.model: info for info in models}
        infos = tuple(known.get(pool.model, ModelInfo(model=pool.model)) for pool in pools)
        only = pools[0].model if len(pools) == 1 else ""
        if self._fixed is None or self._fixed[:2] != (infos, only):
            self._fixed = (infos, only, fixed_routes(infos, only_model=only, settings=self._settings))
        return self._fixed[2]


@dataclass(frozen=True, slots=True)
class _Part:
    """A cluster of a pool: all of its endpoints, or those that a residency rule leaves."""

    cluster: str
    pool: PoolRouting
    rule: ResidencyRule | None = None


def _cluster_name(pool: PoolRouting) -> str:
    return _CLUSTER_PREFIX + pool.model


def _nameable(model: str, refused: list[tuple[str, str]]) -> bool:
    """A model name travels in a header and a path, so it must be printable and short."""
    if model and len(model) <= _MAX_MODEL_CHARS and model.isprintable():
        return True
    refused.append((model[:_MAX_MODEL_CHARS], f"a model name is 1..{_MAX_MODEL_CHARS} printable characters"))
    return False
