"""One ADS stream as a machine without I/O: requests and snapshots in, responses out, for both protocol variants.

State-of-the-world and delta differ only in how a request is read and a response is written (`Dialect`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from google.protobuf.message import Message

from tradewind.xds import types
from tradewind.xds.encode import message_field
from tradewind.xds.endpoints import addresses_of
from tradewind.xds.snapshot import Resource, Snapshot, digest

# A client that never answers a cluster response may hold back its routes no longer than this.
CLUSTER_WAIT_S = 10.0
MAX_REASON_CHARS = 1000
_MAX_NAMES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request in either dialect. `names` None: leave the subscription as it is."""

    kind: str
    nonce: str = ""
    names: frozenset[str] | None = None  # state of the world: the whole subscription
    subscribe: frozenset[str] = frozenset()  # delta
    unsubscribe: frozenset[str] = frozenset()
    has_version: str = ""  # state of the world, first request: what the client holds
    has_versions: Mapping[str, str] = field(default_factory=dict)  # delta, first request
    error: str | None = None


class Dialect(Protocol):
    """How one protocol variant reads and writes."""

    full_state: bool  # a response names everything of a wildcard type; what it omits is removed

    def response(
        self, *, kind: str, version: str, nonce: str, resources: Iterable[Resource], removed: list[str]
    ) -> Message:
        """Encode one response."""


@dataclass(slots=True)
class TypeMemory:
    """What one node made of one type; outlives its streams."""

    accepted: dict[str, Resource] = field(default_factory=dict)
    accepted_version: str = ""
    rejected: dict[str, str] = field(default_factory=dict)  # resource name -> version that was refused
    nacked_version: str = ""
    reason: str = ""
    acks: int = 0
    nacks: int = 0
    changed_s: float = 0.0  # when the last ACK or NACK came


@dataclass(slots=True)
class NodeMemory:
    """What one node accepted and refused, by type."""

    types: dict[str, TypeMemory] = field(default_factory=lambda: {kind: TypeMemory() for kind in types.ORDER})


@dataclass(slots=True)
class _Subscription:
    wildcard: bool = False
    names: set[str] = field(default_factory=set)
    sent: dict[str, str] = field(default_factory=dict)  # name -> version the client has or is being given
    pending: dict[str, Resource] | None = None  # in the response that waits for its answer
    pending_version: str = ""
    pending_since_s: float = 0.0
    forced: set[str] = field(default_factory=set)  # to be sent again though unchanged
    claimed: str = ""  # version that a reconnecting client says it holds
    nonce: str = ""


class XdsStream:
    """The server's side of one stream."""

    def __init__(self, dialect: Dialect, memory: NodeMemory) -> None:
        self._dialect = dialect
        self._memory = memory
        self._subscriptions: dict[str, _Subscription] = {}
        self._snapshot: Snapshot | None = None
        self._lingering: dict[str, Resource] = {}  # clusters whose routes are not yet known to be gone
        self._lingering_endpoints: dict[str, Resource] = {}  # of clusters that the client may still have
        self._counter = 0
        self.recovered: list[str] = []  # types whose refused content gave way to what the client has; the owner clears
        self.ignored = 0  # stale nonces and unknown types

    def publish(self, snapshot: Snapshot) -> None:
        """Make this the content to converge to; whatever was not sent yet is skipped."""
        old_clusters = dict(self._memory.types[types.CLUSTER].accepted)
        old_endpoints = dict(self._memory.types[types.ENDPOINT].accepted)
        if self._snapshot is not None:
            old_clusters |= self._snapshot.of(types.CLUSTER)
            old_endpoints |= self._snapshot.of(types.ENDPOINT)
        self._snapshot = snapshot
        gone = (old_clusters.keys() | self._lingering.keys()) - snapshot.of(types.CLUSTER).keys()
        clusters, endpoints = self._lingering | old_clusters, self._lingering_endpoints | old_endpoints
        self._lingering = {name: clusters[name] for name in sorted(gone)}
        subscription = self._subscriptions.get(types.ENDPOINT)
        asked = subscription.names if subscription else set()
        self._lingering_endpoints = {
            name: endpoints[name]
            for name in sorted(endpoints.keys() - snapshot.of(types.ENDPOINT).keys())
            if name in gone or name in asked
        }

    def receive(self, ask: Ask, *, now_s: float) -> None:
        """Take one request: an answer to the last response, a change of subscription, or both."""
        if ask.kind not in types.ORDER:
            self.ignored += 1
            return
        first = ask.kind not in self._subscriptions
        sub = self._subscriptions.setdefault(ask.kind, _Subscription())
        if ask.nonce and ask.nonce != sub.nonce:
            self.ignored += 1
            return
        if ask.nonce and sub.pending is not None:
            self._answered(ask, sub, now_s=now_s)
        _subscribe(ask, sub, first=first)
        if first:
            sub.claimed = ask.has_version
            sub.sent.update(ask.has_versions)
            if ask.kind in (types.ENDPOINT, types.ROUTE):
                sub.forced |= sub.names  # a warming cluster or listener may wait for what has not changed

    def ready(self, *, now_s: float) -> list[Message]:
        """All responses that may be sent now, in order; each type has at most one unanswered response."""
        if self._snapshot is None:
            return []
        responses = []
        for kind in types.ORDER:
            sub = self._subscriptions.get(kind)
            if sub is None or sub.pending is not None or self._must_wait(kind, now_s=now_s):
                continue
            response = self._respond(kind, sub, now_s=now_s)
            if response is not None:
                responses.append(response)
        return responses

    def settled(self) -> bool:
        """True when the client has answered everything and holds the published content of every type it can name."""
        if self._snapshot is None or self._subscriptions.keys() != set(types.ORDER) or self._lingering:
            return False
        return all(
            sub.pending is None and not any(self._changes(kind, sub)) for kind, sub in self._subscriptions.items()
        )

    def refused_addresses(self) -> frozenset[str]:
        """Published endpoints that the client does not have since it refused their set."""
        memory = self._memory.types[types.ENDPOINT]
        if self._snapshot is None or not (memory.rejected or memory.reason):
            return frozenset()
        refused: set[str] = set()
        for name, resource in self._snapshot.of(types.ENDPOINT).items():
            accepted = memory.accepted.get(name)
            held = accepted is not None and accepted.version == resource.version
            if not held and (memory.reason or memory.rejected.get(name) == resource.version):
                had = addresses_of(accepted.body.value) if accepted is not None else frozenset()
                refused |= addresses_of(resource.body.value) - had
        return frozenset(refused)

    def _must_wait(self, kind: str, *, now_s: float) -> bool:
        """Listeners and routes wait until Envoy has answered for clusters, which it does once they are warm."""
        if kind not in (types.LISTENER, types.ROUTE):
            return False
        clusters = self._subscriptions.get(types.CLUSTER)
        if clusters is None or clusters.pending is None:
            return False
        return now_s - clusters.pending_since_s < CLUSTER_WAIT_S

    def _respond(self, kind: str, sub: _Subscription, *, now_s: float) -> Message | None:
        if kind == types.CLUSTER:
            self._release_lingering()
        wanted = self._wanted(kind, sub)
        version = digest(wanted.values())
        if sub.claimed:
            if sub.claimed == version and not sub.forced:
                sub.sent = {name: resource.version for name, resource in wanted.items()}
            sub.claimed = ""
        changed, removed = self._changes(kind, sub)
        if not changed and not removed:
            self._notice_recovery(kind, sub, version)
            return None
        full = self._dialect.full_state and kind in types.WILDCARD
        resources = list(wanted.values()) if full else [wanted[name] for name in changed]
        self._force_dependents(kind, changed)
        self._counter += 1
        sub.nonce = str(self._counter)
        sub.pending = {resource.name: resource for resource in resources}
        sub.pending_version, sub.pending_since_s = version, now_s
        sub.forced.clear()
        for name in removed:
            sub.sent.pop(name, None)
            if name in sub.names:
                sub.sent[name] = ""  # told once that there is none
        sub.sent.update({resource.name: resource.version for resource in resources})
        return self._dialect.response(kind=kind, version=version, nonce=sub.nonce, resources=resources, removed=removed)

    def _notice_recovery(self, kind: str, sub: _Subscription, version: str) -> None:
        """The content is again what the client accepted before it refused another: there is nothing to send or hear."""
        assert self._snapshot is not None
        memory, content = self._memory.types[kind], self._snapshot.of(kind)
        if not memory.reason:
            return
        held = {name: resource.version for name, resource in memory.accepted.items()}
        asked = content if sub.wildcard else sub.names
        if all(held.get(name) == resource.version for name, resource in content.items() if name in asked):
            memory.accepted_version, memory.nacked_version, memory.reason = version, "", ""
            self.recovered.append(kind)

    def _changes(self, kind: str, sub: _Subscription) -> tuple[list[str], list[str]]:
        wanted = self._wanted(kind, sub)
        changed = [name for name, r in wanted.items() if sub.sent.get(name) != r.version or name in sub.forced]
        if self._dialect.full_state:
            gone = [name for name in sub.sent if name not in wanted] if kind in types.WILDCARD else []
            return changed, gone
        missing = [name for name in sorted(sub.names | sub.sent.keys()) if name not in wanted]
        return changed, [name for name in missing if sub.sent.get(name) != "" or name not in sub.names]

    def _wanted(self, kind: str, sub: _Subscription) -> dict[str, Resource]:
        assert self._snapshot is not None
        content: Mapping[str, Resource] = self._snapshot.of(kind)
        if kind == types.CLUSTER and self._lingering:
            content = {**content, **self._lingering}
        memory = self._memory.types[kind]
        names = sorted(content) if sub.wildcard else sorted(sub.names)
        wanted = {}
        for name in names:
            resource = content.get(name)
            if resource is not None and memory.rejected.get(name) == resource.version:
                resource = memory.accepted.get(name)
            if resource is None and kind == types.ENDPOINT:
                resource = self._lingering_endpoints.get(name) or _empty_assignment(name)
            if resource is not None:
                wanted[name] = resource
        return wanted

    def _release_lingering(self) -> None:
        """Break after make: clusters go once Envoy has accepted routes that do not name them."""
        assert self._snapshot is not None
        if not self._lingering:
            return
        held = self._memory.types[types.ROUTE].accepted
        content = self._snapshot.of(types.ROUTE)
        routes = self._subscriptions.get(types.ROUTE)
        if routes is None or all(name in held and held[name].version == r.version for name, r in content.items()):
            self._lingering = {}

    def _force_dependents(self, kind: str, changed: list[str]) -> None:
        """A changed cluster or listener warms until it hears its endpoints or routes again, changed or not."""
        dependent = {types.CLUSTER: types.ENDPOINT, types.LISTENER: types.ROUTE}.get(kind)
        sub = self._subscriptions.get(dependent) if dependent else None
        if sub is not None:
            sub.forced |= sub.names.intersection(changed) if dependent == types.ENDPOINT else sub.names

    def _answered(self, ask: Ask, sub: _Subscription, *, now_s: float) -> None:
        assert sub.pending is not None
        memory = self._memory.types[ask.kind]
        memory.changed_s = now_s
        if ask.error is None:
            self._accepted(ask.kind, sub, memory)
        else:
            self._refused(ask, sub, memory)
        sub.pending = None

    def _accepted(self, kind: str, sub: _Subscription, memory: TypeMemory) -> None:
        assert sub.pending is not None
        memory.acks += 1
        memory.accepted_version = sub.pending_version
        memory.nacked_version = memory.reason = ""
        if self._dialect.full_state and kind in types.WILDCARD:
            memory.accepted = dict(sub.pending)
        else:
            memory.accepted.update(sub.pending)
            memory.accepted = {name: r for name, r in memory.accepted.items() if sub.sent.get(name)}
        for name, resource in sub.pending.items():
            if memory.rejected.get(name) not in (None, resource.version):
                del memory.rejected[name]

    def _refused(self, ask: Ask, sub: _Subscription, memory: TypeMemory) -> None:
        """Hold: the client keeps what it had, and hears nothing until the content changes.

        Envoy applies the good resources of a response and names the bad ones; only those are held back. With none
        named, the whole response counts as refused for as long as it stays the same, which `sent` already ensures.
        """
        assert sub.pending is not None
        assert ask.error is not None
        memory.nacks += 1
        memory.nacked_version = sub.pending_version
        memory.reason = ask.error[:MAX_REASON_CHARS]
        known = {name: r.version for name, r in memory.accepted.items()}
        named = [r for n, r in sub.pending.items() if n in ask.error and known.get(n) != r.version]
        memory.rejected.update({resource.name: resource.version for resource in named})
        if named and self._snapshot is not None:
            wanted = self._wanted(ask.kind, sub)
            for resource in named:
                fallback = wanted.get(resource.name)
                if fallback is not None:
                    sub.sent[resource.name] = fallback.version
                else:
                    sub.sent.pop(resource.name, None)


def _subscribe(ask: Ask, sub: _Subscription, *, first: bool) -> None:
    if ask.names is not None:
        added, dropped = ask.names - sub.names, frozenset(sub.names - ask.names)
    else:
        added, dropped = ask.subscribe, ask.unsubscribe
    if "*" in added or (first and not added and ask.kind in types.WILDCARD):
        sub.wildcard = True
    if "*" in dropped:
        sub.wildcard = False
    sub.names |= {name for name in sorted(added)[:_MAX_NAMES] if name != "*"}
    sub.names -= dropped
    if not first and ask.kind in (types.ENDPOINT, types.ROUTE):
        sub.forced |= added & sub.names
    for name in dropped:
        sub.sent.pop(name, None)
        sub.forced.discard(name)


def _empty_assignment(name: str) -> Resource:
    """Envoy waits for an answer about every cluster: "no endpoints" is one, silence is not."""
    return Resource.of(types.ENDPOINT, name, message_field(1, name.encode()))
