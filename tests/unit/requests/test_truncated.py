"""Bodies of which only the beginning is seen."""

import json

import pytest

from tests.unit.requests.asking import CHAT, COMPLETIONS, chat, encoded, parsed, refused
from tradewind.gateway.requests.parse import MODEL_HEADER
from tradewind.gateway.requests.truncated import MAX_TOKENS, closed

TEXT = "".join(f'Line {number}: 航海日志 \U0001f6a2 "quoted" \\ and\nmore. ' for number in range(60))


def test_every_beginning_of_a_body_can_be_closed() -> None:
    body = encoded({"a": [1, 2.5e3, {"b": None, "c": [True, "x\\u00e9 \U0001f6a2"]}], "é": "\\", "model": "m", "z": {}})
    for end in range(1, len(body)):
        whole = closed(body[:end])
        assert whole is not None
        assert isinstance(json.loads(whole), dict), body[:end]
    spelled = json.dumps({"text": "a\U0001f6a2\\\u00e9"}).encode()
    for end in range(1, len(spelled)):
        json.loads(closed(spelled[:end]) or b"").get("text", "").encode()


def test_what_is_no_object_cannot_be_closed() -> None:
    for body in (b"", b"[1", b'"x', b"nul", b"{]", b'{"a":1}}'[1:]):
        assert closed(body) is None
    assert closed(b'{"a":' + b"[" * 1_000) is None, "too deep"


def test_only_so_many_tokens_are_looked_at() -> None:
    body = b'{"model":"m","prompt":[' + b"1," * MAX_TOKENS
    whole = closed(body)
    assert whole is not None
    assert len(json.loads(whole)["prompt"]) < MAX_TOKENS


@pytest.mark.parametrize("seen", [2_000, 2_001, 2_002, 2_003, 2_500])
def test_a_body_cut_in_its_prompt_shares_blocks_with_the_whole(seen: int) -> None:
    whole = encoded({"model": "m", **chat(TEXT, TEXT)})
    full = parsed(whole).request
    cut = parsed(whole[:seen], partial=True).request
    assert cut.model == "m"
    assert len(cut.blocks) >= (seen - 200) // 512
    assert cut.blocks == full.blocks[: len(cut.blocks)]


def test_the_length_of_the_unseen_part_is_reckoned_from_the_seen() -> None:
    whole = encoded({"model": "m", "prompt": TEXT * 20})
    headers = {"content-length": str(len(whole))}
    full = parsed(whole, COMPLETIONS, headers=headers).request
    cut = parsed(whole[:8_000], COMPLETIONS, headers=headers).request
    assert cut.body_bytes == full.body_bytes == len(whole)
    assert cut.prompt_tokens == pytest.approx(full.prompt_tokens, rel=0.1)
    assert cut.block_tokens == pytest.approx(full.block_tokens, rel=0.1)


def test_a_model_at_the_unseen_end_goes_by_header_or_to_the_only_pool() -> None:
    body = encoded(chat(TEXT, "hi"))[:1_500]
    assert refused(body, partial=True).status == 413
    named = parsed(body, partial=True, headers={MODEL_HEADER: "big"}, only_model="other")
    assert (named.request.model, named.note) == ("big", "cut off")
    assert len(named.request.blocks) == 2
    assert parsed(body, partial=True, only_model="only").request.model == "only"


def test_a_model_at_the_seen_beginning_needs_no_header() -> None:
    body = encoded({"model": "m", **chat(TEXT, "hi")})[:1_500]
    assert parsed(body, partial=True, headers={MODEL_HEADER: "other"}).request.model == "m"


def test_a_cut_model_name_is_not_taken_for_a_whole_one() -> None:
    body = b'{"messages":[],"model":"llama-70b"}'
    for end in range(body.index(b"llama"), body.index(b'"}') + 1):
        assert refused(body[:end], partial=True).status == 413


def test_rubbish_that_goes_on_has_no_model() -> None:
    for path in (CHAT, "/v1/embeddings"):
        for body in (b"", b"hello", b"[" * 5_000, b"\xff\xfe"):
            assert refused(body, path, partial=True).status == 413
            assert parsed(body, path, partial=True, only_model="m").request.blocks == ()
