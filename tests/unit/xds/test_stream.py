"""The ADS machine against a scripted client, in both dialects: order, ACK and NACK, staleness, make before break."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from tradewind.model.routing import Endpoint, PoolRouting, Routing
from tradewind.xds import types
from tradewind.xds.builder import SnapshotBuilder
from tradewind.xds.dialects import Delta, StateOfTheWorld
from tradewind.xds.settings import XdsSettings
from tradewind.xds.snapshot import Snapshot
from tradewind.xds.stream import CLUSTER_WAIT_S, Ask, NodeMemory, TypeMemory, XdsStream

NAMES = {types.ENDPOINT: ("pool/a", "pool/b"), types.ROUTE: ("front",)}


def snapshot(*, settings: XdsSettings | None = None, **weights: int) -> Snapshot:
    """One pool per keyword, of one endpoint with this weight; weight 0: no endpoint."""
    pools = tuple(
        PoolRouting(
            model=model,
            endpoints=(Endpoint(cell_id="c", site="s", address="10.0.0.1:80", weight=weight),) if weight else (),
        )
        for model, weight in sorted(weights.items())
    )
    return SnapshotBuilder(settings or XdsSettings(listen="127.0.0.1:1")).build(Routing(pools=pools))


@dataclass
class Client:
    """Speaks to one stream as Envoy would and remembers what it was sent."""

    dialect: StateOfTheWorld | Delta
    memory: NodeMemory = field(default_factory=NodeMemory)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.stream = XdsStream(self.dialect, self.memory)
        self.nonces: dict[str, str] = {}
        self.names: dict[str, tuple[str, ...]] = {}

    @property
    def sotw(self) -> bool:
        return isinstance(self.dialect, StateOfTheWorld)

    def subscribe(self, kind: str, names: Iterable[str] | None = None, *, version: str = "", **versions: str) -> None:
        wanted = tuple(NAMES.get(kind, ()) if names is None else names)
        added = frozenset(wanted) - frozenset(self.names.get(kind, ()))
        dropped = frozenset(self.names.get(kind, ())) - frozenset(wanted)
        self.names[kind] = wanted
        nonce = self.nonces.get(kind, "")
        if self.sotw:
            ask = Ask(kind=kind, names=frozenset(wanted), nonce=nonce, has_version=version)
        else:
            ask = Ask(kind=kind, subscribe=added, unsubscribe=dropped, has_versions=versions)
        self.stream.receive(ask, now_s=self.now_s)

    def subscribe_all(self) -> None:
        for kind in types.ORDER:
            self.subscribe(kind)

    def answer(self, kind: str, error: str | None = None, *, nonce: str | None = None) -> None:
        names = frozenset(self.names[kind]) if self.sotw else None
        sent = self.nonces[kind] if nonce is None else nonce
        self.stream.receive(Ask(kind=kind, nonce=sent, names=names, error=error), now_s=self.now_s)

    def take(self) -> list[tuple[str, list[str], list[str]]]:
        """What the server sends now: (type, names, removed names)."""
        sent = []
        for response in self.stream.ready(now_s=self.now_s):
            self.nonces[response.type_url] = response.nonce  # type: ignore[attr-defined]
            sent.append(self._contents(response))
        return sent

    def _contents(self, response: object) -> tuple[str, list[str], list[str]]:
        short = types.SHORT[response.type_url]  # type: ignore[attr-defined]
        if not self.sotw:
            return short, [r.name for r in response.resources], list(response.removed_resources)  # type: ignore[attr-defined]
        names = [_name_of(any_) for any_ in response.resources]  # type: ignore[attr-defined]
        return short, names, []

    def converge(self) -> list[str]:
        """Accept everything until the server is silent; the types in the order in which they came."""
        order = []
        while sent := self.take():
            for short, _, _ in sent:
                order.append(short)
                self.answer({v: k for k, v in types.SHORT.items()}[short])
        return order


def _name_of(resource: object) -> str:
    """The name is field 1 of all four types: tag, one-byte length, text."""
    value: bytes = resource.value  # type: ignore[attr-defined]
    return value[2 : 2 + value[1]].decode()


@pytest.fixture(params=[StateOfTheWorld, Delta])
def client(request: pytest.FixtureRequest) -> Client:
    return Client(request.param())


def test_nothing_is_answered_before_the_first_snapshot(client: Client) -> None:
    """FC-40: an amnesiac server must not empty its client."""
    client.subscribe_all()
    assert client.take() == []
    client.stream.publish(snapshot(a=1, b=1))
    assert client.converge()


def test_order_is_clusters_endpoints_listeners_routes(client: Client) -> None:
    client.stream.publish(snapshot(a=1, b=1))
    client.subscribe_all()
    assert [short for short, _, _ in client.take()] == ["cds", "eds"]
    client.answer(types.ENDPOINT)
    assert client.take() == [], "routes wait until the clusters are answered for"
    client.answer(types.CLUSTER)
    assert [short for short, _, _ in client.take()] == ["lds", "rds"]
    client.answer(types.LISTENER)
    client.answer(types.ROUTE)
    assert client.take() == []
    assert client.stream.settled()


def test_a_client_that_never_answers_for_clusters_still_gets_routes(client: Client) -> None:
    client.stream.publish(snapshot(a=1, b=1))
    client.subscribe_all()
    client.take()
    client.now_s = CLUSTER_WAIT_S + 1
    assert [short for short, _, _ in client.take()] == ["lds", "rds"]


def test_a_weight_change_sends_only_what_changed(client: Client) -> None:
    client.stream.publish(snapshot(a=1, b=1))
    client.subscribe_all()
    client.converge()
    client.stream.publish(snapshot(a=2, b=1))
    assert client.take() == [("eds", ["pool/a"], []), ("rds", ["front"], [])]


def test_one_response_is_open_per_type_and_the_latest_wins(client: Client) -> None:
    client.stream.publish(snapshot(a=1, b=1))
    client.subscribe_all()
    client.converge()
    for weight in range(2, 50):
        client.stream.publish(snapshot(a=weight, b=1))
        if weight == 2:
            assert len(client.take()) == 2
        assert client.take() == []
    client.answer(types.ENDPOINT)
    client.answer(types.ROUTE)
    assert len(client.take()) == 2
    client.answer(types.ENDPOINT)
    client.answer(types.ROUTE)
    assert client.take() == []
    assert client.memory.types[types.ENDPOINT].accepted["pool/a"] == snapshot(a=49).of(types.ENDPOINT)["pool/a"]


def refuse_a_two(client: Client) -> TypeMemory:
    """The client holds a=1 and refuses a=2."""
    client.stream.publish(snapshot(a=1, b=1))
    client.subscribe_all()
    client.converge()
    client.stream.publish(snapshot(a=2, b=1))
    client.take()
    client.answer(types.ROUTE)
    client.answer(types.ENDPOINT, error="pool/a: weight must be odd")
    return client.memory.types[types.ENDPOINT]


def test_fc_44_a_refused_content_is_not_sent_again(client: Client) -> None:
    memory = refuse_a_two(client)
    for _ in range(50):
        client.stream.publish(snapshot(a=2, b=1))
        assert client.take() == []
    assert (memory.nacks, memory.reason) == (1, "pool/a: weight must be odd")
    assert memory.accepted["pool/a"] == snapshot(a=1).of(types.ENDPOINT)["pool/a"]
    client.stream.publish(snapshot(a=3, b=1))
    assert ("eds", ["pool/a"], []) in client.take()
    client.answer(types.ENDPOINT)
    assert (memory.reason, memory.nacked_version) == ("", "")


def test_fc_44_what_was_accepted_before_is_no_longer_refused(client: Client) -> None:
    memory = refuse_a_two(client)
    client.stream.publish(snapshot(a=1, b=1))
    assert all(kind != "eds" for kind, *_ in client.take()), "the client has them"
    assert (memory.reason, memory.nacked_version) == ("", "")
    assert types.ENDPOINT in client.stream.recovered


def test_fc_44_neighbours_of_a_refused_resource_still_change(client: Client) -> None:
    client.stream.publish(snapshot(a=1, b=1))
    client.subscribe_all()
    client.converge()
    client.stream.publish(snapshot(a=2, b=2))
    client.take()
    client.answer(types.ROUTE)
    client.answer(types.ENDPOINT, error="ClusterLoadAssignment pool/a is bad")
    client.stream.publish(snapshot(a=2, b=3))
    assert ("eds", ["pool/b"], []) in client.take()


def one_pool(*addresses: str) -> Snapshot:
    endpoints = tuple(Endpoint(cell_id=a, site="s", address=a, weight=1) for a in addresses)
    routing = Routing(pools=(PoolRouting(model="a", endpoints=endpoints),))
    return SnapshotBuilder(XdsSettings(listen="127.0.0.1:1")).build(routing)


@pytest.mark.parametrize("why", ["ClusterLoadAssignment pool/a is bad", "no"])
def test_fc_44_what_a_refused_set_added_is_known_until_it_is_taken(client: Client, why: str) -> None:
    client.stream.publish(one_pool("10.0.0.1:80"))
    client.subscribe_all()
    client.converge()
    client.stream.publish(one_pool("10.0.0.1:80", "[::1]:81"))
    assert client.stream.refused_addresses() == frozenset()
    client.take()
    client.answer(types.ROUTE)
    client.answer(types.ENDPOINT, error=why)
    assert client.stream.refused_addresses() == {"[::1]:81"}
    client.stream.publish(one_pool("10.0.0.1:80", "10.0.0.2:80"))
    client.take()
    client.answer(types.ROUTE)
    client.answer(types.ENDPOINT)
    assert client.stream.refused_addresses() == frozenset()


def test_fc_44_refused_without_a_name(client: Client) -> None:
    client.stream.publish(snapshot(a=1, b=1))
    client.subscribe_all()
    client.take()
    client.answer(types.CLUSTER, error="no")
    client.answer(types.ENDPOINT, error="no")
    assert [short for short, _, _ in client.take()] == ["lds", "rds"], "routes do not wait for clusters for ever"
    client.answer(types.LISTENER)
    client.answer(types.ROUTE)
    assert client.take() == []
    client.stream.publish(snapshot(a=2, b=1))
    assert ("eds", ["pool/a"], []) in client.take()


def test_fc_44_after_a_reconnect_the_last_accepted_is_served() -> None:
    memory = NodeMemory()
    first = Client(StateOfTheWorld(), memory)
    first.stream.publish(snapshot(a=1, b=1))
    first.subscribe_all()
    first.converge()
    bad = snapshot(a=2, b=1)
    first.stream.publish(bad)
    first.take()
    first.answer(types.ENDPOINT, error="pool/a")
    second = Client(StateOfTheWorld(), memory)
    second.stream.publish(bad)
    second.subscribe(types.ENDPOINT)
    second.take()
    second.answer(types.ENDPOINT)
    assert memory.types[types.ENDPOINT].accepted["pool/a"] == snapshot(a=1).of(types.ENDPOINT)["pool/a"]


def test_fc_44_stale_nonces_are_ignored(client: Client) -> None:
    client.stream.publish(snapshot(a=1, b=1))
    client.subscribe_all()
    client.converge()
    client.stream.publish(snapshot(a=2, b=1))
    old = client.nonces[types.ENDPOINT]
    client.take()
    client.answer(types.ENDPOINT, nonce=old)
    client.answer(types.ENDPOINT, error="late", nonce=old)
    client.stream.publish(snapshot(a=3, b=1))
    assert client.take() == []
    assert client.stream.ignored == 2
    assert client.memory.types[types.ENDPOINT].nacks == 0


def test_unknown_types_are_ignored(client: Client) -> None:
    client.stream.publish(snapshot(a=1))
    client.subscribe("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", ("x",))
    assert client.take() == []
    assert client.stream.ignored == 1


def test_fc_45_an_unknown_assignment_is_answered_as_empty(client: Client) -> None:
    client.stream.publish(snapshot(a=1))
    client.subscribe(types.ENDPOINT, ("pool/a", "pool/nobody"))
    assert client.take() == [("eds", ["pool/a", "pool/nobody"], [])]


def test_fc_45_endpoints_follow_a_changed_cluster_though_unchanged(client: Client) -> None:
    client.stream.publish(snapshot(a=1, b=1))
    client.subscribe_all()
    client.converge()
    slower = XdsSettings(listen="127.0.0.1:1", connect_timeout_s=2.0)
    client.stream.publish(snapshot(settings=slower, a=1, b=1))
    assert client.take() == [("cds", ["pool/a", "pool/b"], []), ("eds", ["pool/a", "pool/b"], [])]


def test_fc_45_removed_and_added_again_with_the_same_endpoints(client: Client) -> None:
    client.stream.publish(snapshot(a=1, b=1))
    client.subscribe_all()
    client.converge()
    client.subscribe(types.ENDPOINT, ("pool/a",))
    client.subscribe(types.ENDPOINT, ("pool/a", "pool/b"))
    assert client.take() == [("eds", ["pool/b"], [])]


def test_a_cluster_goes_only_after_the_routes_that_name_it(client: Client) -> None:
    client.stream.publish(snapshot(a=1, b=1))
    client.subscribe_all()
    client.converge()
    client.stream.publish(snapshot(a=1))
    assert client.take() == [("rds", ["front"], [])]
    assert client.take() == []
    client.answer(types.ROUTE)
    kept, gone = ["pool/a"], ["pool/b"]
    assert client.take() == [("cds", kept, []) if client.sotw else ("cds", [], gone)]


def test_a_cluster_stays_while_routes_are_refused(client: Client) -> None:
    client.stream.publish(snapshot(a=1, b=1))
    client.subscribe_all()
    client.converge()
    client.stream.publish(snapshot(a=1))
    client.take()
    client.answer(types.ROUTE, error="front: bad")
    assert client.take() == []


def test_a_reconnecting_client_is_not_sent_what_it_holds() -> None:
    content = snapshot(a=1, b=1)
    sotw = Client(StateOfTheWorld())
    sotw.stream.publish(content)
    sotw.subscribe(types.CLUSTER, version=content.versions[types.CLUSTER])
    assert sotw.take() == []
    delta = Client(Delta())
    delta.stream.publish(content)
    held = {name: resource.version for name, resource in content.of(types.CLUSTER).items()}
    delta.subscribe(types.CLUSTER, **{**held, "pool/old": "1"})
    assert delta.take() == [("cds", [], ["pool/old"])]


def test_endpoints_are_always_sent_on_a_new_stream(client: Client) -> None:
    """The server before may have died between a cluster and its endpoints."""
    content = snapshot(a=1, b=1)
    client.stream.publish(content)
    client.subscribe(types.ENDPOINT, version=content.versions[types.ENDPOINT])
    assert client.take() == [("eds", ["pool/a", "pool/b"], [])]


def test_delta_says_once_that_a_named_resource_does_not_exist() -> None:
    client = Client(Delta())
    client.stream.publish(snapshot(a=1))
    client.subscribe(types.ROUTE, ("front", "nowhere"))
    assert client.take() == [("rds", ["front"], ["nowhere"])]
    client.answer(types.ROUTE)
    assert client.take() == []


def test_delta_explicit_wildcard_and_names() -> None:
    client = Client(Delta())
    client.stream.publish(snapshot(a=1, b=1))
    client.subscribe(types.CLUSTER, ("pool/a",))
    assert client.take() == [("cds", ["pool/a"], [])]
    client.answer(types.CLUSTER)
    client.subscribe(types.CLUSTER, ("pool/a", "*"))
    assert client.take() == [("cds", ["pool/b"], [])]
