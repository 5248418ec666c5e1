"""What an engine answers to whole requests: shapes, statuses, error bodies."""

import re

import pytest

from tests.contract.client import Json, get, post, send
from tests.contract.engine import LIMITS, MODEL, Engine
from tests.contract.metrics import block_size
from tests.contract.requests import CHAT, COMPLETIONS, chat, completion

LIMIT = LIMITS.max_model_len
TOO_LONG = "fox " * (LIMIT + 100)
FAR_TOO_LONG = "fox " * 8 * LIMIT
UNKNOWN_MODEL = {
    "message": f"The model `nope` does not exist. Valid aliases: {MODEL}.",
    "type": "NotFoundError",
    "param": "model",
    "code": 404,
}
PROMPT_TOO_LONG = {
    "message": f"This model's maximum context length is {LIMIT} tokens. However, your prompt contains at least "
    f"{LIMIT + 1} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of "
    f"the input prompt. (parameter=input_tokens, value={LIMIT + 1})",
    "type": "BadRequestError",
    "param": "input_tokens",
    "code": 400,
}


def test_health_is_empty(engine: Engine) -> None:
    answer = get(engine, "/health")
    assert (answer.status, answer.body) == (200, b"")


def test_version_is_told(engine: Engine) -> None:
    assert get(engine, "/version").json() == {"version": "0.32.0"}


def test_models_list_tells_the_context_length(engine: Engine) -> None:
    listed = get(engine, "/v1/models").json()
    (model,) = listed["data"]
    assert listed["object"] == "list"
    assert (model["id"], model["object"], model["owned_by"], model["parent"]) == (MODEL, "model", "vllm", None)
    assert model["max_model_len"] == LIMIT
    assert isinstance(model["root"], str)
    assert isinstance(model["created"], int)
    assert [permission["object"] for permission in model["permission"]] == ["model_permission"]


def test_chat_answers_whole(engine: Engine) -> None:
    answer = post(engine, CHAT, chat(max_tokens=5)).json()
    (choice,) = answer["choices"]
    assert (answer["object"], answer["model"]) == ("chat.completion", MODEL)
    assert (choice["index"], choice["message"]["role"], choice["finish_reason"]) == (0, "assistant", "length")
    assert isinstance(choice["message"]["content"], str)
    assert_usage(answer["usage"], completion_tokens=5)


def test_completion_answers_whole(engine: Engine) -> None:
    answer = post(engine, COMPLETIONS, completion(max_tokens=5)).json()
    (choice,) = answer["choices"]
    assert (answer["object"], answer["model"]) == ("text_completion", MODEL)
    assert (choice["index"], choice["finish_reason"]) == (0, "length")
    assert isinstance(choice["text"], str)
    assert_usage(answer["usage"], completion_tokens=5)


def test_two_choices_share_the_prompt(engine: Engine) -> None:
    answer = post(engine, CHAT, chat(n=2, max_tokens=5)).json()
    assert sorted(choice["index"] for choice in answer["choices"]) == [0, 1]
    assert_usage(answer["usage"], completion_tokens=10)


def assert_usage(usage: Json, *, completion_tokens: int) -> None:
    assert usage["completion_tokens"] == completion_tokens
    assert usage["total_tokens"] == usage["prompt_tokens"] + completion_tokens
    assert usage["prompt_tokens"] > 0


def test_whole_blocks_are_cached_the_second_time(engine: Engine) -> None:
    body = chat(max_tokens=1)
    body["messages"][0]["content"] *= 6
    first, second = (post(engine, CHAT, body).json()["usage"] for _ in range(2))
    block = block_size(engine)
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] == (first["prompt_tokens"] - 1) // block * block > 0


@pytest.mark.parametrize("body", [chat("x") | {"model": "nope"}, chat("x", stream=True) | {"model": "nope"}])
def test_unknown_model_in_chat_is_404(engine: Engine, body: Json) -> None:
    answer = post(engine, CHAT, body)
    assert (answer.status, answer.error()) == (404, UNKNOWN_MODEL)


def test_unknown_model_elsewhere_is_404(engine: Engine) -> None:
    for path, body in ((COMPLETIONS, completion("x")), ("/tokenize", {"prompt": "x"})):
        answer = post(engine, path, body | {"model": "nope"})
        assert (answer.status, answer.error()) == (404, UNKNOWN_MODEL)


@pytest.mark.parametrize("stream", [False, True])
def test_too_long_a_prompt_is_400(engine: Engine, stream: bool) -> None:
    for path, body in ((CHAT, chat(TOO_LONG, stream=stream)), (COMPLETIONS, completion(TOO_LONG, stream=stream))):
        answer = post(engine, path, body)
        assert (answer.status, answer.error()) == (400, PROMPT_TOO_LONG)


def test_far_too_long_a_prompt_is_refused_by_its_characters(engine: Engine) -> None:
    answer = post(engine, CHAT, chat(FAR_TOO_LONG))
    assert (answer.status, answer.error()["param"], answer.error()["code"]) == (400, "input_text", 400)
    expected = (
        rf"This model's maximum context length is {LIMIT} tokens\. However, your prompt contains (\d+) characters "
        rf"\(more than \d+ characters, which is the upper bound for {LIMIT} input tokens\)\. Please reduce the length "
        r"of the input prompt\. \(parameter=input_text, value=\1\)"
    )
    assert re.fullmatch(expected, answer.error()["message"])


def test_too_many_output_tokens_are_400(engine: Engine) -> None:
    answer = post(engine, CHAT, chat(max_tokens=5000))
    assert answer.status == 400
    assert answer.error() == {
        "message": f"max_tokens=5000 cannot be greater than max_model_len={LIMIT}. Please request fewer output tokens. "
        "(parameter=max_tokens, value=5000)",
        "type": "BadRequestError",
        "param": "max_tokens",
        "code": 400,
    }


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_output_is_clipped_to_the_context(engine: Engine, path: str) -> None:
    body = chat if path == CHAT else completion
    answer = post(engine, path, body("fox " * (LIMIT - 200), max_tokens=LIMIT)).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == LIMIT


@pytest.mark.parametrize("body", [completion("x", max_tokens=0), completion([5] * LIMIT, max_tokens=4)])
def test_no_room_for_output_is_400(engine: Engine, body: Json) -> None:
    """A prompt of the whole context is refused as if no output had been asked for."""
    answer = post(engine, COMPLETIONS, body)
    assert (answer.status, answer.error()["param"]) == (400, "max_tokens")
    assert answer.error()["message"] == "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"


def test_a_prompt_one_token_short_of_the_context_is_served(engine: Engine) -> None:
    usage = post(engine, COMPLETIONS, completion([5] * (LIMIT - 1), max_tokens=4)).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (LIMIT - 1, 1)


def test_bad_json_is_400(engine: Engine) -> None:
    answer = post(engine, CHAT, b"{bad")
    assert answer.status == 400
    assert answer.error() == {
        "message": "1 validation error:\n  {'type': 'json_invalid', 'loc': 'body.1', 'msg': 'JSON decode error', "
        "'input': '<dict of 0 items>', 'ctx': {'error': 'Expecting property name enclosed in double quotes'}}",
        "type": "Bad Request",
        "param": "body.1",
        "code": 400,
    }


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b'"text"', b'{"model":"tiny"}', b'{"model":"tiny","messages":"x"}']
)
def test_a_body_that_is_no_request_is_400(engine: Engine, body: bytes) -> None:
    answer = post(engine, CHAT, body)
    assert (answer.status, answer.error()["type"], answer.error()["code"]) == (400, "Bad Request", 400)


@pytest.mark.parametrize("body", [b'{"messages":"\xff"}', b"[" * 100_000])
def test_bytes_that_no_parser_takes_have_no_error_object(engine: Engine, body: bytes) -> None:
    answer = post(engine, CHAT, body)
    assert (answer.status, answer.json()) == (400, {"detail": "There was an error parsing the body"})


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, chat() | {"messages": []}, None),
        (COMPLETIONS, completion("x") | {"prompt": ""}, "prompt"),
        (COMPLETIONS, {"model": MODEL}, "prompt"),
        (CHAT, chat(stream_options={"include_usage": True}), "stream_options"),
    ],
)
def test_what_makes_no_sense_is_400(engine: Engine, path: str, body: Json, param: str | None) -> None:
    answer = post(engine, path, body)
    assert (answer.status, answer.error()["type"], answer.error()["param"]) == (400, "BadRequestError", param)


def test_a_missing_field_is_named(engine: Engine) -> None:
    answer = post(engine, CHAT, {"model": MODEL})
    assert answer.status == 400
    assert answer.error() == {
        "message": "1 validation error:\n  {'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required', "
        "'input': '<dict of 1 items>'}",
        "type": "Bad Request",
        "param": "body.messages",
        "code": 400,
    }


def test_a_bad_temperature_is_400(engine: Engine) -> None:
    answer = post(engine, CHAT, chat(temperature=-1))
    assert (answer.status, answer.error()["param"]) == (400, "temperature")
    assert answer.error()["type"] == "BadRequestError"


def test_wrong_content_type_is_400(engine: Engine) -> None:
    answer = post(engine, CHAT, chat(), content_type="text/plain")
    assert (answer.status, answer.error()["type"]) == (400, "Bad Request")
    assert "Unsupported Media Type" in answer.error()["message"]


def test_unknown_path_is_404(engine: Engine) -> None:
    answer = post(engine, "/v1/nothing", {})
    assert (answer.status, answer.json()) == (404, {"detail": "Not Found"})


def test_wrong_method_is_405(engine: Engine) -> None:
    answer = send(engine, "GET", CHAT)
    assert (answer.status, answer.json()) == (405, {"detail": "Method Not Allowed"})
    assert answer.headers["allow"] == "POST"


def test_client_request_id_becomes_the_body_id(engine: Engine) -> None:
    chatted = post(engine, CHAT, chat(), x_request_id="my-req-42")
    completed = post(engine, COMPLETIONS, completion(), x_request_id="my-req-43")
    assert (chatted.json()["id"], completed.json()["id"]) == ("chatcmpl-my-req-42", "cmpl-my-req-43")


def test_tokenize_counts_as_usage_does(engine: Engine) -> None:
    body = chat(max_tokens=1)
    counted = post(engine, "/tokenize", {"model": MODEL, "messages": body["messages"]}).json()
    used = post(engine, CHAT, body).json()["usage"]["prompt_tokens"]
    assert counted["count"] == len(counted["tokens"]) == used
    assert counted["max_model_len"] == LIMIT
    assert counted["token_strs"] is None


def test_tokenize_takes_a_prompt(engine: Engine) -> None:
    counted = post(engine, "/tokenize", {"model": MODEL, "prompt": "hello world"}).json()
    assert counted["count"] == len(counted["tokens"]) > 0
