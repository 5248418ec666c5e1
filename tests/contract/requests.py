"""The request bodies of the contract. Every prompt is new to the engine unless a check says otherwise."""

import uuid

from tests.contract.client import Json
from tests.contract.engine import MODEL

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
LONG_TOKENS = 3800  # fits max_model_len with any prompt of `prompt()`, and takes seconds on every engine under test


def prompt(words: int = 8) -> str:
    """A prompt that no other call has made, from its first token on."""
    return f"{uuid.uuid4().hex} " + "fox " * words


def chat(text: str | None = None, *, max_tokens: int = 4, **fields: object) -> Json:
    messages = [{"role": "user", "content": prompt() if text is None else text}]
    return {"model": MODEL, "messages": messages, "max_tokens": max_tokens, "ignore_eos": True, **fields}


def completion(text: str | list[int] | None = None, *, max_tokens: int = 4, **fields: object) -> Json:
    text = prompt() if text is None else text
    return {"model": MODEL, "prompt": text, "max_tokens": max_tokens, "ignore_eos": True, **fields}
