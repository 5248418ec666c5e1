"""The gate's reading of server-sent events: which of them hold no token."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.xds.gate import model
from tests.unit.xds.gate.host import ERROR, NOTHING, TOKEN, judge


def chat(delta: str, *, more: str = "") -> str:
    return (
        f'data: {{"id":"c","choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":null{more}}}]}}\n\n'
    )


def typed(kind: str, inside: str = "") -> str:
    return f'event: {kind}\ndata: {{"type":"{kind}"{inside}}}\n\n'


ROLE = chat('{"role":"assistant","content":""}')
PROMPT_COUNT = ROLE.replace("]}\n", '],"usage":{"prompt_tokens":3}}\n')
HOLDS_NOTHING = [
    ": keep-alive\n\n",
    ":\n\n",
    "\n",
    "\r\r\n\n",
    "data\n\n",
    "data:\n\n",
    "data: \r\n\r\n",
    "id: 7\nretry: 10\n\n",
    "event: ping\n\n",
    "\ufeffdata: \n\n",
    ROLE,
    PROMPT_COUNT,
    ROLE.replace("\n", "\r"),
    ROLE.replace("data: ", "data:"),
    "\ufeff" + ROLE,
    'data: {"choices":[{"index":0,\ndata: "delta":\ndata: {}}]}\n\n',
    chat('{"role":"assistant","content":null}'),
    chat('{"content":"","reasoning_content":null,"tool_calls":[]}', more=',"stop_reason":null'),
    chat("{}"),
    'data: {"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":null}]}\n\n',
    'data: {"choices":[]}\n\n',
    'data: {"choices":[],"usage":null}\n\n',
    'data: {"choices":[],"error":null}\n\n',
    typed("ping"),
    typed("message_start", ',"message":{"id":"m","content":[],"usage":{"input_tokens":3}}'),
    typed("content_block_start", ',"index":0,"content_block":{"type":"text","text":""}'),
    typed("response.created", ',"response":{"id":"r","instructions":"Be brief.","output":[],"error":null}'),
    'data: {"response":{"id":"r","output":[]},"sequence_number":0,"type":"response.in_progress"}\n\n',
    typed("response.queued"),
    typed("response.output_item.added", ',"item":{"id":"i","type":"message","status":"x","role":"a","content":[]}'),
    typed("response.content_part.added", ',"part":{"type":"output_text","text":"","annotations":[]}'),
    'event: message_start\ndata: {"message":{"content":[]}}\n\n',
]
MAY_HOLD_A_TOKEN = [
    "data: [DONE]\n\n",
    "data: text\n\n",
    'data: "text"\n\n',
    "data: null\n\n",
    "data: {}\n\n",
    'data: {"choices":[{"index":0,"delta":{"content":""}\n\n',
    'data: {"choices":[]} {}\n\n',
    'data: {"choices":[],}\n\n',
    'data: {"choices":null}\n\n',
    'data: {"choices":[],"a\n\n',
    'data: {"choices":[],"a\\\n\n',
    'data: {"choices":[' + "[" * 40 + "]" * 40 + "]}\n\n",
    chat('{"content":"a"}'),
    chat('{"content":" "}'),
    chat('{"role":"assistant","content":"","reasoning_content":"a"}'),
    chat('{"tool_calls":[{"index":0,"function":{"name":"f"}}]}'),
    chat('{"c\\u006fntent":"a"}'),
    chat('{"content":"a","content":""}'),
    chat("{}").replace('finish_reason":null', 'finish_reason":"stop"'),
    ROLE.replace("]}\n", '],"choices":[{"delta":{"content":"a"}}]}\n'),
    'data: {"choices":[{"text":"a"}]}\n\n',
    'data: {"choices":[],"usage":{"prompt_tokens":3}}\n\n',
    'data: {"error":true}\n\n',
    'data: {"error":{"message":"cut off\n\n',
    'data: {"error":{"message":"too long","code":400}}\n\n',
    'data: {"error":{"message":"too long","type":"BadRequestError","code":null}}\n\n',
    'event: error\ndata: {"type":"error","error":{"type":"invalid_request_error"}}\n\n',
    typed("content_block_start", ',"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}'),
    typed("content_block_start", ',"content_block":{"type":"text","text":"a"}'),
    typed("content_block_delta", ',"delta":{"text":"a"}'),
    typed("message_start", ',"message":{"content":[{"type":"text","text":"a"}]}'),
    typed("response.created", ',"response":{"output":[{"type":"message"}]}'),
    typed("response.created", ',"response":[{"a":"b"}]'),
    'data: {"choices":[[{"index":0}]]}\n\n',
    typed("response.output_item.added", ',"item":{"type":"function_call","name":"f","arguments":""}'),
    typed("response.output_text.delta", ',"delta":"a"'),
    typed("response.failed", ',"response":{"error":{"code":"server_error"}}'),
    "event: message_stop\ndata: {}\n\n",
    'unknown: {"field":1}\n',
    '{"token":"a"}\n',
    "dat: x\n",
]
IS_AN_ERROR = [
    'data: {"error":{"message":"EngineCore died","type":"InternalServerError","code":500}}\n\n',
    'data: {"id":"c","error":"failed"}\n\n',
    'data: {"error":{"code":429}}\n\n',
    'data: {"error":{"code":"server_error","message":"x"}}\n\n',
    'data: {"object":"error","message":"x","code":500}\n\n',
    'data: {"type":"error","error":{"type":"overloaded_error"}}\n\n',
    "event: error\n\n",
    "event: error\ndata: failed\n\n",
    'data: {"message":"x"}\nevent:error\n\n',
]
TABLE = [
    *((text, NOTHING) for text in HOLDS_NOTHING),
    *((text, TOKEN) for text in MAY_HOLD_A_TOKEN),
    *((text, ERROR) for text in IS_AN_ERROR),
]


@pytest.mark.parametrize(("text", "verdict"), TABLE)
def test_an_event_is_judged(text: str, verdict: int) -> None:
    assert judge(text.encode())[0] == verdict


@pytest.mark.parametrize("text", [text for text, _ in TABLE if not text.startswith(("unknown", "{", "dat: "))])
def test_an_event_is_judged_when_it_is_whole_and_not_before(text: str) -> None:
    data = text.encode()
    whole = data.rstrip(b"\r\n")
    for cut in range(len(whole)):
        assert judge(data[:cut]) == (NOTHING, 0) or data[:cut].strip(b"\r\n\xef\xbb\xbf") == b""


def test_what_was_judged_need_not_be_read_again() -> None:
    events = [b": keep-alive\n\n", ROLE.encode(), b"data: {}\n\n", b"data: more\n\n"]
    text = b"".join(events)
    assert judge(text) == (TOKEN, len(b"".join(events[:3])))
    assert judge(b"".join(events[:2]) + b"data: {") == (NOTHING, len(b"".join(events[:2])))


@given(model.streams)
@settings(max_examples=150, deadline=None)
def test_the_model_in_python_says_the_same(stream: tuple[bytes, int]) -> None:
    text, verdict = stream
    assert judge(text)[0] == verdict


@given(st.lists(st.sampled_from([text.encode() for text, _ in TABLE]), max_size=4), st.data())
@settings(max_examples=100, deadline=None)
def test_splitting_a_stream_changes_nothing(events: list[bytes], data: st.DataObject) -> None:
    text = b"".join(events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    whole, at, verdict = judge(text), 0, NOTHING
    for _, stop in pairwise([0, *cuts, len(text)]):
        if verdict == NOTHING:
            verdict, used = judge(text[at:stop])
            at += used
    assert verdict == whole[0]
    assert at == whole[1] or verdict == TOKEN or text[at : whole[1]].strip(b"\r\n") == b""


@given(model.pieces)
@settings(max_examples=200, deadline=None)
def test_no_bytes_are_read_or_written_outside(text: bytes) -> None:
    """The text lies before a page that may not be touched: a step too far ends the process."""
    verdict, used = judge(text)
    assert verdict in (NOTHING, TOKEN, ERROR)
    assert used <= len(text)
