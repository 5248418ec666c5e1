"""Access-log lines to outcomes: attempts joined with their request, usage in both forms, nonsense counted."""

import pytest

from tests.support.loglines import failed_attempt, line, message
from tradewind.gateway.accesslog import MAX_REQUESTS_KEPT, AccessLogServer
from tradewind.model.outcome import Outcome
from tradewind.wire.pb import accesslog_pb2 as pb

A, B, SIX = "10.0.0.1:80", "10.0.0.2:80", "[2001:db8::1]:80"
CELLS = {A: "a", B: "b", SIX: "six"}


def outcomes(*lines: bytes) -> list[Outcome]:
    taken: list[Outcome] = []
    server = AccessLogServer(CELLS.get, taken.append)
    for one in lines:
        server.take(one)
    assert server.unparseable == 0
    return taken


def test_a_plain_request() -> None:
    made = line(ttft_us=1500, end_us=2500, duration_ms=2, request_bytes=30, response_bytes=237, retry_after=3)
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
        failed_attempt("r", B, flags="UF"),
        failed_attempt("other", A, flags="UC"),
        failed_attempt("r", SIX, status=503),
        line("r", attempts=3),
    )
    assert outcome.attempted_cells == ("b", "six", "a")
    assert outcome.attempt_failures == ("UF", "503")


def test_the_last_attempt_counts_once_when_it_failed_too() -> None:
    (outcome,) = outcomes(
        failed_attempt("r", B, status=503), failed_attempt("r", A, status=503), line("r", status=503, attempts=2)
    )
    assert outcome.attempted_cells == ("b", "a")
    assert outcome.attempt_failures == ("503",)


def test_a_request_id_used_twice_does_not_mix_attempts() -> None:
    first, second = outcomes(failed_attempt("r", B, flags="UF"), line("r", attempts=2), line("r", host=B, attempts=1))
    assert (first.attempted_cells, second.attempted_cells) == (("b", "a"), ("b",))


def test_attempts_of_requests_that_never_end_are_bounded() -> None:
    server = AccessLogServer(CELLS.get, lambda outcome: None)
    for i in range(MAX_REQUESTS_KEPT + 5):
        server.take(failed_attempt(f"r{i}", A, flags="UF"))
    assert server.forgotten == 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (None, None, None, None)),
        ("11,5,4,", (11, 5, 4, None)),
        ("11,,,", (11, None, None, None)),
        ("7,3,0,400", (7, 3, 0, 400)),
        (",,,0", (None, None, None, 500)),
    ],
)
def test_usage_and_errors_of_an_answer(text: str, expected: tuple[int | None, ...]) -> None:
    (outcome,) = outcomes(line(answer=text))
    found = (outcome.prompt_tokens, outcome.completion_tokens, outcome.cached_tokens, outcome.stream_error_code)
    assert found == expected


def test_the_id_of_a_stored_response_is_kept() -> None:
    (outcome,) = outcomes(line(answer=",,,,resp_1"))
    assert (outcome.stored_id, outcome.prompt_tokens) == ("resp_1", None)


def test_the_decision_is_joined() -> None:
    assert [outcome.decision_id for outcome in outcomes(line(), line(decision="d-1"))] == ["", "d-1"]


def test_engines_that_ended_under_a_request_are_counted_and_the_next_one_is_not_blamed() -> None:
    served, refused, answered = outcomes(line(deaths="1"), line(deaths="2", status=422), line(deaths="2", status=503))
    assert [outcome.deaths for outcome in (served, refused, answered)] == [1, 2, 2]
    assert served.cell_id == answered.cell_id == "a"
    assert refused.cell_id is None  # the gate's own answer: the third engine never saw the request


def test_nobody_reached() -> None:
    (outcome,) = outcomes(line(host="", status=503, flags="UH", attempts=0))
    assert (outcome.cell_id, outcome.attempted_cells, outcome.flags) == (None, (), "UH")


def test_client_cancelled_and_unknown_cell() -> None:
    (outcome,) = outcomes(line(host="10.9.9.9:80", status=0, flags="DC", duration_ms=302))
    assert (outcome.client_cancelled, outcome.cell_id, outcome.ttft_s) == (True, None, None)
    assert outcome.duration_s == 0.302


@pytest.mark.parametrize("retry_after", ["Wed, 21 Oct 2026 07:28:00 GMT", "-1", "1e9", "9999999999", "", "１", "nan"])
def test_odd_retry_after_is_unknown(retry_after: str) -> None:
    (outcome,) = outcomes(line(status=503, retry_after=retry_after))
    assert outcome.retry_after_s is None


@pytest.mark.parametrize(
    "odd",
    [
        line(ttft_us="soon"),
        line(answer="1,2,3"),
        line(answer=",,,1e999"),
        line(answer="nan,,,"),
        line(status=""),
        b"",
        b"UpstreamEnd",
        line().replace(b"\n", b" "),
    ],
)
def test_what_cannot_be_read_is_counted_and_dropped(odd: bytes) -> None:
    taken: list[Outcome] = []
    server = AccessLogServer(CELLS.get, taken.append)
    server.take(odd)
    server.take(line())
    assert (server.entries, server.unparseable, len(taken)) == (2, 1, 1)


def test_text_that_is_not_utf8_costs_no_line() -> None:
    (outcome,) = outcomes(line("r").replace(b"\nr\n", b"\n\xff\xfe\n"))
    assert outcome.request_id == "\ufffd\ufffd"


def test_messages_as_envoy_sends_them_and_entries_without_our_tag() -> None:
    taken: list[Outcome] = []
    server = AccessLogServer(CELLS.get, taken.append)
    foreign = pb.Message()
    foreign.http_logs.log_entry.add()
    for one in (
        pb.Message.FromString(message([line("r1"), line("r2")])),
        foreign,
        pb.Message.FromString(message([line("r3")])),
    ):
        server.take_message(one)
    assert [outcome.request_id for outcome in taken] == ["r1", "r2", "r3"]
    assert server.unparseable == 1
