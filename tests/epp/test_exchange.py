"""One exchange at a time: when it decides, what it answers, and that every decision is told its end exactly once."""

from collections.abc import Iterator

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.epp.fakes import BUSY_MODEL, EMPTY_MODEL, MODEL, RoundRobin
from tradewind.gateway.epp.bodies import read_body, write_body
from tradewind.gateway.epp.exchange import BadExchange, EppCounters, Exchange
from tradewind.gateway.epp.service import Ending, EndKind
from tradewind.gateway.epp.subset import holds, parse_hint
from tradewind.gateway.epp.tokens import UsageReader
from tradewind.lab.epp.cases import chat
from tradewind.lab.epp.script import (
    BUFFERED,
    DUPLEX,
    NONE,
    STREAMED,
    Answer,
    Script,
    answer_bodies,
    answer_headers,
    request_messages,
)
from tradewind.lab.epp.transcript import Transcript

ENDPOINTS = ("10.0.0.1:8000", "10.0.0.2:8000")


class Player:
    """Plays a script against an exchange."""

    def __init__(self, script: Script, *, max_body_bytes: int = 1_000) -> None:
        self.script = script
        self.picker = RoundRobin(ENDPOINTS)
        self.counters = EppCounters()
        self.exchange = Exchange(self.picker, self.counters, max_body_bytes=max_body_bytes)
        self.transcript = Transcript(script)

    def keep(self, answers: list[bytes]) -> list[str]:
        read = [pb.ProcessingResponse.FromString(answer) for answer in answers]
        self.transcript.answers += read
        return [str(answer.WhichOneof("response")) for answer in read]

    def request(self) -> list[list[str]]:
        """The kinds of the answers to each message of the request."""
        return [self.keep(self.exchange.receive(item.SerializeToString())) for item in request_messages(self.script)]

    def answer(self, *, chunks: int | None = None) -> None:
        assert self.script.answer is not None
        messages = [answer_headers(self.script.answer, ENDPOINTS[0]), *answer_bodies(self.script.answer, ENDPOINTS[0])]
        for message in messages[: None if chunks is None else chunks + 1]:
            self.keep(self.exchange.receive(message.SerializeToString()))

    def end(self) -> Ending | None:
        """The one end that was told; None if there was no decision."""
        self.exchange.close()
        self.exchange.close()
        ends = [end for served in self.picker.told.values() for end in served.ends]
        assert len(ends) <= 1
        return ends[0][2] if ends else None


def test_buffered_decides_with_the_body() -> None:
    player = Player(Script(mode=BUFFERED, chunks=(chat(MODEL),)))
    assert player.request() == [["request_headers"], ["request_body"]]
    assert player.transcript.destinations == list(ENDPOINTS)


def test_full_duplex_decides_at_the_end_of_the_body() -> None:
    body = chat(MODEL)
    player = Player(Script(chunks=(body[:5], body[5:], b"")))
    assert player.request() == [[], [], [], ["request_headers", "request_body", "request_body", "request_body"]]
    assert player.transcript.echoed("request_body") == body
    assert player.picker.asked[0][:3] == (len(body), "/v1/chat/completions", False)


@pytest.mark.parametrize("mode", [NONE, STREAMED])
def test_a_mode_that_shows_the_body_too_late_is_decided_by_headers(mode: int) -> None:
    player = Player(Script(mode=mode, chunks=(b"x",)))
    player.picker.pick = lambda body, **more: RoundRobin(ENDPOINTS).pick(chat(MODEL), **more)  # type: ignore[method-assign]
    assert player.request()[0] == ["request_headers"]
    assert player.transcript.destinations == list(ENDPOINTS)


def test_a_body_over_the_limit_is_decided_by_its_beginning_and_passes() -> None:
    body = chat(MODEL, "x" * 3_000)
    player = Player(Script(chunks=tuple(body[at : at + 400] for at in range(0, len(body), 400))))
    answers = player.request()
    assert answers[:3] == [[], [], []]
    assert answers[3] == ["request_headers", *["request_body"] * 3]  # at more than 1,000 bytes
    assert player.transcript.echoed("request_body") == body
    assert player.exchange.held_bytes == 0
    assert player.picker.asked[0][:3] == (1_000, "/v1/chat/completions", True)
    assert player.counters.late == 1


def test_a_body_that_ends_with_the_piece_over_the_limit_is_given_back_with_its_end() -> None:
    body = chat(MODEL, "x" * 1_500)
    player = Player(Script(chunks=(body[:900], body[900:])))
    player.request()
    assert player.transcript.echoed("request_body") == body
    assert player.transcript.ended("request_body")


@pytest.mark.parametrize("mode", [BUFFERED, DUPLEX])
def test_a_large_body_without_a_model_in_its_beginning_is_413(mode: int) -> None:
    player = Player(Script(mode=mode, chunks=(b'{"messages": "', b"x" * 2_000, b'", "model": "demo"}')))
    player.request()
    assert player.transcript.refusal is not None
    assert player.transcript.refusal.status.code == 413
    assert player.exchange.finished
    assert player.end() is None


def test_time_up_decides_by_what_has_come() -> None:
    body = chat(MODEL)
    player = Player(Script(chunks=(body[:-1],), unfinished=True))
    assert player.request() == [[], []]
    assert player.exchange.waits_for_body
    assert player.keep(player.exchange.time_is_up()) == ["request_headers", "request_body"]
    assert player.keep(
        player.exchange.receive(
            pb.ProcessingRequest(request_body=pb.HttpBody(body=b"}", end_of_stream=True)).SerializeToString()
        )
    ) == ["request_body"]
    assert player.transcript.echoed("request_body") == body
    assert player.keep(player.exchange.time_is_up()) == []


def test_time_up_without_the_model_waits_for_the_body() -> None:
    player = Player(Script(chunks=(b'{"messages": [], "mo',), unfinished=True))
    player.request()
    assert player.exchange.time_is_up() == []
    rest = pb.ProcessingRequest(request_body=pb.HttpBody(body=b'del": "demo"}', end_of_stream=True))
    player.keep(player.exchange.receive(rest.SerializeToString()))
    assert player.transcript.destinations == list(ENDPOINTS)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (chat("nobody"), 404, "model_not_found"),
        (chat(BUSY_MODEL), 429, "overloaded"),
        (chat(EMPTY_MODEL), 503, "no_ready_cell"),
        (b"{", 400, "invalid_request"),
    ],
)
def test_a_refusal_ends_the_exchange(body: bytes, status: int, code: str) -> None:
    player = Player(Script(chunks=(body,)))
    player.request()
    refusal = player.transcript.refusal
    assert refusal is not None
    assert refusal.status.code == status
    assert f'"code":"{code}"' in refusal.body.decode().replace(" ", "")
    assert player.exchange.receive(b"anything") == []
    assert player.end() is None


def test_an_empty_hint_is_refused_without_asking() -> None:
    player = Player(Script(chunks=(chat(MODEL),), subset=()))
    player.request()
    assert player.transcript.refusal is not None
    assert player.transcript.refusal.status.code == 503
    assert not player.picker.asked


def test_a_hint_limits_the_list() -> None:
    player = Player(Script(chunks=(chat(MODEL),), subset=f"10.9.9.9:1, {ENDPOINTS[1]}"))
    player.request()
    assert player.transcript.destinations == [ENDPOINTS[1]]


def test_a_whole_response_tells_its_tokens() -> None:
    usage = b'data: {"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":8}}}\n\n'
    answer = Answer(chunks=(b"", b"data: 1\n\n", usage, b"data: [DONE]\n\n"))
    player = Player(Script(chunks=(chat(MODEL),), answer=answer, answer_mode=DUPLEX))
    player.request()
    player.answer()
    size = sum(map(len, answer.chunks))
    assert player.end() == Ending(
        kind=EndKind.COMPLETE, body_bytes=size, prompt_tokens=9, cached_tokens=8, completion_tokens=4
    )
    assert player.picker.told["0"].firsts == 1
    assert player.picker.told["0"].ends[0][:2] == (ENDPOINTS[0], 200)


def test_an_error_has_no_first_token() -> None:
    answer = Answer(status=503, chunks=(b"no",))
    player = Player(Script(chunks=(chat(MODEL),), answer=answer, answer_mode=DUPLEX))
    player.request()
    player.answer()
    assert player.end() == Ending(kind=EndKind.COMPLETE, body_bytes=2)
    assert player.picker.told["0"].firsts == 0


@pytest.mark.parametrize(
    ("answer_mode", "chunks", "end"),
    [
        (DUPLEX, 1, Ending(kind=EndKind.ABORTED, body_bytes=9)),
        (DUPLEX, 0, Ending(kind=EndKind.ABORTED, body_bytes=0)),
        (NONE, 0, Ending(kind=EndKind.HEADERS_ONLY)),
    ],
)
def test_a_response_that_is_not_seen_whole(answer_mode: int, chunks: int, end: Ending) -> None:
    answer = Answer(chunks=(b"data: 1\n\n", b"data: 2\n\n"))
    player = Player(Script(chunks=(chat(MODEL),), answer=answer, answer_mode=answer_mode))
    player.request()
    player.answer(chunks=chunks)
    assert player.end() == end


def test_a_decision_without_a_response_is_unseen() -> None:
    player = Player(Script(chunks=(chat(MODEL),)))
    player.request()
    assert player.end() == Ending(kind=EndKind.UNSEEN)


@pytest.mark.parametrize("message", [b"\xff", b"", b"\x22\x00", b"\x1a\x00"])
def test_what_makes_no_sense_is_refused(message: bytes) -> None:
    with pytest.raises(BadExchange):
        Player(Script()).exchange.receive(message)


def test_headers_come_once() -> None:
    player = Player(Script(chunks=(chat(MODEL),)))
    first = next(request_messages(player.script)).SerializeToString()
    player.exchange.receive(first)
    with pytest.raises(BadExchange):
        player.exchange.receive(first)


def mutations() -> st.SearchStrategy[list[bytes]]:
    """Messages of good scripts, in any order, cut and flipped."""
    scripts = [
        Script(mode=mode, chunks=(chat(MODEL)[:9], chat(MODEL)[9:]), subset=subset, trailers=mode == DUPLEX)
        for mode in (BUFFERED, DUPLEX, STREAMED, NONE)
        for subset in (None, "10.0.0.1", ("10.0.0.2:8000",))
    ]
    answer = Answer(chunks=(b"a", b'{"usage":{"prompt_tokens":1}}'), trailers=True)
    good = [item.SerializeToString() for script in scripts for item in request_messages(script)]
    good += [answer_headers(answer, "x").SerializeToString()]
    good += [item.SerializeToString() for item in answer_bodies(answer, "x")]
    cut = st.tuples(st.sampled_from(good), st.integers(0, 60)).map(lambda pair: pair[0][: -pair[1] or None])
    return st.lists(st.one_of(st.sampled_from(good), cut, st.binary(max_size=40)), max_size=12)


@settings(deadline=None)
@given(mutations(), st.booleans())
def test_no_messages_break_it_and_each_decision_has_one_end(messages: list[bytes], late: bool) -> None:
    player = Player(Script(), max_body_bytes=20)
    for message in messages:
        try:
            player.keep(player.exchange.receive(message))
        except BadExchange:
            break
        if late:
            player.keep(player.exchange.time_is_up())
    player.end()
    assert player.picker.open == []


@settings(deadline=None)
@given(st.binary(max_size=200), st.booleans(), st.booleans(), st.integers(0, 250))
def test_body_messages_read_as_protobuf_reads_them(body: bytes, of_request: bool, last: bool, at_most: int) -> None:
    piece = pb.HttpBody(body=body, end_of_stream=last)
    message = pb.ProcessingRequest(request_body=piece) if of_request else pb.ProcessingRequest(response_body=piece)
    message.metadata_context.filter_metadata["envoy.lb"].update({"a": "b"})
    found = read_body(message.SerializeToString(), at_most=at_most)
    assert found is not None
    assert (found.of_request, found.body, found.last) == (of_request, body[:at_most], last)
    assert pb.ProcessingRequest.FromString(found.rest).metadata_context == message.metadata_context


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_body_messages_are_never_misread(message: bytes) -> None:
    found = read_body(b"\x22" + message, at_most=1_000)
    if found is not None and not found.rest:
        read = pb.ProcessingRequest.FromString(b"\x22" + message).request_body
        assert (read.body, read.end_of_stream) == (found.body, found.last)


@settings(deadline=None)
@given(st.binary(max_size=40_000), st.booleans(), st.booleans())
def test_body_answers_read_as_protobuf_writes_them(body: bytes, of_request: bool, last: bool) -> None:
    answer = pb.ProcessingResponse.FromString(write_body(body, of_request=of_request, last=last))
    kind = "request_body" if of_request else "response_body"
    assert answer.WhichOneof("response") == kind
    piece = getattr(answer, kind).response.body_mutation.streamed_response
    assert (piece.body, piece.end_of_stream) == (body, last)


@pytest.mark.parametrize(
    ("allowed", "address", "expected"),
    [
        (None, "10.0.0.1:80", True),
        (("10.0.0.1:80",), "10.0.0.1:80", True),
        (("10.0.0.1:81",), "10.0.0.1:80", False),
        (("10.0.0.1",), "10.0.0.1:80", True),
        (("10.0.0.1",), "10.0.0.11:80", False),
        (("fd00::1",), "[fd00::1]:80", True),
        (("[fd00::1]",), "[fd00::1]:80", True),
        (("[fd00::1]:81",), "[fd00::1]:80", False),
        ((), "10.0.0.1:80", False),
    ],
)
def test_hints(allowed: tuple[str, ...] | None, address: str, expected: bool) -> None:
    assert holds(allowed, address) is expected


def test_hints_come_as_list_as_text_and_mixed() -> None:
    assert parse_hint(["a:1, b:2", "", "c:3,"]) == ("a:1", "b:2", "c:3")


def pieces(text: bytes, size: int) -> Iterator[bytes]:
    return (text[at : at + size] for at in range(0, len(text), size))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"usage":{"prompt_tokens":5,"completion_tokens":2}}', (5, None, 2)),
        (b'{"usage": null}', (None, None, None)),
        (b'{"usage":{"input_tokens":3,"output_tokens":4,"input_tokens_details":{"cached_tokens":1}}}', (3, 1, 4)),
        (
            b'[{"usage":{"input_tokens":30,"cache_read_input_tokens":20,"output_tokens":1}},{"usage":{"output_tokens":7}}]',
            (30, 20, 7),
        ),
        (b'{"usage":{"prompt_tokens":"many"}}', (None, None, None)),
        (b'{"usage":{"prompt_tokens":5', (None, None, None)),
        (b"\xff\x00", (None, None, None)),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_tokens(text: bytes, expected: tuple[int | None, ...], size: int) -> None:
    reader = UsageReader()
    reader.feed(b"x" * 50_000)
    for piece in pieces(text, size):
        reader.feed(piece)
    assert reader.tokens() == expected
