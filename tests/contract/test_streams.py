"""What a streamed answer looks like, chunk by chunk."""

from tests.contract.client import Json, Stream, chunks_of
from tests.contract.engine import MODEL, Engine
from tests.contract.metrics import block_size
from tests.contract.requests import CHAT, COMPLETIONS, chat, completion, prompt

WITH_USAGE = {"include_usage": True}


def stream(engine: Engine, path: str, body: Json) -> list[Json]:
    with Stream(engine, path, body | {"stream": True}) as open_stream:
        return chunks_of(open_stream)


def test_first_chat_chunk_is_role_only(engine: Engine) -> None:
    first, *rest = stream(engine, CHAT, chat())
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all("role" not in chunk["choices"][0]["delta"] for chunk in rest)


def test_chat_chunks_share_id_and_model(engine: Engine) -> None:
    chunks = stream(engine, CHAT, chat())
    assert {(chunk["object"], chunk["model"], chunk["id"]) for chunk in chunks} == {
        ("chat.completion.chunk", MODEL, chunks[0]["id"])
    }
    assert chunks[0]["id"].startswith("chatcmpl-")


def test_only_the_last_chat_chunk_finishes(engine: Engine) -> None:
    chunks = stream(engine, CHAT, chat(max_tokens=6))
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons[-1] == "length"
    assert set(reasons[:-1]) == {None}
    assert all("usage" not in chunk for chunk in chunks)


def test_completion_chunks_carry_text(engine: Engine) -> None:
    chunks = stream(engine, COMPLETIONS, completion(max_tokens=6))
    assert {(chunk["object"], chunk["model"]) for chunk in chunks} == {("text_completion", MODEL)}
    assert all(isinstance(chunk["choices"][0]["text"], str) for chunk in chunks)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "length"


def test_usage_comes_last_without_choices(engine: Engine) -> None:
    for path, body in ((CHAT, chat(max_tokens=6)), (COMPLETIONS, completion(max_tokens=6))):
        *rest, last = stream(engine, path, body | {"stream_options": WITH_USAGE})
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] == 6
        assert last["usage"]["total_tokens"] == last["usage"]["prompt_tokens"] + 6
        assert all(chunk.get("usage") is None for chunk in rest)


def test_usage_tells_cached_blocks_of_a_repeated_prompt(engine: Engine) -> None:
    body = completion(prompt(words=100), max_tokens=2, stream_options=WITH_USAGE)
    first, second = (stream(engine, COMPLETIONS, body)[-1]["usage"] for _ in range(2))
    block = block_size(engine)
    assert first["prompt_tokens_details"] == {"cached_tokens": 0}
    assert second["prompt_tokens_details"]["cached_tokens"] == (first["prompt_tokens"] - 1) // block * block > 0


def test_continuous_usage_counts_up(engine: Engine) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    *counted, last = stream(engine, COMPLETIONS, completion(max_tokens=6, stream_options=options))
    so_far = [chunk["usage"]["completion_tokens"] for chunk in counted]
    assert so_far == sorted(so_far)
    assert so_far[-1] == last["usage"]["completion_tokens"] == 6


def test_continuous_usage_of_chat_starts_at_zero(engine: Engine) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    first, *_, last = stream(engine, CHAT, chat(max_tokens=6, stream_options=options))
    assert first["usage"]["completion_tokens"] == 0
    assert last["usage"]["completion_tokens"] == 6


def test_two_choices_are_interleaved_and_both_finish(engine: Engine) -> None:
    for path, body in ((CHAT, chat(n=2)), (COMPLETIONS, completion(n=2))):
        *chunks, last = stream(engine, path, body | {"stream_options": WITH_USAGE})
        finished = [chunk["choices"][0]["index"] for chunk in chunks if chunk["choices"][0]["finish_reason"]]
        assert sorted(finished) == [0, 1]
        assert last["usage"]["completion_tokens"] == 8
