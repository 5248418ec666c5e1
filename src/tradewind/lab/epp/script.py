"""A proxy's side of one exchange, as data: what a case says to a picker, and the messages that makes."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from tradewind.gateway.epp.replies import DESTINATION, LB_NAMESPACE, SERVED, SUBSET, SUBSET_NAMESPACE

_MODE = processing_mode_pb2.ProcessingMode
BUFFERED, DUPLEX, STREAMED, NONE = _MODE.BUFFERED, _MODE.FULL_DUPLEX_STREAMED, _MODE.STREAMED, _MODE.NONE
JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an engine would answer; the proxy shows it to the picker."""

    status: int = 200
    content_type: str = JSON
    chunks: tuple[bytes, ...] = ()  # the last one ends the body
    trailers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One exchange. `mode`: of the request's body; `answer_mode`: of the response's."""

    mode: int = DUPLEX
    answer_mode: int = NONE
    method: str = "POST"
    path: str = "/v1/chat/completions"
    chunks: tuple[bytes, ...] = ()  # of the request; none = it ends with its headers
    headers: tuple[tuple[str, str], ...] = ()
    subset: tuple[str, ...] | str | None = None  # a list, one string with commas, or no hint
    trailers: bool = False  # the request ends with trailers
    unfinished: bool = False  # the body's end never comes
    answer: Answer | None = None
    leave_early: bool = False  # the proxy breaks the stream once it has the decision
    raw: tuple[bytes, ...] = field(default=())  # say these bytes, whatever they are, and nothing else

    @property
    def body(self) -> bytes:
        """The request's body as a whole."""
        return b"".join(self.chunks)


def request_messages(script: Script) -> Iterator[pb.ProcessingRequest]:
    """The messages up to the end of the request."""
    told = {":method": script.method, ":scheme": "http", ":authority": "epp.test", ":path": script.path}
    told |= {"content-type": JSON, "x-request-id": "conformance", **dict(script.headers)}
    first = pb.ProcessingRequest(
        request_headers=pb.HttpHeaders(headers=_header_map(told), end_of_stream=not script.chunks)
    )
    first.protocol_config.request_body_mode = script.mode
    first.protocol_config.response_body_mode = script.answer_mode
    yield _hinted(first, script)
    pieces = (b"".join(script.chunks),) if script.mode == BUFFERED and script.chunks else script.chunks
    for number, piece in enumerate(pieces, 1):
        ends = number == len(pieces) and not script.trailers and not script.unfinished
        body = pb.ProcessingRequest(request_body=pb.HttpBody(body=piece, end_of_stream=ends))
        yield _hinted(body, script)
    if script.trailers:
        yield pb.ProcessingRequest(request_trailers=pb.HttpTrailers(trailers=_header_map({"x-checksum": "1"})))


def answer_headers(answer: Answer, destination: str) -> pb.ProcessingRequest:
    """The response's headers, with the endpoint that served."""
    told = {":status": str(answer.status), "content-type": answer.content_type}
    message = pb.ProcessingRequest(
        response_headers=pb.HttpHeaders(headers=_header_map(told), end_of_stream=not answer.chunks)
    )
    return _served(message, destination)


def answer_bodies(answer: Answer, destination: str) -> Iterator[pb.ProcessingRequest]:
    """The response's body and trailers."""
    for number, chunk in enumerate(answer.chunks, 1):
        ends = number == len(answer.chunks) and not answer.trailers
        yield _served(pb.ProcessingRequest(response_body=pb.HttpBody(body=chunk, end_of_stream=ends)), destination)
    if answer.trailers:
        yield pb.ProcessingRequest(response_trailers=pb.HttpTrailers(trailers=_header_map({"x-done": "1"})))


def _hinted(message: pb.ProcessingRequest, script: Script) -> pb.ProcessingRequest:
    if script.subset is not None:
        value = script.subset if isinstance(script.subset, str) else list(script.subset)
        message.metadata_context.filter_metadata[SUBSET_NAMESPACE].update({SUBSET: value})
    return message


def _served(message: pb.ProcessingRequest, destination: str) -> pb.ProcessingRequest:
    message.metadata_context.filter_metadata[LB_NAMESPACE].update({DESTINATION: destination, SERVED: destination})
    return message


def _header_map(headers: dict[str, str]) -> base_pb2.HeaderMap:
    return base_pb2.HeaderMap(
        headers=[base_pb2.HeaderValue(key=name, raw_value=value.encode()) for name, value in headers.items()]
    )
