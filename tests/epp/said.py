"""What a gRPC client says on an HTTP/2 connection, as bytes."""

from tests.epp.fakes import MODEL
from tradewind.gateway.epp import frames
from tradewind.gateway.epp.hpack import literal
from tradewind.lab.epp.cases import chat
from tradewind.lab.epp.script import BUFFERED, Script, request_messages

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
GREETING = frames.PREFACE + frames.settings({})


def headers(path: str = PROCESS, method: str = "POST", content: str = "application/grpc") -> bytes:
    return literal(":method", method) + literal(":path", path) + literal("content-type", content)


def message(payload: bytes) -> bytes:
    return b"\x00" + len(payload).to_bytes(4, "big") + payload


def pick(stream: int, *, last: bool = False) -> bytes:
    """Frames of one request in BUFFERED mode, in frames of the least size."""
    script = Script(mode=BUFFERED, chunks=(chat(MODEL),))
    data = b"".join(message(item.SerializeToString()) for item in request_messages(script))
    return frames.frame(frames.DATA, frames.END_STREAM if last else 0, stream, data)
