"""What an engine's API says it serves: GET /v1/models and /version."""

from dataclasses import dataclass
from typing import Annotated

import msgspec

from tradewind.telemetry.fetch import Fetcher
from tradewind.telemetry.http_connection import Fault, FetchFailed

MAX_MODELS = 1024
MAX_NAME_CHARS = 512
MAX_TOKENS = 1 << 40
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Sorted names. `first` is what the engine lists first: the base model, which a warm-up asks for."""

    first: str
    models: tuple[str, ...]
    lora_models: tuple[str, ...]
    max_model_len: int | None


class _Model(msgspec.Struct):
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS)]
    parent: str | None = None  # the base model of a LoRA adapter
    max_model_len: object = None


class _Models(msgspec.Struct):
    data: list[_Model] = []


class _Version(msgspec.Struct):
    version: Annotated[str, msgspec.Meta(max_length=64)]


async def read_listing(fetcher: Fetcher, *, key_hint: str = "") -> Listing:
    """Ask for the models. Raises FetchFailed, also when none is listed; key_hint tells how to set the engine's key."""
    response = await fetcher.exchange("GET", "/v1/models")
    if response.status in (401, 403):
        raise FetchFailed(
            Fault.STATUS, f"/v1/models answers {response.status}: {key_hint or 'the key is not accepted'}"
        )
    if response.status != 200:
        raise FetchFailed(Fault.STATUS, f"/v1/models answers {response.status}")
    return parse_listing(response.body)


def parse_listing(body: bytes) -> Listing:
    """Raises FetchFailed if this is no list of at least one model."""
    try:
        entries = msgspec.json.decode(body, type=_Models).data[:MAX_MODELS]
    except _UNREADABLE as error:
        raise FetchFailed(Fault.MALFORMED, f"/v1/models: {_first_words(error)}") from None
    if not entries:
        raise FetchFailed(Fault.MALFORMED, "/v1/models lists no model")
    bases = [entry for entry in entries if entry.parent is None] or entries
    lengths = [length for entry in bases if (length := _tokens(entry.max_model_len)) is not None]
    return Listing(
        first=bases[0].id,
        models=tuple(sorted({entry.id for entry in entries})),
        lora_models=tuple(sorted({entry.id for entry in entries if entry.parent is not None})),
        max_model_len=min(lengths, default=None),
    )


async def read_version(fetcher: Fetcher) -> str | None:
    """The engine's version; None if it does not tell. Raises FetchFailed when the engine cannot be asked."""
    response = await fetcher.exchange("GET", "/version")
    if response.status != 200:
        return None
    try:
        return msgspec.json.decode(response.body, type=_Version).version
    except _UNREADABLE:
        return None


def _tokens(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MAX_TOKENS else None


def _first_words(error: Exception) -> str:
    """The decoder's own words, without what it may quote of the body."""
    return str(error).partition(" - at ")[0][:80]
