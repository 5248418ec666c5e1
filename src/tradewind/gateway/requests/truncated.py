"""A JSON body whose end is missing: what came before is closed, so that an ordinary decoder can read it.

A prompt's text that is cut stays with what arrived of it. Half a key, a number at the very end, and any other text
that is cut, such as half a model's name, are dropped.
Costs grow with the number of JSON tokens looked at, not with the length of texts, and stop at `MAX_TOKENS`.
"""

import re

MAX_TOKENS = 8_192  # braces, commas and strings; what follows them is treated as missing too
MAX_DEPTH = 200
LARGE_BYTES = 1 << 17  # a longer body is decoded whole only if it is not dense
DENSE_MARKS = 10_000
SEEN_BYTES = 2 << 20  # of a dense body, and of one that is cut off; half a million tokens

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)|[{}\[\],:]', re.S)
_TEXTS = frozenset({b'"text"', b'"content"', b'"prompt"', b'"input"', b'"instructions"', b'"system"', b'"output"'})
_OPEN, _CLOSE = {b"{": b"}", b"[": b"]"}, frozenset({b"}", b"]"})
_HIGH_SURROGATE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}")
_ESCAPE_BYTES = 6


def closed(body: bytes) -> bytes | None:
    """The body as complete JSON; None when it is not the beginning of an object."""
    if body.lstrip()[:1] != b"{":
        return None
    scan = _Scan()
    for number, found in enumerate(_TOKEN.finditer(body)):
        first = found[0][:1]
        if first == b'"':
            if scan.expects_key:
                scan.key = found[0]
                continue
            if not found[1] and scan.key not in _TEXTS:
                break
            if not found[1]:
                return body[: _text_end(body, found.start())] + b'"' + scan.ending()
            scan.safe = found.end()
        elif not scan.take(first, found.start()) or number >= MAX_TOKENS:
            break
    return body[: scan.safe] + scan.ending() if scan.sound else None


def is_dense(body: bytes, marks: bytes) -> bool:
    """Whether decoding would make so many objects, one per mark, that it would keep others waiting."""
    if len(body) <= LARGE_BYTES:
        return False
    left = DENSE_MARKS
    for mark in marks:
        at = body.find(mark)
        while at >= 0:
            left -= 1
            if left < 0:
                return True
            at = body.find(mark, at + 1)
    return False


class _Scan:
    """Which containers are open, and up to where the body is complete once they are closed."""

    __slots__ = ("closers", "expects_key", "key", "safe", "sound")

    def __init__(self) -> None:
        self.closers: list[bytes] = []
        self.safe = 0
        self.expects_key = False
        self.key = b""
        self.sound = True

    def take(self, token: bytes, start: int) -> bool:
        """One structural character; False where the scan ends."""
        if token in _OPEN:
            self.closers.append(_OPEN[token])
            self.sound = len(self.closers) <= MAX_DEPTH
            self.safe = start + 1
        elif token in _CLOSE:
            self.sound = bool(self.closers) and self.closers.pop() == token
            self.safe = start + 1
        elif token == b",":
            self.safe = start
        self.expects_key = token == b"{" or (token == b"," and self.closers[-1:] == [b"}"])
        return self.sound and bool(self.closers)

    def ending(self) -> bytes:
        """What closes everything that is open."""
        return b"".join(reversed(self.closers))


def _text_end(body: bytes, start: int) -> int:
    """Where a text that runs to the end can be cut: not within an escape, a surrogate pair or a character."""
    end = len(body)
    for _ in range(2):  # half a low surrogate, then the high one before it
        at = body.rfind(b"\\", max(start, end - _ESCAPE_BYTES), end)
        if at < 0 or _escaped(body, at):
            break
        escape = body[at:end]
        whole = len(escape) >= _ESCAPE_BYTES if escape[1:2] == b"u" else len(escape) >= 2
        if whole and not (len(escape) == _ESCAPE_BYTES and _HIGH_SURROGATE.match(escape)):
            break
        end = at
    return _character_end(body, start, end)


def _escaped(body: bytes, at: int) -> bool:
    """Whether the backslash at `at` is itself the second of a pair."""
    before = at
    while before > 0 and body[before - 1] == 0x5C:
        before -= 1
    return (at - before) % 2 == 1


def _character_end(body: bytes, start: int, end: int) -> int:
    """Without a UTF-8 sequence that misses its last bytes."""
    for back in range(1, min(4, end - start)):
        byte = body[end - back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return end if back >= needed else end - back
        if byte < 0x80:
            break
    return end
