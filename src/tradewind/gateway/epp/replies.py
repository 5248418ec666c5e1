"""What the picker answers to the proxy, as bytes; answers that repeat are encoded once."""

from enum import Enum
from functools import lru_cache

from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.type.v3 import http_status_pb2

from tradewind.gateway.epp.bodies import write_body
from tradewind.model.decision import Refusal, RefusalKind
from tradewind.xds.routes import error_body

DESTINATION = "x-gateway-destination-endpoint"
SERVED = "x-gateway-destination-endpoint-served"
SUBSET = "x-gateway-destination-endpoint-subset"
LB_NAMESPACE = "envoy.lb"
SUBSET_NAMESPACE = "envoy.lb.subset_hint"
# Of one echoed piece: Envoy's and gRPC's defaults leave room for 64 KiB with framing.
ECHO_BYTES = 62_000
_BUSY_RETRY_AFTER_S = 1.0  # when a refusal that asks for patience does not say how much


class Phase(Enum):
    """Which message of the proxy is answered; the value is the field of ProcessingResponse."""

    REQUEST_HEADERS = "request_headers"
    REQUEST_BODY = "request_body"
    REQUEST_TRAILERS = "request_trailers"
    RESPONSE_HEADERS = "response_headers"
    RESPONSE_BODY = "response_body"
    RESPONSE_TRAILERS = "response_trailers"


@lru_cache(maxsize=len(Phase))
def go_on(phase: Phase) -> bytes:
    """Nothing to change."""
    response = pb.ProcessingResponse()
    getattr(response, phase.value).SetInParent()
    return bytes(response.SerializeToString())


@lru_cache(maxsize=4096)
def picked(phase: Phase, destinations: tuple[str, ...]) -> bytes:
    """Send the request there: the same ordered list as a header and as dynamic metadata."""
    where = ",".join(destinations)
    common = pb.CommonResponse(clear_route_cache=True)
    common.header_mutation.set_headers.append(
        base_pb2.HeaderValueOption(
            header=base_pb2.HeaderValue(key=DESTINATION, raw_value=where.encode()),
            append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
        )
    )
    response = pb.ProcessingResponse()
    getattr(response, phase.value).response.CopyFrom(common)
    response.dynamic_metadata.update({LB_NAMESPACE: {DESTINATION: where}})
    return bytes(response.SerializeToString())


def echoed(phase: Phase, body: bytes, *, last: bool) -> list[bytes]:
    """A body in FULL_DUPLEX_STREAMED, given back as it came, in pieces of at most ECHO_BYTES."""
    of_request = phase is Phase.REQUEST_BODY
    if len(body) <= ECHO_BYTES:
        return [write_body(body, of_request=of_request, last=last)]
    ends = range(ECHO_BYTES, len(body) + ECHO_BYTES, ECHO_BYTES)
    return [
        write_body(body[end - ECHO_BYTES : end], of_request=of_request, last=last and end >= len(body)) for end in ends
    ]


def refused(refusal: Refusal, *, cut: bool) -> bytes:
    """The end of the request, in OpenAI's shape. `cut`: only the beginning of a too large body was read."""
    match refusal.kind:
        case RefusalKind.UNKNOWN_MODEL:
            return immediate(404, refusal.message, code="model_not_found")
        case RefusalKind.TOO_LONG:
            return immediate(400, refusal.message, code="context_length_exceeded")
        case RefusalKind.UNSUPPORTED:
            return immediate(400, refusal.message, code="unsupported_modality")
        case RefusalKind.TOO_LARGE:
            return immediate(413, refusal.message, code="request_too_large")
        case RefusalKind.ENDS_ENGINES:
            return immediate(422, refusal.message, code="request_ends_engines")
        case RefusalKind.UNREADABLE if cut:
            return immediate(413, "The request body is too large to find its model.", code="request_too_large")
        case RefusalKind.UNREADABLE:
            return immediate(400, refusal.message, code="invalid_request")
        case RefusalKind.BUSY:
            after_s = refusal.retry_after_s or _BUSY_RETRY_AFTER_S
            return immediate(429, refusal.message, code="overloaded", kind="rate_limit_error", retry_after_s=after_s)
        case RefusalKind.NO_CELL:
            after_s = refusal.retry_after_s or _BUSY_RETRY_AFTER_S
            return immediate(503, refusal.message, code="no_ready_cell", kind="server_error", retry_after_s=after_s)


def immediate(
    status: int, message: str, *, code: str, kind: str = "invalid_request_error", retry_after_s: float | None = None
) -> bytes:
    """An answer in place of any engine's."""
    mutation = pb.HeaderMutation()
    _set(mutation, "content-type", "application/json")
    if retry_after_s is not None:
        _set(mutation, "retry-after", str(max(1, -int(-retry_after_s // 1))))
    response = pb.ProcessingResponse(
        immediate_response=pb.ImmediateResponse(
            status=http_status_pb2.HttpStatus(code=status),
            headers=mutation,
            body=error_body(message, kind=kind, code=code).encode(),
            details=f"tradewind_{code}",
        )
    )
    return bytes(response.SerializeToString())


def _set(mutation: pb.HeaderMutation, key: str, value: str) -> None:
    mutation.set_headers.append(
        base_pb2.HeaderValueOption(
            header=base_pb2.HeaderValue(key=key, raw_value=value.encode()),
            append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
        )
    )
