"""The bodies of vLLM 0.32's errors and small answers, byte for byte as captured."""

import json
from dataclasses import dataclass

import msgspec

QUEUE_FULL = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."
)
ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
DRAINING = "cannot schedule new futures after shutdown"
NOT_FOUND = b'{"detail":"Not Found"}'
METHOD_NOT_ALLOWED = b'{"detail":"Method Not Allowed"}'
VERSION = b'{"version":"0.32.0"}'


@dataclass(frozen=True, slots=True)
class ApiError(Exception):
    """A refusal with vLLM's nested error body; without a `kind` it is the web framework's own, which has none."""

    status: int
    message: str
    kind: str
    param: str | None = None

    def body(self) -> bytes:
        """The JSON body."""
        if not self.kind:
            return msgspec.json.encode({"detail": self.message})
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return msgspec.json.encode({"error": error})

    def event(self) -> bytes:
        """The same inside a stream; this one has spaces, as captured."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return b"data: " + json.dumps({"error": error}).encode() + b"\n\n"


def unknown_model(name: str, served: tuple[str, ...]) -> ApiError:
    """404 for a model that is not served."""
    message = f"The model `{name}` does not exist. Valid aliases: {', '.join(served)}."
    return ApiError(404, message, "NotFoundError", "model")


def stream_options_alone() -> ApiError:
    """400 for stream_options on a request that does not stream."""
    message = "Stream options can only be defined when `stream=True`. (parameter=stream_options)"
    return ApiError(400, message, "BadRequestError", "stream_options")


def no_messages() -> ApiError:
    """400 for an empty conversation."""
    message = "Cannot apply chat template to an empty conversation. Provide at least one message."
    return ApiError(400, message, "BadRequestError")


def no_prompt() -> ApiError:
    """400 for a completion request without a prompt, or with an empty one."""
    message = "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)"
    return ApiError(400, message, "BadRequestError", "prompt")


def unparsable() -> ApiError:
    """400 for bytes that the JSON parser gives up on."""
    return ApiError(400, "There was an error parsing the body", "")


def no_body() -> ApiError:
    """400 for an empty body, and for null."""
    return _validation("{'type': 'missing', 'loc': 'body', 'msg': 'Field required', 'input': 'None'}", "body")


def prompt_too_long(max_model_len: int) -> ApiError:
    """400: the prompt alone is over the limit. vLLM stops counting one token past it."""
    value = max_model_len + 1
    return ApiError(
        400,
        f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains at least "
        f"{value} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of "
        f"the input prompt. (parameter=input_tokens, value={value})",
        "BadRequestError",
        "input_tokens",
    )


def prompt_text_too_long(characters: int, most: int, max_model_len: int) -> ApiError:
    """400 before any tokenizing: no tokenizer makes so few tokens of so many characters."""
    return ApiError(
        400,
        f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains {characters} "
        f"characters (more than {most} characters, which is the upper bound for {max_model_len} input tokens). "
        f"Please reduce the length of the input prompt. (parameter=input_text, value={characters})",
        "BadRequestError",
        "input_text",
    )


def max_tokens_too_large(asked: int, max_model_len: int) -> ApiError:
    """400: more output asked for than the context holds."""
    return ApiError(
        400,
        f"max_tokens={asked} cannot be greater than max_model_len={max_model_len}. "
        f"Please request fewer output tokens. (parameter=max_tokens, value={asked})",
        "BadRequestError",
        "max_tokens",
    )


def out_of_range(parameter: str, rule: str, value: float) -> ApiError:
    """400 for a sampling parameter out of range."""
    text = f"{parameter} must be {rule}, got {value}. (parameter={parameter}, value={value})"
    return ApiError(400, text, "BadRequestError", parameter)


def bad_json(error: json.JSONDecodeError) -> ApiError:
    """400 for a body that is not JSON."""
    place = f"body.{error.pos}"
    return _validation(
        f"{{'type': 'json_invalid', 'loc': '{place}', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', "
        f"'ctx': {{'error': {error.msg!r}}}}}",
        place,
    )


def missing_field(name: str, fields: int) -> ApiError:
    """400 for a required field that is not there."""
    place = f"body.{name}"
    return _validation(
        f"{{'type': 'missing', 'loc': '{place}', 'msg': 'Field required', 'input': '<dict of {fields} items>'}}", place
    )


def wrong_type(name: str, kind: str, message: str) -> ApiError:
    """400 for a field of the wrong type; `kind` and `message` are pydantic's."""
    place = f"body.{name}" if name else "body"
    return _validation(f"{{'type': '{kind}', 'loc': '{place}', 'msg': '{message}'}}", place)


def wrong_content_type() -> ApiError:
    """400 for anything but JSON."""
    return _validation("Unsupported Media Type: Only 'application/json' is allowed", None)


def queue_full() -> ApiError:
    """503 when `max_num_queued_reqs` is reached."""
    return ApiError(503, QUEUE_FULL, "Service Unavailable")


def engine_dead() -> ApiError:
    """500 once the engine core is gone, as a response or inside a stream."""
    return ApiError(500, ENGINE_DEAD, "InternalServerError")


def draining() -> ApiError:
    """500 for new requests while a shutdown timeout runs."""
    return ApiError(500, DRAINING, "InternalServerError")


def _validation(text: str, param: str | None) -> ApiError:
    return ApiError(400, f"1 validation error:\n  {text}", "Bad Request", param)
