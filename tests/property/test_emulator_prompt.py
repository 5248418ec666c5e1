"""Whatever a client sends, the emulated engine answers with a generation or with a refusal."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.emulator.answers import ApiError
from tradewind.emulator.prompt import Generation, check_model, parse_body, parse_generation

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20), st.just(1e400)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
messages = st.lists(st.one_of(values, st.fixed_dictionaries({"role": values, "content": values})), max_size=4)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "model": st.one_of(values, st.just("m")),
        "messages": st.one_of(values, messages),
        "prompt": st.one_of(values, st.lists(st.integers(), max_size=20)),
        "max_tokens": values,
        "max_completion_tokens": values,
        "n": values,
        "priority": values,
        "temperature": values,
        "top_p": values,
        "stream": values,
        "stream_options": values,
        "cache_salt": values,
        "request_id": values,
    },
)


def outcome(body: bytes, *, chat: bool) -> Generation | ApiError:
    try:
        parsed = parse_body("application/json", body)
        check_model(parsed, ("m",), chat=chat)
        return parse_generation(parsed, chat=chat, max_model_len=512, kv_capacity_tokens=512, block_size_tokens=16)
    except ApiError as refusal:
        return refusal


@settings(deadline=None, max_examples=400)
@given(body=bodies, chat=st.booleans())
def test_any_body_gives_a_generation_that_fits_or_a_refusal(body: dict[str, object], *, chat: bool) -> None:
    answer = outcome(json.dumps(body).replace("Infinity", "1e400").encode(), chat=chat)
    if isinstance(answer, ApiError):
        assert 400 <= answer.status < 500
        json.loads(answer.body())
        return
    assert 1 <= answer.choices <= 64
    assert answer.prompt_tokens >= 1
    assert answer.output_tokens >= 1
    assert answer.prompt_tokens + answer.output_tokens <= 513
    assert len(answer.block_hashes) <= 33


@given(body=st.binary(max_size=200), chat=st.booleans())
def test_any_bytes_are_survived(body: bytes, *, chat: bool) -> None:
    answer = outcome(body, chat=chat)
    if isinstance(answer, ApiError):
        json.loads(answer.body())


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 50_000])
def test_deep_nesting_is_refused(body: bytes) -> None:
    answer = outcome(body, chat=True)
    assert isinstance(answer, ApiError)
    assert answer.status == 400
