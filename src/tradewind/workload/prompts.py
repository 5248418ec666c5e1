"""Prompt texts of a wanted length, each unique from its first bytes on, so that no prefix cache helps by accident."""

import json

BYTES_PER_TOKEN = 4  # the emulator's tokenizer; real tokenizers come near it on English
TEMPLATE_BYTES = 31  # what the chat template adds around one user message

_FILLER = "The wind goes toward the south and turns about unto the north; it whirls about continually. "


def prompt_text(unique: str, *, tokens: int) -> str:
    """A text of about `tokens` tokens once the chat template is around it; it begins with `unique`."""
    length = max(len(unique) + 1, tokens * BYTES_PER_TOKEN - TEMPLATE_BYTES)
    repeats = length // len(_FILLER) + 1
    return f"{unique} {_FILLER * repeats}"[:length]


def chat_body(model: str, text: str, *, output_tokens: int, stream: bool = True) -> bytes:
    """The body of a streaming chat request that yields exactly `output_tokens` tokens, with usage at its end."""
    body: dict[str, object] = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": output_tokens,
        "ignore_eos": True,
        "temperature": 0,
    }
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(body, separators=(",", ":")).encode()
