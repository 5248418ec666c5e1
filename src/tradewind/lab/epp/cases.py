"""The cases over plain gRPC: what a proxy says, and what a picker must answer."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tradewind.lab.epp import checks
from tradewind.lab.epp.checks import Check, alive, gives_back, in_order, picked, refuses, within
from tradewind.lab.epp.pool import Need, Pool
from tradewind.lab.epp.script import BUFFERED, DUPLEX, NONE, STREAMED, Answer, Script
from tradewind.lab.epp.transcript import Transcript

_USAGE = b'"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15}'
_ANSWER = b'{"id":"1","object":"chat.completion","choices":[],' + _USAGE + b"}"
_SSE = (
    b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"lo"}}]}\n\n',
    b'data: {"choices":[],' + _USAGE + b"}\n\n",
    b"data: [DONE]\n\n",
    b"",
)
_NOWHERE = "192.0.2.1:9"  # documentation address: in nobody's pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of the table. `scripts`: each is played, each must fulfil every check of its own."""

    name: str
    proves: str
    scripts: Callable[[Pool], Iterator[tuple[Script, tuple[Check, ...]]]]
    needs: tuple[Need, ...] = ()


def chat(model: str, prompt: str = "Hello", **more: object) -> bytes:
    """The body of a chat completion."""
    return json.dumps({"model": model, "messages": [{"role": "user", "content": prompt}], **more}).encode()


def _split(body: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(body[at : at + size] for at in range(0, len(body), size))


_PICKED = (alive, picked, in_order)
_ECHOED = (*_PICKED, gives_back("request_body"))
_REFUSED = (alive,)
_Plays = Iterator[tuple[Script, tuple[Check, ...]]]


def _one(make: Callable[[Pool], Script], *wanted: Check) -> Callable[[Pool], _Plays]:
    def plays(pool: Pool) -> _Plays:
        yield make(pool), wanted

    return plays


def _both(make: Callable[[Pool], bytes], *wanted: Check) -> Callable[[Pool], _Plays]:
    """The same body in both modes that a decision by the body allows."""

    def plays(pool: Pool) -> _Plays:
        for mode in (BUFFERED, DUPLEX):
            yield Script(mode=mode, chunks=(make(pool),)), wanted

    return plays


def _hinted(subset: Callable[[Pool], tuple[str, ...] | str], *wanted: Check) -> Callable[[Pool], _Plays]:
    def plays(pool: Pool) -> _Plays:
        for mode in (BUFFERED, DUPLEX):
            yield Script(mode=mode, chunks=(chat(pool.model),), subset=subset(pool)), wanted

    return plays


def _hint_of_one(as_text: bool) -> Callable[[Pool], _Plays]:
    """Each endpoint alone is asked for, so that a picker that ignores the hint cannot be lucky."""

    def plays(pool: Pool) -> _Plays:
        for endpoint in pool.endpoints:
            subset = endpoint if as_text else (endpoint,)
            script = Script(mode=DUPLEX, chunks=(chat(pool.model),), subset=subset)
            yield script, (*_ECHOED, within((endpoint,)))

    return plays


def _expected(pool: Pool) -> _Plays:
    for model, endpoints in pool.expect:
        for number in range(4):
            yield Script(mode=DUPLEX, chunks=(chat(model, f"Hello {number}"),)), (*_ECHOED, within(endpoints))


def _bare_address(pool: Pool) -> _Plays:
    host = pool.endpoints[0].rpartition(":")[0].strip("[]")
    same = tuple(entry for entry in pool.endpoints if entry.rpartition(":")[0].strip("[]") == host)
    yield Script(mode=DUPLEX, chunks=(chat(pool.model),), subset=(host,)), (*_ECHOED, within(same))


def _odd_json(pool: Pool) -> _Plays:
    bodies: tuple[bytes, ...] = (b"", b"null", b"[]", b'"x"', b'{"model":5}', b'{"messages":null}', b"\x00" * 64)
    bodies = (*bodies, b"[" * 100_000, b'{"model":"\xff"}', b'["\\ud83d"]')
    bodies = (*bodies, b"\xef\xbb\xbf" + chat(pool.model), chat(pool.model)[:-1])
    for body in bodies:
        yield Script(mode=BUFFERED, chunks=(body,)), (alive, checks.refuses_or_picks(400, 404, 413))


def _answered(script: Script) -> Callable[[Pool], _Plays]:
    def plays(pool: Pool) -> _Plays:
        back = (gives_back("response_body"),) if script.answer_mode == DUPLEX else ()
        for mode in (BUFFERED, DUPLEX):
            full = Script(
                mode=mode, answer_mode=script.answer_mode, chunks=(chat(pool.model, stream=True),), answer=script.answer
            )
            yield full, (*_PICKED, *back)

    return plays


def _broken(pool: Pool) -> _Plays:
    """Whatever is answered to nonsense, the next request is served."""
    for nonsense in (b"\xff\xff\xff", b"", b"\x12\x00", b"\x22\x00"):
        yield Script(raw=(nonsense,)), (_not_silent,)
        yield Script(mode=BUFFERED, chunks=(chat(pool.model),)), _PICKED


def _not_silent(transcript: Transcript, _pool: Pool) -> str:
    return "the stream hangs" if transcript.silent else ""


def _left(pool: Pool) -> _Plays:
    for _ in range(50):
        yield Script(mode=DUPLEX, chunks=(chat(pool.model),), leave_early=True), (picked,)
    yield Script(mode=DUPLEX, chunks=(chat(pool.model),)), _ECHOED


CASES = (
    Case(
        name="buffered",
        proves="BUFFERED: empty answer to the headers, decision with the body, header and metadata agree",
        scripts=_one(lambda pool: Script(mode=BUFFERED, chunks=(chat(pool.model),)), *_PICKED, checks.body_untouched),
    ),
    Case(
        name="duplex",
        proves="FULL_DUPLEX_STREAMED: headers first, then the whole body back, with its end",
        scripts=_one(lambda pool: Script(chunks=(chat(pool.model),)), *_ECHOED),
    ),
    Case(
        name="duplex-end-apart",
        proves="an empty last chunk ends the body, as Envoy sends it",
        scripts=_one(lambda pool: Script(chunks=(chat(pool.model), b"")), *_ECHOED),
    ),
    Case(
        name="duplex-split",
        proves="a body cut anywhere is put together before it is read",
        scripts=_one(lambda pool: Script(chunks=_split(chat(pool.model), 3)), *_ECHOED),
    ),
    Case(
        name="duplex-large",
        proves="a body of 1 MB comes back byte for byte, in pieces that Envoy takes",
        scripts=_one(lambda pool: Script(chunks=_split(chat(pool.model, "x" * 1_000_000), 16_384)), *_ECHOED),
    ),
    Case(
        name="duplex-trailers",
        proves="request trailers are answered, after the body",
        scripts=_one(lambda pool: Script(chunks=(chat(pool.model),), trailers=True), *_ECHOED),
    ),
    Case(
        name="duplex-deadline",
        proves="a body that does not end cannot hold a request for ever: Envoy has no timeout here",
        scripts=_one(
            lambda pool: Script(chunks=(chat(pool.model)[:-1],), unfinished=True), checks.decides_within, picked
        ),
        needs=(Need.DEADLINE,),
    ),
    Case(
        name="headers-only",
        proves="a request without a body (GET) is picked at its headers",
        scripts=_one(lambda _pool: Script(method="GET", path="/v1/models"), *_PICKED),
    ),
    Case(
        name="client-header",
        proves="a destination that a client wrote itself is replaced",
        scripts=_one(
            lambda pool: Script(chunks=(chat(pool.model),), headers=(("x-gateway-destination-endpoint", _NOWHERE),)),
            *_ECHOED,
            checks.overwrites,
        ),
    ),
    Case(
        name="subset-list",
        proves="a subset hint as a list is obeyed, for each endpoint alone",
        scripts=_hint_of_one(as_text=False),
        needs=(Need.TWO_ENDPOINTS,),
    ),
    Case(
        name="subset-text",
        proves="a subset hint as one string is obeyed",
        scripts=_hint_of_one(as_text=True),
        needs=(Need.TWO_ENDPOINTS,),
    ),
    Case(
        name="subset-partial",
        proves="of a hint with strangers in it, the known endpoint is taken",
        scripts=_hinted(lambda pool: f"{_NOWHERE},{pool.endpoints[-1]}", *_PICKED),
        needs=(Need.ENDPOINTS,),
    ),
    Case(
        name="subset-bare-address",
        proves="a hint without a port means every port of that address",
        scripts=_bare_address,
        needs=(Need.ENDPOINTS,),
    ),
    Case(
        name="subset-none",
        proves="a hint that no endpoint fulfils gives 503",
        scripts=_hinted(lambda _pool: (_NOWHERE,), *_REFUSED, refuses(503)),
    ),
    Case(
        name="subset-empty",
        proves="an empty hint gives 503",
        scripts=_hinted(lambda _pool: (), *_REFUSED, refuses(503)),
    ),
    Case(
        name="expected-endpoints",
        proves="a model goes only where it can be served (LoRA, capacity, load)",
        scripts=_expected,
        needs=(Need.EXPECT,),
    ),
    Case(
        name="no-endpoint",
        proves="a model that nothing can serve now gives 503",
        scripts=_both(lambda pool: chat(pool.empty_model), *_REFUSED, refuses(503)),
        needs=(Need.EMPTY,),
    ),
    Case(
        name="busy",
        proves="a model at its limit gives 429 with Retry-After",
        scripts=_both(lambda pool: chat(pool.busy_model), *_REFUSED, refuses(429, retry_after=True)),
        needs=(Need.BUSY,),
    ),
    Case(
        name="unknown-model",
        proves="a model that nobody has gives 404, not a random endpoint",
        scripts=_both(lambda pool: chat(pool.unknown_model), *_REFUSED, refuses(404)),
    ),
    Case(
        name="no-model",
        proves="a body without a model gives 400",
        scripts=_both(lambda _pool: b'{"messages":[{"role":"user","content":"x"}]}', *_REFUSED, refuses(400)),
    ),
    Case(
        name="invalid-json",
        proves="a body that is no JSON gives 400",
        scripts=_both(lambda _pool: b"{model: nonsense", *_REFUSED, refuses(400)),
    ),
    Case(
        name="odd-json",
        proves="odd bodies are refused with 4xx or left to the engine: no 5xx, no broken stream, no hang",
        scripts=_odd_json,
    ),
    Case(
        name="response-headers",
        proves="the response's headers, with the endpoint that served, are answered",
        scripts=_answered(Script(answer_mode=NONE, answer=Answer())),
    ),
    Case(
        name="response-error",
        proves="an engine's error is answered like any response",
        scripts=_answered(Script(answer_mode=DUPLEX, answer=Answer(status=503, chunks=(b'{"error":{}}',)))),
    ),
    Case(
        name="response-json",
        proves="a JSON response in several chunks comes back whole",
        scripts=_answered(Script(answer_mode=DUPLEX, answer=Answer(chunks=_split(_ANSWER, 20)))),
    ),
    Case(
        name="response-sse",
        proves="a stream of events comes back chunk by chunk, with its empty last chunk",
        scripts=_answered(Script(answer_mode=DUPLEX, answer=Answer(content_type="text/event-stream", chunks=_SSE))),
    ),
    Case(
        name="response-streamed",
        proves="STREAMED: each chunk of a response is answered once",
        scripts=_answered(Script(answer_mode=STREAMED, answer=Answer(content_type="text/event-stream", chunks=_SSE))),
    ),
    Case(
        name="response-nonsense",
        proves="a response that is no JSON passes",
        scripts=_answered(Script(answer_mode=DUPLEX, answer=Answer(chunks=(b"{broken", b"\xff\x00")))),
    ),
    Case(
        name="response-trailers",
        proves="response trailers are answered",
        scripts=_answered(Script(answer_mode=DUPLEX, answer=Answer(chunks=(_ANSWER,), trailers=True))),
    ),
    Case(
        name="left-streams",
        proves="streams that the proxy breaks after the decision leave nothing behind that stops the next",
        scripts=_left,
    ),
    Case(
        name="nonsense",
        proves="messages that make no sense end their stream, and only theirs",
        scripts=_broken,
    ),
)
