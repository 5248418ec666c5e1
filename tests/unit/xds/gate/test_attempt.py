"""What the gate does with the attempts of a request: what it holds, changes, counts and refuses."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.xds.gate.host import (
    DEATHS,
    EMPTY_ENDS,
    ERRORS,
    HELD,
    HOLD,
    MOST_HELD_BYTES,
    OVER_BOUND,
    PASS,
    REFUSED,
    RELEASED,
    attempt,
    feed,
    held_stream,
)

COMMENT = b": keep-alive\n\n"
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\r\n\r\n'
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
FAILURE = b'data: {"error":{"message":"EngineCore died","code":500}}\n\n'


@pytest.mark.parametrize(
    ("status", "content_type", "encoding"),
    [
        (b"503", b"text/event-stream", b""),
        (b"201", b"text/event-stream", b""),
        (b"200", b"application/json", b""),
        (b"200", b"", b""),
        (b"200", b"text/event", b""),
        (b"200", b"text/event-stream", b"gzip"),
    ],
)
def test_what_is_no_event_stream_passes_at_once(status: bytes, content_type: bytes, encoding: bytes) -> None:
    with attempt(status=status, content_type=content_type, encoding=encoding) as one:
        assert one.request() == PASS
        assert one.headers() == PASS
        assert one.body(FAILURE, end=True) == PASS
        one.end()
        assert (one.passed(), one.status, one.count(HELD), one.deaths) == (FAILURE, "", 0, 0)


def test_a_stream_is_held_until_its_first_token_and_passes_unchanged() -> None:
    with held_stream() as one:
        assert feed(one, (COMMENT, ROLE, TOKEN[:30])) == HOLD
        assert one.passed() == b""
        assert one.body(TOKEN[30:] + FAILURE) == PASS
        assert one.body(FAILURE, end=True) == PASS
        one.end()
        assert one.passed() == COMMENT + ROLE + TOKEN + FAILURE + FAILURE
        assert (one.status, one.count(HELD), one.count(RELEASED), one.deaths) == ("", 1, 1, 0)


@given(st.lists(st.sampled_from([COMMENT, ROLE, b"data:\r\r"]), max_size=4), st.lists(st.integers(1, 40), min_size=1))
@settings(max_examples=100, deadline=None)
def test_a_stream_passes_whole_however_it_is_split(before: list[bytes], sizes: list[int]) -> None:
    text = b"".join(before) + TOKEN
    with held_stream() as one:
        at, number = 0, 0
        while at < len(text):
            size = sizes[number % len(sizes)]
            action = one.body(text[at : at + size])
            at, number = at + size, number + 1
            assert action == (HOLD if at < len(text) - 1 else PASS) or at >= len(text) - 1
        assert one.passed() == text
        assert one.count(RELEASED) == 1


def test_an_error_instead_of_a_token_becomes_a_status_on_which_envoy_retries() -> None:
    with held_stream() as one:
        assert feed(one, (COMMENT, FAILURE + b"data: [DONE]\n\n", b"data: [DONE]\n\n")) == PASS
        assert one.body(b"", end=True) == PASS
        one.end()
        assert (one.status, one.content_type) == ("502", "application/json")
        assert one.passed() == FAILURE[6:].rstrip() + b"\n", "the client is told what the engine said, and no more"
        assert (one.count(ERRORS), one.count(DEATHS), one.deaths) == (1, 1, 1)


def test_an_error_without_an_object_is_told_as_one() -> None:
    with held_stream() as one:
        assert one.body(b"event: error\ndata: no\n\n") == PASS
        assert b'"code":"engine_error"' in one.passed()


@pytest.mark.parametrize("chunks", [(), (COMMENT,), (COMMENT, ROLE), (ROLE[:-2],)])
def test_a_stream_that_ends_without_a_token_is_retried(chunks: tuple[bytes, ...]) -> None:
    with held_stream() as one:
        feed(one, chunks)
        assert one.body(b"", end=True) == PASS
        one.end()
        assert (one.status, one.count(EMPTY_ENDS), one.deaths) == ("502", 1, 1)
        assert b'"code":"empty_answer"' in one.passed()


def test_an_answer_of_headers_alone_and_one_that_ends_with_trailers_are_empty_too() -> None:
    with attempt() as one:
        one.request()
        assert one.headers(end=True) == PASS
        assert one.status == "502"
    with held_stream() as one:
        assert one.body(ROLE) == HOLD
        assert one.trailers() == PASS
        assert one.status == "502"


def test_a_last_event_without_its_empty_line_is_judged_at_the_end() -> None:
    with held_stream() as one:
        assert one.body(ROLE + TOKEN[:-2]) == HOLD
        assert one.body(b"", end=True) == PASS
        assert (one.status, one.passed()) == ("", ROLE + TOKEN[:-2])
    with held_stream() as one:
        assert one.body(FAILURE[:-2], end=True) == PASS
        assert one.status == "502"


def test_what_is_held_is_bounded() -> None:
    comment = b": " + b"x" * 1000 + b"\n\n"
    with held_stream() as one:
        rounds = 0
        while one.body(comment) == HOLD:
            rounds += 1
            assert rounds * len(comment) <= MOST_HELD_BYTES
        assert rounds == MOST_HELD_BYTES // len(comment)
        assert one.passed() == comment * (rounds + 1)
        assert (one.count(OVER_BOUND), one.count(RELEASED)) == (1, 0)


def test_a_stream_in_very_small_pieces_costs_no_more_than_a_bound() -> None:
    with held_stream() as one:
        rounds = 0
        while one.body(b"data: {\n") == HOLD:
            rounds += 1
            assert rounds < 4000
        assert one.count(OVER_BOUND) == 1


def test_an_engine_that_ends_under_a_request_is_counted() -> None:
    for chunks in ((), (ROLE,)):
        with held_stream() as one:
            feed(one, chunks)
            one.end()
            assert (one.deaths, one.count(DEATHS)) == (1, 1)
    with attempt(deaths=1) as one:
        one.request()
        one.end()
        assert one.deaths == 2, "before the headers it counts as well"


@pytest.mark.parametrize(
    ("connected", "client_gone", "served"), [(False, False, False), (True, True, False), (True, False, True)]
)
def test_a_refused_connection_a_client_that_leaves_and_a_lost_race_are_no_deaths(
    connected: bool, client_gone: bool, served: bool
) -> None:
    with attempt() as one:
        one.request()
        one.end(connected=connected, client_gone=client_gone, served=served)
        assert (one.deaths, one.count(DEATHS)) == (0, 0)


@pytest.mark.parametrize(("limit_ms", "now_ms", "deaths"), [(b"500", 400, 1), (b"500", 500, 0), (b"x", 500, 1)])
def test_an_attempt_that_envoy_ended_at_its_limit_is_no_death(limit_ms: bytes, now_ms: int, deaths: int) -> None:
    with attempt(limit_ms=limit_ms) as one:
        one.request()
        one.headers()
        one.end(now_ms=now_ms)
        assert one.deaths == deaths


@pytest.mark.parametrize(("deaths", "refused"), [(0, False), (1, False), (2, True), (3, True)])
def test_no_third_engine_is_given_a_request_that_ended_two(deaths: int, refused: bool) -> None:
    with attempt(deaths=deaths) as one:
        assert one.request() == (HOLD if refused else PASS)
        assert (one.refused, one.count(REFUSED)) == (refused, int(refused))
        if refused:
            one.end()
            assert one.deaths == deaths
