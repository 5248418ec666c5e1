"""The canonical form of a prompt: one stream of bytes such that a longer conversation begins with the shorter one's.

A text stands as the client spelled it in JSON, without its quotes. What separates texts are bytes that UTF-8 never
uses, so no text can imitate a boundary: "ab" + "c" is not "a" + "bc". Every piece is opened and none is closed, which
keeps the leading bytes equal when more text follows. A content list of one text part is the same as that text. An
image, a sound or a film stands as its digest, repeated to four bytes per token, so that blocks of the stream are about
equally many tokens; the media themselves are not kept.

Two clients that spell the same text differently (with and without escapes of the form u4F60) share no blocks: a hit is
missed, none is invented.
"""

from typing import NamedTuple

import xxhash
from msgspec import Raw

from tradewind.gateway.requests import media, shapes, truncated
from tradewind.gateway.requests.shapes import NOTHING, Message, present

MESSAGE, CONTENT, PART, MEDIA, TOOLS, FIELD = b"\xff", b"\xfe", b"\xfd", b"\xfc", b"\xfb", b"\xfa"
BYTES_PER_MEDIA_TOKEN = 4
MAX_FILL_BYTES = 1 << 20  # of one request; media beyond it stand as their digests alone
MAX_PIECES = 4_096  # messages and parts of one request; what comes later is left out, as is all after the last block
_DIGEST_BYTES = 16
_AS_TEXT = b'{"text":'

# Fields of a message or part that end up in the prompt, with the letter that names them in the stream.
_MESSAGE_FIELDS = (
    ("name", b"n"),
    ("reasoning_content", b"r"),
    ("reasoning", b"R"),
    ("tool_calls", b"c"),
    ("tool_call_id", b"i"),
    ("function_call", b"F"),
    ("arguments", b"a"),
    ("output", b"o"),
    ("call_id", b"I"),
)
_PART_FIELDS = (("refusal", b"f"), ("thinking", b"t"), ("name", b"n"), ("input", b"a"), ("content", b"o"))
_PART_MEDIA = (
    ("image_url", media.IMAGE),
    ("source", media.IMAGE),
    ("input_audio", media.AUDIO),
    ("audio_url", media.AUDIO),
    ("video_url", media.VIDEO),
    ("image_embeds", media.IMAGE),
    ("audio_embeds", media.AUDIO),
    ("file", media.FILE),
    ("file_id", media.FILE),
    ("uuid", media.IMAGE),
)


class Prompt(NamedTuple):
    """A prompt in canonical form. `text` is the stream without its media; the same object where there are none."""

    stream: bytes
    text: bytes
    messages: int
    media_tokens: int
    modalities: tuple[str, ...]


class Canon:
    """Builds one prompt."""

    __slots__ = (
        "_fill_left",
        "_media",
        "_media_tokens",
        "_messages",
        "_modalities",
        "_model",
        "_pieces",
        "_pieces_left",
    )

    def __init__(self, model: str) -> None:
        self._model = model
        self._pieces: list[bytes] = []
        self._media: list[int] = []  # positions in `_pieces`
        self._modalities: set[str] = set()
        self._media_tokens = 0
        self._messages = 0
        self._fill_left = MAX_FILL_BYTES
        self._pieces_left = MAX_PIECES

    def tools(self, raw: Raw) -> None:
        """Tool definitions, which chat templates put before the conversation."""
        if present(raw):
            self._pieces += (TOOLS, bytes(raw))

    def message(self, message: Message) -> None:
        """One message or item."""
        if self._pieces_left <= 0:
            return
        self.content(message.role or message.type or "", message.content)
        for field, letter in _MESSAGE_FIELDS:
            raw = getattr(message, field)
            if raw is not NOTHING and present(raw):
                self._field(letter, raw)

    def content(self, role: str, raw: Raw) -> None:
        """One message by its role and content: a text, a list of parts, or nothing."""
        self._messages += 1
        self._pieces_left -= 1
        self._pieces += (MESSAGE, role.encode(), CONTENT)
        if raw is NOTHING:
            return
        text = bytes(raw)
        if text[:1] == b'"':
            self._pieces.append(text[1:-1])
        elif text[:1] == b"[":
            parts = items(text)[: max(1, self._pieces_left)]
            self._pieces_left -= len(parts)
            for number, part in enumerate(parts):
                if number:
                    self._pieces.append(PART)
                self._part(part)
        elif text != b"null":
            self._field(b"?", raw)

    def prompt(self) -> Prompt:
        """What was built."""
        stream = b"".join(self._pieces)
        text = stream
        if self._media:
            skipped = set(self._media)
            text = b"".join([piece for at, piece in enumerate(self._pieces) if at not in skipped])
        return Prompt(stream, text, self._messages, self._media_tokens, tuple(sorted(self._modalities)))

    def _part(self, raw: Raw) -> None:
        if bytes(memoryview(raw)[:1]) == b'"':
            self._pieces.append(bytes(raw)[1:-1])
            return
        part = shapes.PART.decode(raw)
        if part.text is not NOTHING and present(part.text):
            self._pieces.append(bytes(part.text)[1:-1])
            return
        for field, sort in _PART_MEDIA:
            medium = getattr(part, field)
            if medium is not NOTHING and present(medium):
                self._medium(sort, medium)
                return
        seen = False
        for field, letter in _PART_FIELDS:
            value = getattr(part, field)
            if value is not NOTHING and present(value):
                self._field(letter, value)
                seen = True
        if not seen:
            self._field(b"?", raw)

    def _field(self, letter: bytes, raw: Raw) -> None:
        """Something structured that the template turns into text: as the client spelled it."""
        if media.holds_data(raw):  # a tool's result with a picture in it
            self._medium(media.IMAGE, raw)
        else:
            self._pieces += (FIELD, letter, bytes(raw))

    def _medium(self, sort: str, raw: Raw) -> None:
        if sort in media.MODALITIES:
            self._modalities.add(sort)
        tokens = media.tokens_of(sort, raw, model=self._model)
        self._media_tokens += tokens
        digest = b"%016x" % xxhash.xxh3_64_intdigest(raw)
        repeats = max(1, min(tokens * BYTES_PER_MEDIA_TOKEN, self._fill_left) // _DIGEST_BYTES)
        self._fill_left -= repeats * _DIGEST_BYTES
        self._media.append(len(self._pieces))
        self._pieces.append(MEDIA + digest * repeats)


def items(spelled: bytes) -> list[Raw]:
    """The items of a JSON list, undecoded; of a very dense one, the first."""
    if truncated.is_dense(spelled, b'"'):
        closed = truncated.closed(_AS_TEXT + spelled[: truncated.SEEN_BYTES])
        spelled = closed[len(_AS_TEXT) : -1] if closed is not None else b"[]"
    return shapes.RAWS.decode(spelled)
