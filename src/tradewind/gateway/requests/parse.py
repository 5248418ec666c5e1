"""Reads a client's request for routing. Never raises: a request is refused, or goes on with as much as is known of it.

What an engine might accept is not refused here. A body of unusual types has no blocks and a rough length, and the
engine judges it. Refused are: no JSON object; a model that is no text, or missing from a whole body; a body whose model
cannot be seen (cut off before it, or packed in a way that cannot be unpacked) with no header to name it and several
pools.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from tradewind.core.tokens.estimate import TokenEstimator
from tradewind.core.tokens.shape import exact_shape
from tradewind.gateway.requests import forms, packed
from tradewind.gateway.requests.chain import BLOCK_BYTES, chain, chain_seed
from tradewind.gateway.requests.kinds import Kind, kind_of, response_id_of
from tradewind.gateway.requests.known import NOTHING_KNOWN, Known, know
from tradewind.gateway.requests.prompts import Prepared, prepare, rough, seed_parts
from tradewind.gateway.requests.result import ParsedRequest, Refused
from tradewind.model.request import Request

MODEL_HEADER = "tradewind-model"
MAX_MODEL_CHARACTERS = 1_024
COMPLETION_OUTPUT_TOKENS = 16  # what the completions API means by leaving max_tokens out
PACKED_RATIO = 4.0  # unpacked bytes per packed byte of a body that cannot be unpacked
_TOO_LARGE = Refused(
    413,
    f"the model stands too far back in a large request body; name it first, or in the header {MODEL_HEADER}",
    "request_too_large",
    "model",
)
_BROKEN = Refused(400, "the request body does not match its content-encoding", "invalid_encoding")
_UNSUPPORTED = Refused(
    415, f"this content-encoding is not supported without the header {MODEL_HEADER}", "unsupported_encoding"
)
_BOMB = Refused(413, "the request body is too large when unpacked", "request_too_large", certain=True)
_UNREADABLE = Refused(400, "the request body is not valid JSON", "invalid_json")
_NO_OUTPUT = frozenset({Kind.POOLING, Kind.TOKENIZE})


@dataclass(frozen=True, slots=True, kw_only=True)
class ParserSettings:
    """`chain_key` is secret and random per grid, so that no client can aim at collisions in the index."""

    chain_key: int = 0
    session_header: str = ""  # lower case; empty = sessions are not looked at
    unpackers: Mapping[str, packed.Unpack] = field(default_factory=packed.available)


class _Asked(NamedTuple):
    """What came with the body."""

    kind: Kind
    headers: Mapping[str, str]
    tenant: str
    request_id: str
    only_model: str | None
    body_bytes: int  # as sent, also beyond what is seen
    seen_bytes: int  # of the body as sent


class RequestParser:
    """`parse` is a function of its arguments, of `aliases`, and of what `tokens` has learned."""

    def __init__(self, tokens: TokenEstimator, settings: ParserSettings | None = None) -> None:
        self._tokens = tokens
        self._settings = settings or ParserSettings()
        self.aliases: Mapping[str, str] = {}  # name -> the name under which its blocks are hashed

    def rekey(self, chain_key: int) -> None:
        """Another key from now on: no block matches one from before."""
        self._settings = replace(self._settings, chain_key=chain_key)

    def parse(
        self,
        body: bytes,
        *,
        path: str,
        headers: Mapping[str, str],
        partial: bool = False,
        tenant: str = "",
        request_id: str = "",
        only_model: str | None = None,
    ) -> ParsedRequest | Refused:
        """`headers` in lower case; `partial`: the body goes on; `only_model`: that of the only pool."""
        whole_bytes = max(len(body), _content_length(headers))
        asked = _Asked(kind_of(path), headers, tenant, request_id, only_model, whole_bytes, len(body))
        unseen = _TOO_LARGE if partial or whole_bytes > len(body) else None
        if asked.kind is Kind.RESPONSE_LOOKUP:
            return self._lookup(asked, response_id_of(path))
        coding = headers.get("content-encoding", "identity")
        if coding not in ("identity", ""):
            unpacked = packed.unpack(body, coding, self._settings.unpackers)
            if isinstance(unpacked, packed.Failure):
                return self._still_packed(asked, unpacked)
            body = unpacked.body
            if unpacked.partial and unseen is None:
                unseen = _TOO_LARGE if len(body) >= packed.MAX_BYTES else _BROKEN
        if forms.is_form(headers.get("content-type", "")):
            return self._form(asked, body, unseen)
        known = know(body, asked.kind, partial=unseen is not None)
        return known if isinstance(known, Refused) else self._known(asked, known, body, unseen)

    def _known(self, asked: _Asked, known: Known, body: bytes, unseen: Refused | None) -> ParsedRequest | Refused:
        """`unseen`: the refusal for a model in the part of the body that is missing; None = all is here."""
        partial = unseen is not None
        if known is NOTHING_KNOWN:
            unseen = unseen or _UNREADABLE
        model = _model(asked, known.model, unseen=unseen)
        if isinstance(model, Refused):
            return model
        prepared, blocks = self._prepare(asked, model, known, body)
        scale = asked.body_bytes / asked.seen_bytes if asked.seen_bytes else 1.0
        if known.seen_bytes:
            scale *= len(body) / known.seen_bytes
        return self._request(
            asked,
            model,
            prepared,
            blocks,
            scale=scale,
            max_output_tokens=_max_output(asked.kind, known),
            stream=known.stream,
            previous_response_id=known.previous_response_id,
            note=prepared.note or known.note or ("cut off" if partial else ""),
        )

    def _prepare(self, asked: _Asked, model: str, known: Known, body: bytes) -> tuple[Prepared, tuple[int, ...]]:
        """The prompt and its blocks; of a prompt whose types are unusual, a rough length."""
        if known.head is None:
            shape = exact_shape(known.input_ids) if known.input_ids else rough(body)
            return Prepared(b"", shape, 0, note=known.note), ()
        try:
            prepared = prepare(known.head, model)
        except (msgspec.DecodeError, RecursionError):
            return Prepared(b"", rough(body), 0, note="unusual types"), ()
        if len(prepared.stream) < BLOCK_BYTES:
            return prepared, ()
        name = self.aliases.get(model, model)
        parts = [asked.kind.encode(), asked.tenant.encode("utf-8", "replace"), name.encode("utf-8", "replace")]
        seed = chain_seed(parts + seed_parts(known.head), key=self._settings.chain_key)
        return prepared, chain(prepared.stream, seed)

    def _request(
        self,
        asked: _Asked,
        model: str,
        prepared: Prepared,
        blocks: tuple[int, ...] = (),
        *,
        scale: float = 1.0,
        max_output_tokens: int | None = None,
        stream: bool = False,
        previous_response_id: str = "",
        note: str = "",
    ) -> ParsedRequest:
        seen_tokens = self._tokens.estimate(model, prepared.shape)
        header = self._settings.session_header
        request = Request(
            request_id=asked.request_id,
            model=model,
            prompt_tokens=max(1, round(seen_tokens * scale)),
            max_output_tokens=max_output_tokens,
            blocks=blocks,
            block_tokens=seen_tokens * BLOCK_BYTES / prepared.total_bytes if blocks else 0.0,
            tenant=asked.tenant,
            session=asked.headers.get(header, "") if header else "",
            modalities=prepared.modalities,
            body_bytes=asked.body_bytes,
            stream=stream,
            exact_tokens=prepared.shape.exact and scale == 1.0,
        )
        return ParsedRequest(request, asked.kind, prepared.shape, previous_response_id, note)

    def _lookup(self, asked: _Asked, response_id: str) -> ParsedRequest:
        model = asked.headers.get(MODEL_HEADER) or asked.only_model or ""
        prepared = Prepared(b"", rough(b""), 0)
        return self._request(asked, model, prepared, max_output_tokens=0, previous_response_id=response_id)

    def _form(self, asked: _Asked, body: bytes, unseen: Refused | None) -> ParsedRequest | Refused:
        model = _model(asked, forms.model_of(body), unseen=unseen)
        if isinstance(model, Refused):
            return model
        modalities = ("audio",) if asked.kind is Kind.AUDIO else ()
        return self._request(asked, model, Prepared(b"", rough(b""), 0, modalities), note="form")

    def _still_packed(self, asked: _Asked, failure: packed.Failure) -> ParsedRequest | Refused:
        if failure is packed.Failure.BOMB:
            return _BOMB
        unseen = _BROKEN if failure is packed.Failure.BROKEN else _UNSUPPORTED
        model = _model(asked, None, unseen=unseen)
        if isinstance(model, Refused):
            return model
        return self._request(asked, model, Prepared(b"", rough(b""), 0), note="packed")


def _model(asked: _Asked, written: object, *, unseen: Refused | None) -> str | Refused:
    """The model by the body; where the body's model cannot be seen, by header, or that of the only pool."""
    if isinstance(written, str) and written:
        if len(written) > MAX_MODEL_CHARACTERS or _lone_surrogate(written):
            return Refused(404, "the model does not exist", "model_not_found", "model")
        return written
    if written is not None and not isinstance(written, str):
        return Refused(400, "model must be a string", "invalid_model", "model")
    if unseen is None:
        return Refused(400, "you must provide a model", "missing_model", "model")
    return asked.headers.get(MODEL_HEADER) or asked.only_model or unseen


def _lone_surrogate(text: str) -> bool:
    """Whether the text cannot be written as UTF-8, in a log or an answer."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _max_output(kind: Kind, known: Known) -> int | None:
    if kind in _NO_OUTPUT:
        return 0
    if known.max_output_tokens is None and kind is Kind.COMPLETION and known.head is not None:
        return COMPLETION_OUTPUT_TOKENS
    return known.max_output_tokens


def _content_length(headers: Mapping[str, str]) -> int:
    text = headers.get("content-length", "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 15 else 0
