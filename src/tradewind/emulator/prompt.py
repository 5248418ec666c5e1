"""From a request body to what the engine needs: prompt tokens, block hashes, output length, options.

The emulated tokenizer: a token is four bytes of the rendered prompt's UTF-8, so that counts are cheap and equal text
gives equal blocks. A prompt given as token ids counts exactly. The chat template adds the role and a few marks.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import xxhash

from tradewind.emulator import answers
from tradewind.emulator.words import natural_length, output_bytes
from tradewind.engine.prefix import BYTES_PER_TOKEN, block_hashes, tokens_in

Body = dict[str, object]
IMAGE_TOKENS = 576
MAX_CHOICES = 64
MAX_TOKEN_CHARACTERS = 12  # the longest token of the captured engine's tokenizer
VOCABULARY_TOKENS = 32_000  # made-up ids are below it
_decoder = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One checked request. `seed` picks the output text."""

    chat: bool
    model: str | None
    prompt_tokens: int
    output_tokens: int
    stops: bool  # the model ends by itself: finish_reason "stop"
    block_hashes: tuple[int, ...]
    seed: int
    choices: int
    priority: int
    stream: bool
    include_usage: bool
    usage_on_each: bool
    request_id: str | None


def parse_body(content_type: str, body: bytes) -> Body:
    """Returns the JSON object; raises ApiError."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise answers.wrong_content_type()
    try:
        parsed = _decoder.decode(body or b"null")
    except (msgspec.DecodeError, UnicodeDecodeError):
        parsed = _slow_parse(body)
    except RecursionError as error:
        raise answers.unparsable() from error
    if parsed is None:
        raise answers.no_body()
    if not isinstance(parsed, dict):
        raise answers.wrong_type("", "model_attributes_type", "Input should be a valid dictionary or object")
    return parsed


def chat_text(messages: object) -> bytes:
    """Renders chat messages; raises ApiError."""
    if not isinstance(messages, list):
        raise answers.wrong_type("messages", "list_type", "Input should be a valid list")
    if not messages:
        raise answers.no_messages()
    parts: list[str] = []
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise answers.wrong_type(f"messages.{index}", "dict_type", "Input should be a valid dictionary")
        if "role" not in message:
            raise answers.missing_field(f"messages.{index}.role", len(message))
        parts.append(f"<|{message['role']}|>\n{_content_text(message.get('content'))}<|end|>\n")
    parts.append("<|assistant|>\n")
    return "".join(parts).encode("utf-8", "surrogatepass")


def completion_prompt(prompt: object) -> bytes:
    """Renders a completion prompt: text, or four bytes per token id, so that ids count exactly; raises ApiError."""
    if isinstance(prompt, str) and prompt:
        return prompt.encode("utf-8", "surrogatepass")
    if isinstance(prompt, list) and prompt:
        if all(isinstance(token, int) and not isinstance(token, bool) for token in prompt):
            return b"".join((token & 0xFFFFFFFF).to_bytes(4, "little") for token in prompt)
        if len(prompt) == 1:  # a batch of one; larger batches are not emulated
            return completion_prompt(prompt[0])
    raise answers.no_prompt()


def parse_generation(
    body: Body, *, chat: bool, max_model_len: int, kv_capacity_tokens: int, block_size_tokens: int
) -> Generation:
    """Checks the rest of a generation request in vLLM's order; raises ApiError."""
    text = chat_text(body["messages"]) if chat else completion_prompt(body.get("prompt"))
    if chat or isinstance(body.get("prompt"), str):
        _check_characters(text, max_model_len)
    _check_sampling(body)
    prompt_tokens = max(1, tokens_in(len(text)))
    asked = _asked_tokens(body, chat=chat)
    seed = xxhash.xxh3_64_intdigest(text)
    output_tokens = _output_tokens(asked, prompt_tokens, max_model_len=max_model_len, seed=seed)
    room = min(max_model_len, kv_capacity_tokens) - prompt_tokens
    output_tokens = max(1, min(output_tokens, room))
    options = _stream_options(body)
    include_usage = bool(options.get("include_usage"))
    salt = body.get("cache_salt")
    return Generation(
        chat=chat,
        model=_model(body),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        stops=asked is None,
        block_hashes=block_hashes(
            text + output_bytes(seed, output_tokens),
            block_size_tokens=block_size_tokens,
            salt=xxhash.xxh3_64_intdigest(salt.encode()) if isinstance(salt, str) else 0,
        ),
        seed=seed,
        choices=_integer(body, "n", 1),
        priority=_integer(body, "priority", 0),
        stream=body.get("stream") is True,
        include_usage=include_usage,
        usage_on_each=include_usage and bool(options.get("continuous_usage_stats")),
        request_id=request_id if isinstance(request_id := body.get("request_id"), str) else None,
    )


def check_model(body: Body, served: tuple[str, ...], *, chat: bool) -> None:
    """Raises ApiError for a body without messages or a model that is not served; no model means the first."""
    if chat and "messages" not in body:
        raise answers.missing_field("messages", len(body))
    model = _model(body)
    if model and model not in served:
        raise answers.unknown_model(model, served)


def token_ids(text: bytes) -> list[int]:
    """Made-up ids, one per token; equal pieces have equal ids."""
    return [
        xxhash.xxh32_intdigest(text[start : start + BYTES_PER_TOKEN]) % VOCABULARY_TOKENS
        for start in range(0, len(text), BYTES_PER_TOKEN)
    ]


def _slow_parse(body: bytes) -> object:
    """The standard library's parser accepts a little more, and words its errors as vLLM does."""
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        raise answers.bad_json(error) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise answers.unparsable() from error


def _content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(_part_text(part) for part in content)


def _part_text(part: object) -> str:
    if not isinstance(part, Mapping):
        return ""
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    if "image_url" in part:
        # An image is a fixed number of tokens that no other image shares.
        mark = f"{xxhash.xxh3_64_intdigest(str(part['image_url']).encode()):016x}"
        return mark * (IMAGE_TOKENS * BYTES_PER_TOKEN // len(mark))
    return ""


def _model(body: Body) -> str | None:
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        raise answers.wrong_type("model", "string_type", "Input should be a valid string")
    return model


def _integer(body: Body, name: str, default: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole:
        raise answers.wrong_type(name, "int_type", "Input should be a valid integer")
    assert isinstance(value, int | float)
    return int(value)


def _stream_options(body: Body) -> Mapping[str, object]:
    options = body.get("stream_options")
    if options is not None and not body.get("stream"):
        raise answers.stream_options_alone()
    return options if isinstance(options, Mapping) else {}


def _check_sampling(body: Body) -> None:
    temperature = body.get("temperature")
    if temperature is not None and not isinstance(temperature, int | float):
        raise answers.wrong_type("temperature", "float_type", "Input should be a valid number")
    if temperature is not None and temperature < 0:
        raise answers.out_of_range("temperature", "non-negative", float(temperature))
    top_p = body.get("top_p")
    if isinstance(top_p, int | float) and not 0 < top_p <= 1:
        raise answers.out_of_range("top_p", "in (0, 1]", float(top_p))
    choices = _integer(body, "n", 1)
    if not 1 <= choices <= MAX_CHOICES:
        raise answers.out_of_range("n", f"between 1 and {MAX_CHOICES}", choices)


def _check_characters(text: bytes, max_model_len: int) -> None:
    most = MAX_TOKEN_CHARACTERS * max_model_len
    if len(text) <= most:  # never fewer bytes than characters
        return
    characters = len(text.decode("utf-8", "surrogatepass"))
    if characters > most:
        raise answers.prompt_text_too_long(characters, most, max_model_len)


def _asked_tokens(body: Body, *, chat: bool) -> int | None:
    if chat and body.get("max_completion_tokens") is not None:
        return _integer(body, "max_completion_tokens", 0)
    if body.get("max_tokens") is not None:
        return _integer(body, "max_tokens", 0)
    return None if chat else 16


def _output_tokens(asked: int | None, prompt_tokens: int, *, max_model_len: int, seed: int) -> int:
    if asked is not None and asked < 1:
        raise answers.out_of_range("max_tokens", "at least 1", asked)
    if asked is not None and asked > max_model_len:
        raise answers.max_tokens_too_large(asked, max_model_len)
    if prompt_tokens > max_model_len:
        raise answers.prompt_too_long(max_model_len)
    if prompt_tokens == max_model_len:  # no room for a single token, which vLLM lays at max_tokens' door
        raise answers.out_of_range("max_tokens", "at least 1", 0)
    return natural_length(seed) if asked is None else asked
