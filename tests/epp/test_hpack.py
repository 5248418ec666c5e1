"""HPACK against the examples of RFC 7541, and against whatever a peer may send."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.gateway.epp.hpack import _BITS, Decoder, HpackError, huffman_decode, literal


def test_the_huffman_code_is_complete() -> None:
    bits = [int(item) for item in _BITS.split()]
    assert len(bits) == 257
    assert sum(2.0**-item for item in bits) == 1.0


@pytest.mark.parametrize(
    ("coded", "text"),
    [
        ("f1e3c2e5f23a6ba0ab90f4ff", b"www.example.com"),
        ("a8eb10649cbf", b"no-cache"),
        ("25a849e95ba97d7f", b"custom-key"),
        ("25a849e95bb8e8b4bf", b"custom-value"),
        ("d07abe941054d444a8200595040b8166e082a62d1bff", b"Mon, 21 Oct 2013 20:13:21 GMT"),
        ("9d29ad171863c78f0b97c8e9ae82ae43d3", b"https://www.example.com"),
        ("94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
         b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
    ],
)  # fmt: skip
def test_huffman_examples_of_the_rfc(coded: str, text: bytes) -> None:
    assert huffman_decode(bytes.fromhex(coded)) == text


def test_the_request_examples_of_the_rfc_on_one_connection() -> None:
    """RFC 7541 C.4: three requests, the dynamic table grows."""
    decoder = Decoder()
    common = {":method": "GET", ":authority": "www.example.com"}
    first = decoder.decode(bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff"))
    assert first == {**common, ":scheme": "http", ":path": "/"}
    second = decoder.decode(bytes.fromhex("828684be5886a8eb10649cbf"))
    assert second == {**common, ":scheme": "http", ":path": "/", "cache-control": "no-cache"}
    third = decoder.decode(bytes.fromhex("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf"))
    assert third == {**common, ":scheme": "https", ":path": "/index.html", "custom-key": "custom-value"}


def test_without_a_table_equal_blocks_are_read_once() -> None:
    decoder = Decoder()
    block = literal(":path", "/x")
    decoder.decode(b"\x20" + block)
    assert decoder.decode(block) is decoder.decode(block)


@pytest.mark.parametrize(
    "block",
    [
        "80",  # entry 0
        "be",  # an entry of an empty table
        "ffffffffffff",  # a number without an end
        "4005",  # a cut string
        "00",  # no string
        "3fe21f",  # a table of 4,097 bytes
        "0081ff0161",  # padding of eight bits
        "0084fffffffc0161",  # the end-of-string code
    ],
)
def test_what_is_no_header_block_is_refused(block: str) -> None:
    with pytest.raises(HpackError):
        Decoder().decode(bytes.fromhex(block))


def test_a_small_block_cannot_become_a_large_list() -> None:
    decoder = Decoder()
    decoder.decode(b"\x40\x01a\x7f\xa1\x1e" + b"v" * 4_000)
    with pytest.raises(HpackError, match="too many"):
        decoder.decode(b"\xbe" * 1_000)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=4))
def test_no_block_breaks_the_decoder(blocks: list[bytes]) -> None:
    decoder = Decoder()
    for block in blocks:
        try:
            decoder.decode(block)
        except HpackError:
            return
