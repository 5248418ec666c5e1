"""Access-log lines and messages as Envoy sends them under our configuration."""

from collections.abc import Iterable

from envoy.service.accesslog.v3 import als_pb2

from tradewind.xds.logline import FIELDS, SEPARATOR, TAG

_PLAIN = {
    "kind": "DownstreamEnd",
    "status": "200",
    "flags": "-",
    "host": "10.0.0.1:80",
    "attempts": "1",
    "route": "pool/0123abcd/org/model",
    "request_bytes": "0",
    "response_bytes": "0",
    "duration_ms": "0",
}


def line(request_id: str = "r", **fields: object) -> bytes:
    """The line of a plain request, with these fields instead."""
    assert not fields.keys() - FIELDS.keys()
    values: dict[str, object] = {"request_id": request_id, **_PLAIN, **fields}
    return SEPARATOR.join(str(values.get(name, "")) for name in FIELDS).encode()


def failed_attempt(request_id: str, host: str, *, status: int = 0, flags: str = "-") -> bytes:
    """The line of an attempt that failed."""
    return line(request_id, kind="UpstreamEnd", host=host, status=status, flags=flags, attempts=0)


def message(lines: Iterable[bytes]) -> bytes:
    """One message of Envoy's with these lines, and some of the fields that it fills unasked."""
    made = als_pb2.StreamAccessLogsMessage()
    for one in lines:
        entry = made.http_logs.log_entry.add()
        entry.common_properties.custom_tags[TAG] = one.decode()
        entry.common_properties.upstream_cluster = "pool/model"
        entry.common_properties.start_time.GetCurrentTime()
        entry.common_properties.duration.FromMilliseconds(900)
        for address in (
            entry.common_properties.downstream_remote_address,
            entry.common_properties.downstream_local_address,
            entry.common_properties.upstream_remote_address,
            entry.common_properties.upstream_local_address,
        ):
            address.socket_address.address, address.socket_address.port_value = "127.0.0.1", 40_000
        entry.request.path = entry.request.original_path = "/v1/chat/completions"
        entry.request.request_id = "0" * 36
        entry.response.response_code.value = 200
    return bytes(made.SerializeToString())
