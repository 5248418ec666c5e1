"""What a gRPC client says on an HTTP/2 connection, as bytes."""

from tests.epp import wire
from tests.epp.fakes import MODEL
from tradewind.lab.epp.cases import chat
from tradewind.lab.epp.script import BUFFERED, Script, request_messages

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
GREETING = wire.PREFACE + wire.settings({})


def headers(path: str = PROCESS, method: str = "POST", content: str = "application/grpc") -> bytes:
    return wire.block((":method", method), (":path", path), ("content-type", content))


def message(payload: bytes) -> bytes:
    return b"\x00" + len(payload).to_bytes(4, "big") + payload


def pick(stream: int, *, last: bool = False) -> bytes:
    """Frames of one request in BUFFERED mode, in frames of the least size."""
    script = Script(mode=BUFFERED, chunks=(chat(MODEL),))
    data = b"".join(message(item.SerializeToString()) for item in request_messages(script))
    return wire.frame(wire.DATA, wire.END_STREAM if last else 0, stream, data)
