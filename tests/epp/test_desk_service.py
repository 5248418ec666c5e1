"""The gateway's own decision behind the protocol: what it makes of the end of a request."""

import gzip
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

from tests.unit.gateway.test_desk import desk
from tradewind.core.outcomes import Kind, kind_of
from tradewind.gateway.epp import replies
from tradewind.gateway.epp.service import Ending, EndKind
from tradewind.gateway.pick.epp import DeskPickService
from tradewind.model.decision import Decision, Refusal
from tradewind.model.outcome import Outcome


def test_fc_23_a_bomb_is_413_for_foreign_proxies_too() -> None:
    at = desk()
    service = DeskPickService(
        lambda: at, clock=lambda: 1.0, cell_at=lambda _: None, address_of=lambda _: None, on_outcome=lambda _: None
    )
    found = service.pick(
        gzip.compress(bytes(64 << 20)),
        path="/v1/chat/completions",
        headers={":method": "POST", "content-encoding": "gzip", "x-request-id": "r"},
        partial=False,
        allowed_addresses=None,
    )
    assert isinstance(found, Refusal)
    answer = ProcessingResponse.FromString(replies.refused(found, cut=False)).immediate_response
    assert (found.request_id, answer.status.code) == ("r", 413)


@pytest.mark.parametrize(
    ("body", "method", "model"), [(b'{"model":"m","messages":[]}', "POST", "m"), (b"", "GET", None)]
)
def test_an_outcome_names_the_model_of_its_request(body: bytes, method: str, model: str | None) -> None:
    at, outcomes = desk(), list[Outcome]()
    service = DeskPickService(
        lambda: at, clock=lambda: 1.0, cell_at=lambda _: "a", address_of=lambda _: None, on_outcome=outcomes.append
    )
    headers = {":method": method, "x-request-id": "r"}
    path = "/v1/chat/completions"
    found = service.pick(body, path=path, headers=headers, partial=False, allowed_addresses=None)
    assert isinstance(found, Decision)
    service.served(found.decision_id, "10.0.0.1:80", 200, Ending(kind=EndKind.COMPLETE, body_bytes=5))
    assert [(outcome.request_id, outcome.model) for outcome in outcomes] == [("r", model)]


@dataclass
class OneCell:
    """A desk that always picks the same cell."""

    picker: object = field(
        default_factory=lambda: SimpleNamespace(
            fleet=SimpleNamespace(cells=lambda: [SimpleNamespace(models=("m",))]), first_token=lambda *_: None
        )
    )

    def decide(self, *_: object, **__: object) -> Decision:
        return Decision(decision_id="1", request_id="r", policy="p", cell_id="a", address="10.0.0.1:1")

    def name_of(self, decision_id: str) -> str:
        return decision_id


@pytest.mark.parametrize(
    ("status", "ending", "kind"),
    [
        (200, Ending(kind=EndKind.HEADERS_ONLY), Kind.SERVED),
        (200, Ending(kind=EndKind.COMPLETE, body_bytes=5), Kind.SERVED),
        (200, Ending(kind=EndKind.COMPLETE, body_bytes=0), Kind.FAILURE),
        (500, Ending(kind=EndKind.HEADERS_ONLY), Kind.FAILURE),
        (200, Ending(kind=EndKind.ABORTED, body_bytes=5), Kind.IGNORED),
    ],
)
def test_what_an_end_says_of_its_cell(status: int, ending: Ending, kind: Kind) -> None:
    outcomes: list[Outcome] = []
    service = DeskPickService(
        OneCell,  # type: ignore[arg-type]
        clock=lambda: 0.0,
        cell_at={"10.0.0.1:1": "a"}.get,
        address_of={"a": "10.0.0.1:1"}.get,
        on_outcome=outcomes.append,
    )
    service.pick(b"", path="/v1/models", headers={":method": "GET"}, partial=False, allowed_addresses=None)
    service.served("1", "10.0.0.1:1", status, ending)
    assert [kind_of(outcome) for outcome in outcomes] == [kind]
