"""HPACK (RFC 7541), the decoder: header blocks of one HTTP/2 connection to names and values, within bounds."""

from collections import deque

MAX_LIST_BYTES = 32 * 1024  # of one decoded block, as RFC 9113 counts it
MAX_TABLE_BYTES = 4096  # the default, which holds until the peer has taken our setting of 0
_ENTRY_BYTES = 32  # what an entry costs beyond its text (RFC 7541 4.1)
_MAX_INTEGER_BYTES = 5
_CACHED_BLOCKS = 64

Headers = dict[str, str]

_STATIC_TEXT = """
:authority= :method=GET :method=POST :path=/ :path=/index.html :scheme=http :scheme=https :status=200 :status=204
:status=206 :status=304 :status=400 :status=404 :status=500 accept-charset= accept-encoding=gzip,_deflate
accept-language= accept-ranges= accept= access-control-allow-origin= age= allow= authorization= cache-control=
content-disposition= content-encoding= content-language= content-length= content-location= content-range= content-type=
cookie= date= etag= expect= expires= from= host= if-match= if-modified-since= if-none-match= if-range=
if-unmodified-since= last-modified= link= location= max-forwards= proxy-authenticate= proxy-authorization= range=
referer= refresh= retry-after= server= set-cookie= strict-transport-security= transfer-encoding= user-agent= vary= via=
www-authenticate=
"""
_STATIC = tuple(entry.replace("_", " ").partition("=")[::2] for entry in _STATIC_TEXT.split())
# Bits per symbol 0..256 (RFC 7541 appendix B). The code is canonical: lengths alone define it.
_BITS = """
13 23 28 28 28 28 28 28 28 24 30 28 28 30 28 28 28 28 28 28 28 28 30 28 28 28 28 28 28 28 28 28 6 10 10 12 13 6 8 11
10 10 8 11 8 6 6 6 5 5 5 6 6 6 6 6 6 6 7 8 15 6 12 10 13 6 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 8 7 8 13 19 13
14 6 15 5 6 5 6 5 6 6 6 5 7 7 6 6 6 5 6 7 6 5 5 6 7 7 7 7 7 15 11 14 13 28 20 22 20 20 22 22 22 23 22 23 23 23 23 23
24 23 24 24 22 23 24 23 23 23 23 21 22 23 22 23 23 24 22 21 20 22 22 23 23 21 23 22 22 24 21 22 23 23 21 21 22 21 23
22 23 23 20 22 22 22 23 22 22 23 26 26 20 19 22 23 22 25 26 26 26 27 27 26 24 25 19 21 26 27 27 26 27 24 21 21 26 26
28 27 27 27 20 24 20 21 22 21 21 23 22 22 25 25 24 24 26 23 26 27 26 26 27 27 27 27 27 28 27 27 27 27 27 26 30
"""
_END_OF_STRING = 256


class HpackError(Exception):
    """The block cannot be read; the connection's compression state is lost with it."""


def _huffman_codes() -> dict[tuple[int, int], int]:
    """(bits, code) -> symbol."""
    lengths = sorted((int(bits), symbol) for symbol, bits in enumerate(_BITS.split()))
    codes, code, before = {}, 0, lengths[0][0]
    for bits, symbol in lengths:
        code <<= bits - before
        codes[bits, code] = symbol
        code, before = code + 1, bits
    return codes


_CODES = _huffman_codes()
_LENGTHS = tuple(sorted({bits for bits, _ in _CODES}))


def huffman_decode(data: bytes) -> bytes:
    """The text of a Huffman-coded string. Raises HpackError for a bad code or bad padding."""
    held = left = 0  # bits not decoded yet, fewer than a longest code and a byte
    out = bytearray()
    for byte in data:
        held, left = held << 8 | byte, left + 8
        while left >= _LENGTHS[0]:
            symbol, bits = _next_symbol(held, left)
            if symbol is None:
                break
            if symbol == _END_OF_STRING:
                raise HpackError("end of string inside a string")
            out.append(symbol)
            left -= bits
            held &= (1 << left) - 1
        if left >= _LENGTHS[-1]:
            raise HpackError("no such code")
    if left > 7 or held != (1 << left) - 1:
        raise HpackError("bad padding")
    return bytes(out)


def _next_symbol(held: int, left: int) -> tuple[int | None, int]:
    """The symbol at the front of `left` bits and its length; None when more bits are needed."""
    for bits in _LENGTHS:
        if bits > left:
            break
        symbol = _CODES.get((bits, held >> (left - bits)))
        if symbol is not None:
            return symbol, bits
    return None, 0


class Decoder:
    """The decoding half of one connection. With an empty dynamic table equal blocks are decoded once."""

    def __init__(self) -> None:
        self._table: deque[tuple[str, str]] = deque()  # newest first
        self._table_bytes = 0
        self._table_limit = MAX_TABLE_BYTES
        self._cache: dict[bytes, Headers] = {}

    def decode(self, block: bytes) -> Headers:
        """Names in lower case as the peer must write them; the last of equal names wins. Raises HpackError."""
        stateless = self._table_limit == 0
        if stateless and (known := self._cache.get(block)) is not None:
            return known
        headers = self._decode(block)
        if stateless:
            if len(self._cache) >= _CACHED_BLOCKS:
                self._cache.clear()
            self._cache[block] = headers
        return headers

    def _decode(self, block: bytes) -> Headers:
        headers: Headers = {}
        at, total = 0, 0
        while at < len(block):
            first = block[at]
            if first & 0xE0 == 0x20:
                size, at = _integer(block, at, 5)
                self._resize(size)
                continue
            if first & 0x80:
                index, at = _integer(block, at, 7)
                name, value = self._entry(index)
            else:
                indexed = first & 0xC0 == 0x40
                index, at = _integer(block, at, 6 if indexed else 4)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, at = _string(block, at)
                value, at = _string(block, at)
                if indexed:
                    self._add(name, value)
            total += len(name) + len(value) + _ENTRY_BYTES
            if total > MAX_LIST_BYTES:
                raise HpackError("too many headers")
            headers[name] = value
        return headers

    def _entry(self, index: int) -> tuple[str, str]:
        if 1 <= index <= len(_STATIC):
            name, value = _STATIC[index - 1]
            return name, value
        place = index - len(_STATIC) - 1
        if index == 0 or place >= len(self._table):
            raise HpackError("no such entry")
        return self._table[place]

    def _add(self, name: str, value: str) -> None:
        self._table.appendleft((name, value))
        self._table_bytes += len(name) + len(value) + _ENTRY_BYTES
        self._evict()

    def _resize(self, limit: int) -> None:
        if limit > MAX_TABLE_BYTES:
            raise HpackError("a larger table than was offered")
        self._table_limit = limit
        self._cache.clear()
        self._evict()

    def _evict(self) -> None:
        while self._table_bytes > self._table_limit:
            name, value = self._table.pop()
            self._table_bytes -= len(name) + len(value) + _ENTRY_BYTES


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """An integer with a prefix of `bits`, and where the next item begins."""
    limit = (1 << bits) - 1
    value = block[at] & limit
    at += 1
    if value < limit:
        return value, at
    for step in range(_MAX_INTEGER_BYTES):
        if at >= len(block):
            break
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << (7 * step)
        if not byte & 0x80:
            return value, at
    raise HpackError("an integer without an end")


def _string(block: bytes, at: int) -> tuple[str, int]:
    if at >= len(block):
        raise HpackError("a string is missing")
    coded = block[at] & 0x80
    length, at = _integer(block, at, 7)
    end = at + length
    if end > len(block):
        raise HpackError("a string is cut")
    data = block[at:end]
    return (huffman_decode(data) if coded else data).decode("latin-1"), end


def literal(name: str, value: str) -> bytes:
    """One header as a block of its own that touches no table: name and value below 127 bytes."""
    return b"\x00" + bytes([len(name)]) + name.encode("ascii") + bytes([len(value)]) + value.encode("latin-1")
