"""A picker on grpc.aio, apart from the product's server: right by default, or wrong in one named way."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.type.v3 import http_status_pb2

from tests.epp.fakes import MODEL, model_of

DESTINATION = "x-gateway-destination-endpoint"
WRONGS = {
    # the fault -> a case that must fail for it
    "no-metadata": "buffered",
    "other-metadata": "duplex",
    "hostname": "headers-only",
    "twice": "duplex",
    "stranger": "buffered",
    "appends": "client-header",
    "no-echo": "duplex-split",
    "cut-echo": "duplex-large",
    "huge-echo": "duplex-large",
    "no-end": "duplex-end-apart",
    "body-first": "duplex",
    "ignores-subset": "subset-list",
    "subset-list-only": "subset-text",
    "random-on-empty-subset": "subset-empty",
    "500-on-bad-json": "odd-json",
    "crashes-on-bad-json": "invalid-json",
    "routes-unknown-model": "unknown-model",
    "plain-text-errors": "no-model",
    "rewrites-body": "buffered",
    "silent-on-response": "response-headers",
    "drops-last-chunk": "response-sse",
    "mixes-streams": "parallel",
    "not-serving": "health",
    "serves-everything": "health-unknown",
}


class Picker:
    """One picker; `wrong` is a key of WRONGS, or "" for none."""

    def __init__(self, endpoints: tuple[str, ...], wrong: str) -> None:
        self.endpoints = endpoints
        self.wrong = wrong
        self.last_body = b""

    async def process(
        self, requests: AsyncIterator[pb.ProcessingRequest], context: object
    ) -> AsyncIterator[pb.ProcessingResponse]:
        body, duplex, subset, decided = b"", False, None, False
        async for request in requests:
            kind: str | None = request.WhichOneof("request")
            subset = hint(request, lists_only=self.wrong == "subset-list-only") or subset
            match kind:
                case "request_headers":
                    duplex = request.protocol_config.request_body_mode == 4
                    duplex_answer = request.protocol_config.response_body_mode == 4
                    if request.request_headers.end_of_stream:
                        yield self.picked("request_headers", subset)
                    elif not duplex:
                        yield pb.ProcessingResponse(request_headers=pb.HeadersResponse())
                case "request_body" if not decided:
                    body += request.request_body.body
                    if request.request_body.end_of_stream:
                        decided = True
                        for answer in await self.decide(body, subset, duplex=duplex):
                            yield answer
                case "request_trailers":
                    if not decided:
                        decided = True
                        for answer in await self.decide(body, subset, duplex=duplex, last=False):
                            yield answer
                    yield pb.ProcessingResponse(request_trailers=pb.TrailersResponse())
                case "response_headers" if self.wrong != "silent-on-response":
                    yield pb.ProcessingResponse(response_headers=pb.HeadersResponse())
                case "response_body":
                    answer = request.response_body
                    if self.wrong == "drops-last-chunk" and answer.end_of_stream:
                        continue
                    yield echo("response_body", answer.body, answer.end_of_stream, streamed=duplex_answer)
                case "response_trailers":
                    yield pb.ProcessingResponse(response_trailers=pb.TrailersResponse())
                case _:
                    pass

    async def decide(
        self, body: bytes, subset: list[str] | None, *, duplex: bool, last: bool = True
    ) -> list[pb.ProcessingResponse]:
        refusal = self.refusal(body, subset)
        if refusal is not None:
            return [refusal]
        if not duplex:
            return [self.picked("request_body", subset)]
        if self.wrong == "mixes-streams":
            self.last_body = body
            await asyncio.sleep(0.05)  # others come in between
            body = self.last_body
        answers = [self.picked("request_headers", subset), *self.echoed(body, last=last)]
        return answers[::-1] if self.wrong == "body-first" else answers

    def refusal(self, body: bytes, subset: list[str] | None) -> pb.ProcessingResponse | None:
        obeys = self.wrong not in {"ignores-subset", "random-on-empty-subset"}
        if subset is not None and obeys and not [entry for entry in self.endpoints if allowed(entry, subset)]:
            return self.immediate(503)
        try:
            json.loads(body)
        except (ValueError, RecursionError):
            if self.wrong == "crashes-on-bad-json":
                raise
            return self.immediate(500 if self.wrong == "500-on-bad-json" else 400)
        model = model_of(body, partial=False)
        if model is None:
            return self.immediate(400)
        known = model == MODEL or self.wrong == "routes-unknown-model"
        return None if known else self.immediate(404)

    def picked(self, kind: str, subset: list[str] | None) -> pb.ProcessingResponse:
        usable = [entry for entry in self.endpoints if subset is None or allowed(entry, subset)] or [self.endpoints[0]]
        if self.wrong == "ignores-subset":
            usable = list(self.endpoints)
        chosen = {"hostname": "gpu-1.example:80", "stranger": "192.0.2.7:80"}.get(self.wrong, ",".join(usable))
        if self.wrong == "twice":
            chosen = f"{chosen},{chosen}"
        option = base_pb2.HeaderValueOption(
            header=base_pb2.HeaderValue(key=DESTINATION, raw_value=chosen.encode()),
            append_action=1 if self.wrong == "appends" else 2,
        )
        response = pb.ProcessingResponse()
        common = getattr(response, kind).response
        common.header_mutation.set_headers.append(option)
        if self.wrong == "rewrites-body" and kind == "request_body":
            common.body_mutation.body = b"{}"
        if self.wrong != "no-metadata":
            told = "192.0.2.8:80" if self.wrong == "other-metadata" else chosen
            response.dynamic_metadata.update({"envoy.lb": {DESTINATION: told}})
        return response

    def echoed(self, body: bytes, *, last: bool) -> list[pb.ProcessingResponse]:
        if self.wrong == "no-echo":
            return []
        size = len(body) if self.wrong == "huge-echo" else 60_000
        pieces = [body[at : at + size] for at in range(0, max(1, len(body)), max(1, size))]
        if self.wrong == "cut-echo":
            pieces[0] = pieces[0][:-1]
        ends = last and self.wrong != "no-end"
        return [
            echo("request_body", piece, ends and number == len(pieces), streamed=True)
            for number, piece in enumerate(pieces, 1)
        ]

    def immediate(self, status: int) -> pb.ProcessingResponse:
        body = b'{"error":{"message":"no","type":"invalid_request_error","code":"no","param":null}}'
        if self.wrong == "plain-text-errors":
            body = b"no"
        return pb.ProcessingResponse(
            immediate_response=pb.ImmediateResponse(status=http_status_pb2.HttpStatus(code=status), body=body)
        )

    async def health(self, request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        known = request in {b"", b"\x0a\x2c" + b"envoy.service.ext_proc.v3.ExternalProcessor"[:44]}
        if not known and b"ExternalProcessor" not in request and self.wrong != "serves-everything":
            await context.abort(grpc.StatusCode.NOT_FOUND, "")
        return b"\x08\x02" if self.wrong == "not-serving" else b"\x08\x01"


def echo(kind: str, body: bytes, last: bool, *, streamed: bool) -> pb.ProcessingResponse:
    response = pb.ProcessingResponse()
    getattr(response, kind).SetInParent()
    if streamed:
        piece = pb.StreamedBodyResponse(body=body, end_of_stream=last)
        getattr(response, kind).response.body_mutation.streamed_response.CopyFrom(piece)
    return response


def hint(request: pb.ProcessingRequest, *, lists_only: bool) -> list[str] | None:
    spaces = request.metadata_context.filter_metadata
    if "envoy.lb.subset_hint" not in spaces:
        return None
    value = spaces["envoy.lb.subset_hint"].fields["x-gateway-destination-endpoint-subset"]
    if value.HasField("list_value"):
        return [item.string_value for item in value.list_value.values] or ["none"]
    return None if lists_only else value.string_value.split(",")


def allowed(endpoint: str, subset: list[str]) -> bool:
    return endpoint in subset or endpoint.rpartition(":")[0] in subset


@asynccontextmanager
async def serving(endpoints: tuple[str, ...], wrong: str = "") -> AsyncIterator[str]:
    """The address of such a picker."""
    picker = Picker(endpoints, wrong)
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)))
    process = grpc.stream_stream_rpc_method_handler(
        picker.process, pb.ProcessingRequest.FromString, pb.ProcessingResponse.SerializeToString
    )
    check = grpc.unary_unary_rpc_method_handler(picker.health)
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler("envoy.service.ext_proc.v3.ExternalProcessor", {"Process": process}),
            grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check}),
        )
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)
