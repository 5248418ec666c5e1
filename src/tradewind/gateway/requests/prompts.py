"""The prompt of each API in canonical form, with the measures its token count is estimated from."""

import re
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tradewind.core.tokens.shape import PromptShape, exact_shape, measure
from tradewind.gateway.requests import shapes
from tradewind.gateway.requests.canonical import Canon, items
from tradewind.gateway.requests.shapes import present

# What the engine renders the same messages differently by.
_OPTIONS = (
    "chat_template",
    "chat_template_kwargs",
    "reasoning_effort",
    "mm_processor_kwargs",
    "truncate_prompt_tokens",
    "documents",
)
MAX_IDS_BYTES = 1 << 20
_DATA = re.compile(rb";base64,[A-Za-z0-9+/=\\]{64,}")


class Prepared(NamedTuple):
    """A prompt ready to be hashed. `stream` is empty where nothing can be said of its prefix."""

    stream: bytes
    shape: PromptShape
    total_bytes: int  # of all prompts of the request, as long as `stream` for one
    modalities: tuple[str, ...] = ()
    note: str = ""


def prepare(head: shapes.Head, model: str) -> Prepared:
    """The prompt of a decoded body; raises msgspec.DecodeError or RecursionError where its inner types are unusual."""
    if isinstance(head, shapes.CompletionBody):
        return _completion(head)
    canon = Canon(model)
    if isinstance(head, shapes.ChatBody):
        canon.tools(head.tools)
        canon.tools(head.functions)
        for message in head.messages:
            canon.message(message)
    elif isinstance(head, shapes.AnthropicBody):
        _anthropic(canon, head)
    elif isinstance(head, shapes.ResponsesBody):
        _responses(canon, head)
    prompt = canon.prompt()
    shape = measure(prompt.text, messages=prompt.messages, fixed_tokens=float(prompt.media_tokens))
    if isinstance(head, shapes.ResponsesBody) and head.previous_response_id:
        # The stored conversation comes before this text, and only its engine knows it.
        return Prepared(b"", shape, 0, prompt.modalities, "continues a stored response")
    return Prepared(prompt.stream, shape, len(prompt.stream), prompt.modalities)


def rough(body: bytes) -> PromptShape:
    """The shape of a body that is not looked into: its JSON as text, without encoded media."""
    return measure(_DATA.sub(b"", body) if b";base64," in body else body, messages=0)


def seed_parts(head: shapes.Head) -> list[bytes]:
    """What else decides the start of the chain: salt and rendering options."""
    parts = [(head.cache_salt or "").encode()]
    for name in _OPTIONS:
        raw = getattr(head, name)
        if present(raw):
            parts += (name.encode(), bytes(raw))
    return parts


def _anthropic(canon: Canon, head: shapes.AnthropicBody) -> None:
    canon.tools(head.tools)
    if present(head.system):
        canon.content("system", head.system)
    for message in head.messages:
        canon.message(message)


def _responses(canon: Canon, head: shapes.ResponsesBody) -> None:
    canon.tools(head.tools)
    if present(head.instructions):
        canon.content("system", head.instructions)
    spelled = bytes(head.input)
    if spelled[:1] == b"[":
        for item in shapes.ITEMS.decode(spelled):
            canon.message(item)
    else:
        canon.content("user", head.input)


def _completion(head: shapes.CompletionBody) -> Prepared:
    """Of several prompts in one body, each is a sequence of its own; the first stands for their prefix."""
    spelled = bytes(head.prompt)
    if spelled[:1] == b'"':
        return _texts([spelled[1:-1]])
    if len(spelled) > MAX_IDS_BYTES and b'"' not in spelled and spelled.count(b"[", 0, MAX_IDS_BYTES) == 1:
        return _many_ids(spelled)
    if spelled[:1] != b"[":
        return Prepared(b"", measure(b"", messages=0), 0, note="no text prompt")
    try:
        return _ids([shapes.IDS.decode(spelled)])
    except msgspec.ValidationError:
        prompts = [bytes(item) for item in items(spelled)]
    if all(item[:1] == b'"' for item in prompts):
        return _texts([item[1:-1] for item in prompts])
    return _ids([shapes.IDS.decode(item) for item in prompts])


def _texts(texts: Sequence[bytes]) -> Prepared:
    together = texts[0] if len(texts) == 1 else b"".join(texts)
    return Prepared(texts[0], measure(together, messages=0), len(together))


def _many_ids(spelled: bytes) -> Prepared:
    """One long list of ids: all are counted, and the first are decoded."""
    first = spelled[: spelled.rfind(b",", 0, MAX_IDS_BYTES)] + b"]"
    prepared = _ids([shapes.IDS.decode(first)])
    tokens = spelled.count(b",") + 1
    return prepared._replace(shape=exact_shape(tokens), total_bytes=4 * tokens)


def _ids(prompts: Sequence[list[int]]) -> Prepared:
    """Token ids, four bytes each: a block holds 128 tokens exactly."""
    shape = exact_shape(sum(map(len, prompts)))
    if not prompts or not prompts[0]:
        return Prepared(b"", shape, 0, note="no prompt")
    try:
        stream = array("I", prompts[0]).tobytes()
    except OverflowError:
        return Prepared(b"", shape, 0, note="impossible token ids")
    return Prepared(stream, shape, 4 * int(shape.fixed_tokens))
