"""The request parser over any input: it never raises, and what it says of a prefix is sound."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.inputs import PATHS, bodies, check, parser
from tradewind.gateway.requests.result import ParsedRequest

texts = st.text(st.characters(codec="utf-8"), max_size=700)
conversations = st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), texts), min_size=1, max_size=6)


def blocks(conversation: list[tuple[str, str]], *, ascii_only: bool = False) -> tuple[int, ...]:
    messages = [{"role": role, "content": text} for role, text in conversation]
    body = json.dumps({"model": "m", "messages": messages}, ensure_ascii=ascii_only).encode()
    got = parser().parse(body, path="/v1/chat/completions", headers={})
    assert isinstance(got, ParsedRequest)
    return got.request.blocks


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=bodies, path=st.sampled_from(PATHS), partial=st.booleans())
def test_no_body_raises(body: bytes, path: str, partial: bool) -> None:
    check(body, path=path, partial=partial)


@settings(max_examples=100, deadline=None)
@given(conversation=conversations, more=conversations)
def test_a_continued_conversation_begins_with_the_blocks_of_the_first(
    conversation: list[tuple[str, str]], more: list[tuple[str, str]]
) -> None:
    short, long = blocks(conversation), blocks(conversation + more)
    assert long[: len(short)] == short


@settings(max_examples=100, deadline=None)
@given(one=conversations, other=conversations, filler=st.just("x" * 600))
def test_different_beginnings_share_no_block_after_them(
    one: list[tuple[str, str]], other: list[tuple[str, str]], filler: str
) -> None:
    ends = blocks([*one, ("user", filler)]), blocks([*other, ("user", filler)])
    if one != other:
        assert ends[0][-1] != ends[1][-1] or len(ends[0]) != len(ends[1])
    else:
        assert ends[0] == ends[1]


@settings(max_examples=100, deadline=None)
@given(conversation=conversations, seen=st.floats(0.0, 1.0))
def test_a_cut_body_has_leading_blocks_of_the_whole(conversation: list[tuple[str, str]], seen: float) -> None:
    messages = [{"role": role, "content": text} for role, text in conversation]
    body = json.dumps({"model": "m", "messages": messages}, ensure_ascii=False).encode()
    got = parser().parse(body[: int(len(body) * seen)], path="/v1/chat/completions", headers={}, partial=True)
    if isinstance(got, ParsedRequest):
        assert got.request.model == "m"
        assert blocks(conversation)[: len(got.request.blocks)] == got.request.blocks
    else:
        assert got.status == 413
