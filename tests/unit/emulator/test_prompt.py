"""Requests are parsed, counted and refused as vLLM would."""

import json

import pytest

from tradewind.emulator.answers import ApiError
from tradewind.emulator.prompt import Generation, chat_text, check_model, parse_body, parse_generation, token_ids
from tradewind.emulator.words import LONGEST_ANSWER_TOKENS, SHORTEST_ANSWER_TOKENS, WORDS, output_bytes, word


def parse(body: dict[str, object], *, chat: bool = False, max_model_len: int = 1024) -> Generation:
    return parse_generation(
        body, chat=chat, max_model_len=max_model_len, kv_capacity_tokens=100_000, block_size_tokens=16
    )


def refusal(body: dict[str, object], *, chat: bool = False) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse(body, chat=chat)
    return caught.value


def test_a_token_id_prompt_counts_exactly() -> None:
    assert parse({"prompt": list(range(777)), "max_tokens": 5}).prompt_tokens == 777
    assert parse({"prompt": [[1, 2, 3]], "max_tokens": 5}).prompt_tokens == 3


def test_text_counts_four_bytes_a_token() -> None:
    assert parse({"prompt": "x" * 400, "max_tokens": 5}).prompt_tokens == 100
    assert parse({"prompt": "\u6c49" * 400, "max_tokens": 5}).prompt_tokens == 300


def test_the_next_turn_extends_the_rendered_conversation() -> None:
    question = {"role": "user", "content": "hi"}
    first = chat_text([question])
    following = chat_text([question, {"role": "assistant", "content": " air"}, {"role": "user", "content": "more"}])
    assert following.startswith(first + b" air")


def test_content_parts_and_images() -> None:
    text = chat_text([{"role": "user", "content": [{"type": "text", "text": "hello"}]}])
    assert text == chat_text([{"role": "user", "content": "hello"}])
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    other = {"type": "image_url", "image_url": {"url": "data:image/png;base64,BBBB"}}
    with_image = chat_text([{"role": "user", "content": [image]}])
    assert len(with_image) > 2000
    assert with_image != chat_text([{"role": "user", "content": [other]}])


@pytest.mark.parametrize("content", [None, 7, [None], [{"type": "input_audio"}], {"a": 1}])
def test_odd_contents_are_survived(content: object) -> None:
    assert chat_text([{"role": "user", "content": content}])


QUESTION = {"role": "user", "content": "where to?"}


def test_output_length() -> None:
    asked = parse({"messages": [QUESTION], "max_completion_tokens": 7, "max_tokens": 9}, chat=True)
    assert (asked.output_tokens, asked.stops) == (7, False)
    free = parse({"messages": [QUESTION]}, chat=True)
    assert SHORTEST_ANSWER_TOKENS <= free.output_tokens < LONGEST_ANSWER_TOKENS
    assert free.stops
    assert parse({"prompt": "x"}).output_tokens == 16


def test_the_free_answer_fits_the_context() -> None:
    assert parse({"messages": [{"role": "user", "content": "x" * 4000}]}, chat=True).output_tokens < 25


def test_output_beyond_the_context_is_cut_to_it() -> None:
    assert parse({"prompt": "x" * 2000, "max_tokens": 1000}).output_tokens == 524
    assert parse({"prompt": "x" * 2000, "max_tokens": 524}).output_tokens == 524


def test_a_prompt_of_the_whole_context_leaves_no_token() -> None:
    refused = refusal({"prompt": [7] * 1024, "max_tokens": 4})
    assert (refused.param, refused.message) == (
        "max_tokens",
        "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)",
    )


def test_what_has_no_words_is_refused() -> None:
    assert refusal({"prompt": ""}).param == "prompt"
    assert refusal({}).param == "prompt"
    assert refusal({"messages": []}, chat=True).kind == "BadRequestError"
    assert refusal({"messages": [{"content": "x"}]}, chat=True).kind == "Bad Request"
    assert refusal({"prompt": "x", "stream_options": {"include_usage": True}}).param == "stream_options"


def test_a_prompt_over_the_limit_is_refused_by_tokens_or_by_characters() -> None:
    assert refusal({"prompt": "x" * 4100, "max_tokens": 1}).param == "input_tokens"
    assert refusal({"prompt": "x" * 13_000, "max_tokens": 1}).param == "input_text"
    assert refusal({"prompt": "x" * 100, "max_tokens": 5000}).param == "max_tokens"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"prompt": ""}, "non-empty"),
        ({"prompt": None}, "non-empty"),
        ({"prompt": "x", "max_tokens": "many"}, "valid integer"),
        ({"prompt": "x", "max_tokens": 0}, "at least 1"),
        ({"prompt": "x", "max_tokens": True}, "valid integer"),
        ({"prompt": "x", "n": 0}, "n must be"),
        ({"prompt": "x", "n": 10_000}, "n must be"),
        ({"prompt": "x", "top_p": 3}, "top_p"),
        ({"prompt": "x", "priority": "high"}, "valid integer"),
    ],
)
def test_wrong_values_are_refused(body: dict[str, object], says: str) -> None:
    error = refusal(body)
    assert error.status == 400
    assert says in error.message


def test_messages_must_be_a_list_of_objects() -> None:
    assert "valid list" in refusal({"messages": "hi"}, chat=True).message
    assert "valid dictionary" in refusal({"messages": ["hi"]}, chat=True).message


@pytest.mark.parametrize("body", [b"", b"[1]", b'"x"', b"\xff\xfe", b"null"])
def test_bodies_that_are_not_objects(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse_body("application/json", body)
    assert caught.value.status == 400
    json.loads(caught.value.body())


def test_json_with_a_charset_and_huge_numbers() -> None:
    assert parse_body("application/json; charset=utf-8", b'{"a": 1}') == {"a": 1}
    assert "x" in parse_body("Application/JSON", b'{"x": 1e400}')


def test_models() -> None:
    check_model({"model": "b", "messages": []}, ("a", "b"), chat=True)
    check_model({"messages": []}, ("a",), chat=True)
    with pytest.raises(ApiError) as caught:
        check_model({"model": "c", "messages": []}, ("a",), chat=True)
    assert caught.value.message == "The model `c` does not exist. Valid aliases: a."


def test_equal_prefixes_share_hashes_and_salts_do_not() -> None:
    first = parse({"prompt": "p" * 640 + "one", "max_tokens": 1}).block_hashes
    second = parse({"prompt": "p" * 640 + "two", "max_tokens": 1}).block_hashes
    salted = parse({"prompt": "p" * 640 + "one", "max_tokens": 1, "cache_salt": "s"}).block_hashes
    assert first[:10] == second[:10]
    assert not set(first) & set(salted)


def test_words_are_one_token_each() -> None:
    assert all(len(item) == 4 and item.startswith(b" ") for item in WORDS)
    assert len(set(WORDS)) == 64
    for seed in (0, 1, 12345, 2**63):
        spoken = output_bytes(seed, 100)
        assert spoken == b"".join(word(seed, index) for index in range(100))
    assert output_bytes(1, 0) == b""


def test_token_ids_are_one_per_token() -> None:
    assert len(token_ids(b"x" * 41)) == 11
    assert len(set(token_ids(b"x" * 40))) == 1
