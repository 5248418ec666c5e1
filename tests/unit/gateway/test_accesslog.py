"""Access-log entries to outcomes: attempts joined with their request, usage in both forms, nonsense counted."""

from typing import TypeAlias

import pytest
from envoy.data.accesslog.v3 import accesslog_pb2

from tradewind.gateway.accesslog import MAX_REQUESTS_KEPT, AccessLogServer
from tradewind.model.outcome import Outcome

CELLS = {"10.0.0.1:80": "a", "10.0.0.2:80": "b", "[2001:db8::1]:80": "six"}
Entry: TypeAlias = accesslog_pb2.HTTPAccessLogEntry


def entry(request_id: str, address: str = "10.0.0.1", *, status: int = 200, attempts: int = 1, **tags: str) -> Entry:
    made = Entry()
    made.request.request_id = request_id
    made.response.response_code.value = status
    common = made.common_properties
    common.access_log_type = accesslog_pb2.AccessLogType.DownstreamEnd
    common.upstream_request_attempt_count = attempts
    common.route_name = "pool/0123abcd/org/model"
    if address:
        common.upstream_remote_address.socket_address.address = address
        common.upstream_remote_address.socket_address.port_value = 80
    common.custom_tags.update(tags)
    return made


def failed(request_id: str, address: str, *, status: int = 0, flags: str = "-") -> Entry:
    made = entry(request_id, address, status=status, flags=flags)
    made.common_properties.access_log_type = accesslog_pb2.AccessLogType.UpstreamEnd
    return made


def outcomes(*entries: Entry) -> list[Outcome]:
    taken: list[Outcome] = []
    server = AccessLogServer(CELLS.get, taken.append)
    for one in entries:
        server.take(one)
    assert server.unparseable == 0
    return taken


def test_a_plain_request() -> None:
    made = entry("r", flags="-", ttft_us="1500")
    made.common_properties.duration.nanos = 2_500_000
    made.request.request_body_bytes = 30
    made.response.response_body_bytes = 237
    made.response.response_headers["retry-after"] = "3"
    assert outcomes(made) == [
        Outcome(
            request_id="r",
            cell_id="a",
            model="org/model",
            status=200,
            attempts=1,
            attempted_cells=("a",),
            request_bytes=30,
            response_bytes=237,
            ttft_s=0.0015,
            duration_s=0.0025,
            retry_after_s=3.0,
        )
    ]


def test_failed_attempts_are_joined_in_order() -> None:
    (outcome,) = outcomes(
        failed("r", "10.0.0.2", flags="UF"),
        failed("other", "10.0.0.1", flags="UC"),
        failed("r", "2001:db8::1", status=503),
        entry("r", attempts=3),
    )
    assert outcome.attempted_cells == ("b", "six", "a")
    assert outcome.attempt_failures == ("UF", "503")


def test_the_last_attempt_counts_once_when_it_failed_too() -> None:
    (outcome,) = outcomes(
        failed("r", "10.0.0.2", status=503), failed("r", "10.0.0.1", status=503), entry("r", status=503, attempts=2)
    )
    assert outcome.attempted_cells == ("b", "a")
    assert outcome.attempt_failures == ("503",)


def test_a_request_id_used_twice_does_not_mix_attempts() -> None:
    first, second = outcomes(
        failed("r", "10.0.0.2", flags="UF"), entry("r", attempts=2), entry("r", "10.0.0.2", attempts=1)
    )
    assert (first.attempted_cells, second.attempted_cells) == (("b", "a"), ("b",))


def test_attempts_of_requests_that_never_end_are_bounded() -> None:
    server = AccessLogServer(CELLS.get, lambda outcome: None)
    for i in range(MAX_REQUESTS_KEPT + 5):
        server.take(failed(f"r{i}", "10.0.0.1", flags="UF"))
    assert server.forgotten == 5


@pytest.mark.parametrize(
    ("text", "expected"), [("11,5,4", (11, 5, 4)), ("11,,", (11, None, None)), (",,", (None, None, None))]
)
def test_usage_of_a_whole_answer(text: str, expected: tuple[int | None, ...]) -> None:
    made = entry("r")
    made.common_properties.metadata.filter_metadata["tradewind.usage"].update({"answer": text})
    (outcome,) = outcomes(made)
    assert (outcome.prompt_tokens, outcome.completion_tokens, outcome.cached_tokens) == expected


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 3, "cached_tokens": 0}, None),
        ({"prompt_tokens": 7, "completion_tokens": 3, "cached_tokens": 0, "error_code": 400}, 400),
        ({"prompt_tokens": 7, "completion_tokens": 3, "cached_tokens": 0, "error_text": "x"}, 500),
    ],
)
def test_usage_and_errors_of_a_stream(fields: dict[str, object], error: int | None) -> None:
    made = entry("r")
    made.common_properties.metadata.filter_metadata["tradewind.usage"].update(fields)
    (outcome,) = outcomes(made)
    assert (outcome.prompt_tokens, outcome.completion_tokens, outcome.cached_tokens) == (7, 3, 0)
    assert outcome.stream_error_code == error


def test_nobody_reached() -> None:
    made = entry("r", "", status=503, flags="UH")
    (outcome,) = outcomes(made)
    assert (outcome.cell_id, outcome.attempted_cells, outcome.flags) == (None, (), "UH")


def test_client_cancelled_and_unknown_cell() -> None:
    (outcome,) = outcomes(entry("r", "10.9.9.9", status=0, flags="DC", ttft_us="-"))
    assert (outcome.client_cancelled, outcome.cell_id, outcome.ttft_s) == (True, None, None)


@pytest.mark.parametrize("retry_after", ["Wed, 21 Oct 2026 07:28:00 GMT", "-1", "1e9", "9999999999", "", "１", "nan"])
def test_odd_retry_after_is_unknown(retry_after: str) -> None:
    made = entry("r", status=503)
    made.response.response_headers["retry-after"] = retry_after
    (outcome,) = outcomes(made)
    assert outcome.retry_after_s is None


def test_what_cannot_be_read_is_counted_and_dropped() -> None:
    taken: list[Outcome] = []
    server = AccessLogServer(CELLS.get, taken.append)
    server.take(entry("r", ttft_us="soon"))
    odd = entry("r")
    odd.common_properties.metadata.filter_metadata["tradewind.usage"].update({"answer": "1,2"})
    server.take(odd)
    server.take(Entry())
    assert (server.entries, server.unparseable, len(taken)) == (3, 2, 1)
