"""What the parser takes from the bodies of each API, and what it refuses (FC-24, FC-25, FC-26, FC-28)."""

import json

import pytest

from tests.unit.requests.asking import CHAT, COMPLETIONS, ask, chat, parsed, refused
from tradewind.gateway.requests.kinds import Kind
from tradewind.gateway.requests.parse import MODEL_HEADER, ParserSettings
from tradewind.gateway.requests.result import ParsedRequest, Refused

LONG = "The harbour was quiet that morning, and nobody had seen the pilot boat leave. " * 20


def test_a_chat_request_is_read() -> None:
    got = parsed(chat(LONG, "Who took the boat?", stream=True, max_completion_tokens=77), tenant="acme")
    request = got.request
    assert (request.model, request.stream, request.max_output_tokens, request.tenant) == ("m", True, 77, "acme")
    assert 300 < request.prompt_tokens < 450
    assert len(request.blocks) == 3
    assert request.block_tokens == pytest.approx(request.prompt_tokens * 512 / (78 * 20 + 40), rel=0.05)
    assert got.kind is Kind.CHAT
    assert got.note == ""


def test_fields_that_are_not_known_change_nothing() -> None:  # FC-25
    plain = parsed(chat(LONG, "hi"))
    vendor = chat(
        LONG,
        "hi",
        return_token_ids=True,
        priority=-3,
        stream_options={"include_usage": True},
        logprobs=True,
        top_logprobs=5,
        n=3,
        response_format={"type": "json_object"},
        x_unknown={"a": 1.0},
    )
    body = json.dumps(vendor, indent=2).encode().replace(b'"priority": -3', b'"priority": 1e400')
    assert parsed(body).request.blocks == plain.request.blocks


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (5, 5),
        ("16", 16),
        (16.0, 16),
        (None, None),
        (-1, None),
        (0, None),
        (True, None),
        ("many", None),
        (1 << 40, None),
    ],
)
def test_max_tokens_is_read_as_engines_read_it(written: object, read: int | None) -> None:
    assert parsed(chat("hi", max_tokens=written)).request.max_output_tokens == read


def test_completions_have_text_or_texts_or_ids() -> None:
    text = parsed({"model": "m", "prompt": LONG}, COMPLETIONS).request
    assert text.max_output_tokens == 16, "the API's default"
    assert len(text.blocks) == 3
    two = parsed({"model": "m", "prompt": [LONG, LONG]}, COMPLETIONS).request
    assert two.blocks == text.blocks, "the first stands for all"
    assert two.prompt_tokens == pytest.approx(2 * text.prompt_tokens, rel=0.06)
    assert two.block_tokens == pytest.approx(text.block_tokens, rel=0.06)


def test_token_ids_are_counted_exactly() -> None:  # FC-54
    ids = list(range(1_000, 1_300))
    request = parsed({"model": "m", "prompt": ids}, COMPLETIONS).request
    assert (request.prompt_tokens, request.exact_tokens, request.block_tokens) == (300, True, 128.0)
    assert len(request.blocks) == 2
    batch = parsed({"model": "m", "prompt": [ids, [1], [2, 3]]}, COMPLETIONS).request
    assert (batch.prompt_tokens, batch.exact_tokens, batch.blocks) == (303, True, request.blocks)
    assert parsed({"model": "m", "input": [1, 2, 3]}, "/v1/embeddings").request.prompt_tokens == 3
    assert parsed({"model": "m", "input": [[1, 2], [3]]}, "/v1/embeddings").request.prompt_tokens == 3


@pytest.mark.parametrize("prompt", [[-1, 2], [1 << 40], [[1], "a"], [], [[]], {}, None, [None], ["a", 1], [[[1]]]])
def test_odd_prompts_are_for_the_engine_to_judge(prompt: object) -> None:
    request = parsed({"model": "m", "prompt": prompt}, COMPLETIONS).request
    assert request.blocks == ()
    assert request.prompt_tokens >= 1


def test_pooling_requests_go_by_model_and_have_no_output() -> None:
    for path, body in (
        ("/v1/embeddings", {"model": "m", "input": [LONG, LONG]}),
        ("/v1/rerank", {"model": "m", "query": "boat", "documents": [LONG] * 2}),
        ("/v1/score", {"model": "m", "text_1": LONG, "text_2": [LONG]}),
    ):
        got = parsed(body, path)
        assert got.kind is Kind.POOLING
        assert (got.request.blocks, got.request.max_output_tokens) == ((), 0)
        assert 550 < got.request.prompt_tokens < 850


def test_responses_by_text_and_by_items() -> None:
    text = parsed({"model": "m", "input": LONG, "instructions": "Be brief", "max_output_tokens": 9}, "/v1/responses")
    items = [{"role": "user", "content": [{"type": "input_text", "text": LONG}]}]
    listed = parsed({"model": "m", "input": items, "instructions": "Be brief"}, "/v1/responses")
    assert text.request.max_output_tokens == 9
    assert len(text.request.blocks) == 3
    assert text.request.blocks == listed.request.blocks


def test_a_follow_up_names_the_response_it_continues() -> None:  # FC-29
    got = parsed({"model": "m", "previous_response_id": "resp_1", "input": LONG}, "/v1/responses")
    assert got.previous_response_id == "resp_1"
    assert got.request.blocks == (), "what comes before this text is not known here"
    lookup = parsed(b"", "/v1/responses/resp_7/cancel?stream=true")
    assert (lookup.kind, lookup.previous_response_id) == (Kind.RESPONSE_LOOKUP, "resp_7")


def test_anthropic_messages_with_tools() -> None:
    body = {
        "model": "m",
        "max_tokens": 5,
        "system": [{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": LONG}]},
        ],
    }
    got = parsed(body, "/v1/messages")
    assert got.kind is Kind.MESSAGES
    assert len(got.request.blocks) == 6
    assert got.request.max_output_tokens == 5
    plain = parsed({**body, "system": LONG}, "/v1/messages")
    assert plain.request.blocks == got.request.blocks, "one text part is that text"


def test_a_form_has_its_model_as_a_field() -> None:  # FC-28
    form = (
        b'--xx\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\nRIFF'
        + bytes(200_000)
        + b'\r\n--xx\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n--xx--\r\n'
    )
    headers = {"content-type": "multipart/form-data; boundary=xx"}
    got = parsed(form, "/v1/audio/transcriptions", headers=headers)
    assert (got.kind, got.request.model, got.request.modalities) == (Kind.AUDIO, "whisper", ("audio",))
    assert refused(form[:100_000], "/v1/audio/transcriptions", headers=headers, partial=True).status == 413
    assert refused(b"--xx--", "/v1/audio/transcriptions", headers=headers).status == 400


def test_the_session_header_is_read_where_it_is_switched_on() -> None:
    headers = {"x-session": "s1"}
    assert parsed(chat("hi"), headers=headers).request.session == ""
    assert (
        parsed(chat("hi"), headers=headers, settings=ParserSettings(session_header="x-session")).request.session == "s1"
    )


GOES_ON = {
    "lone surrogate": b'{"model":"m","messages":[{"role":"user","content":"\\ud83d"}]}',
    "lone surrogate beside": b'{"model":"m","x":["\\ud83d"]}',
    "NaN": b'{"model":"m","temperature":NaN}',
    "huge float": b'{"model":"m","temperature":1e400}',
    "huge float as a limit": b'{"model":"m","max_tokens":1e400}',
    "5000 digits": b'{"model":"m","seed":' + b"1" * 5_000 + b"}",
    "5000 digits as a limit": b'{"model":"m","max_tokens":' + b"1" * 5_000 + b"}",
    "BOM": b'\xef\xbb\xbf{"model":"m"}',
    "UTF-16": '{"model":"m"}'.encode("utf-16"),
    "escaped key": b'{"mod\\u0065l":"m"}',
    "no messages": b'{"model":"m","messages":null}',
    "null message": b'{"model":"m","messages":[null]}',
    "only tool calls": b'{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}]}',
    "content of numbers": b'{"model":"m","messages":[{"role":"user","content":[1,2]}]}',
    "content as an object": b'{"model":"m","messages":[{"role":"user","content":{"a":1}}]}',
    "strings as parts": b'{"model":"m","messages":[{"role":"user","content":["a",{"type":"text","text":"b"}]}]}',
    "odd part": b'{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":5}]}]}',
    "role as a number": b'{"model":"m","messages":[{"role":7,"content":"x"}]}',
    "messages as text": b'{"model":"m","messages":"hi"}',
    "stream as text": b'{"model":"m","stream":"yes"}',
    "deep, but not too deep": b'{"model":"m","tools":' + b"[" * 200 + b"]" * 200 + b"}",
}


@pytest.mark.parametrize("name", sorted(GOES_ON))
def test_what_an_engine_might_accept_goes_on(name: str) -> None:  # FC-24
    request = parsed(GOES_ON[name]).request
    assert request.model == "m"
    assert request.prompt_tokens >= 1


BAD = {
    "empty": b"",
    "blank": b"  \n",
    "null": b"null",
    "list": b"[]",
    "text": b'"x"',
    "number": b"7",
    "not JSON": b"hello",
    "cut off": b'{"model":"m"',
    "two values": b'{"model":"m"} x',
    "bad UTF-8 in the model": b'{"model":"a\xff"}',
    "deep": b'{"model":"m","x":' + b"[" * 100_000,
    "deep and closed": b'{"model":"m","tools":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "model as a number": b'{"model":5}',
    "model as an object": b'{"model":{"a":1}}',
    "no model": b'{"messages":[]}',
    "null model": b'{"model":null}',
    "empty model": b'{"model":""}',
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_the_rest_is_refused_with_400(name: str) -> None:  # FC-24, FC-26
    assert refused(BAD[name]).status == 400
    assert refused(BAD[name], only_model="m", headers={MODEL_HEADER: "m"}).status == 400, "a whole body names its model"


def test_the_last_of_two_models_counts_as_in_the_engine() -> None:  # FC-24
    body = b'{"model":"a","messages":[],"model":"b"}'
    assert parsed(body).request.model == json.loads(body)["model"] == "b"


def test_impossible_model_names_are_unknown_models() -> None:
    for name in ("x" * 1_000_000, "\ud83d"):
        answer = refused(json.dumps({"model": name}).encode())
        assert (answer.status, answer.code) == (404, "model_not_found")
    assert parsed(b'{"model":"a\\u0000b"}').request.model == "a\x00b"


def test_other_paths_go_by_model() -> None:
    assert parsed({"model": "m", "x": 1}, "/v1/fill").kind is Kind.OTHER
    assert parsed({"model": "m", "prompt": "x"}, "/tokenize?x=1").kind is Kind.TOKENIZE


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/v1/responses", "/v1/messages", "/v1/embeddings", "/", ""])
def test_no_body_makes_the_parser_raise(path: str) -> None:
    for body in [*GOES_ON.values(), *BAD.values()]:
        for partial in (False, True):
            assert isinstance(ask(body, path, partial=partial), ParsedRequest | Refused)
