"""Compressed bodies are unpacked for routing, within bounds (FC-23)."""

import gzip
import tracemalloc
import zlib

import pytest

from tests.unit.requests.asking import chat, encoded, parsed, refused
from tradewind.gateway.requests import packed
from tradewind.gateway.requests.parse import MODEL_HEADER, ParserSettings

TEXT = "".join(f"Line {number} of the ship's log says nothing new. " for number in range(60))
BODY = encoded(chat(TEXT, "hi"))


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(BODY)),
        ("GZIP", gzip.compress(BODY)),
        ("x-gzip", gzip.compress(BODY)),
        ("deflate", zlib.compress(BODY)),
        ("deflate", raw_deflate(BODY)),
        ("identity", BODY),
    ],
)
def test_a_packed_body_is_read_like_a_plain_one(coding: str, body: bytes) -> None:
    got, plain = parsed(body, headers={"content-encoding": coding}), parsed(BODY)
    assert (got.request.blocks, got.request.prompt_tokens) == (plain.request.blocks, plain.request.prompt_tokens)
    assert got.request.body_bytes == len(body)


def test_zstd_is_read_where_its_library_is_installed() -> None:
    zstandard = pytest.importorskip("zstandard")
    body = zstandard.ZstdCompressor().compress(BODY)
    headers = {"content-encoding": "zstd"}
    assert parsed(body, headers=headers).request.blocks == parsed(BODY).request.blocks
    assert refused(b"\x28\xb5\x2f\xfd\xff\xff\xff", headers=headers).status == 400
    bomb = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    assert refused(bomb, headers=headers).status == 413
    assert parsed(body[: len(body) // 2], headers=headers, only_model="m").request.model == "m", "cut off"


def test_a_coding_without_its_library_goes_by_header_else_415() -> None:
    settings = ParserSettings(unpackers={})
    for coding in ("zstd", "br", "gzip, gzip", "nonsense"):
        headers = {"content-encoding": coding}
        assert refused(b"\x28\xb5", headers=headers, settings=settings).status == 415
        named = parsed(b"\x28\xb5", headers={**headers, MODEL_HEADER: "m"}, settings=settings)
        assert (named.request.model, named.note, named.request.blocks) == ("m", "packed", ())
        assert parsed(b"\x28\xb5", headers=headers, only_model="o", settings=settings).request.model == "o"


def test_a_bomb_is_refused_with_bounded_memory() -> None:
    bomb = gzip.compress(bytes(256 << 20), 9)
    tracemalloc.start()
    try:
        told = refused(bomb, headers={"content-encoding": "gzip", MODEL_HEADER: "m"}, only_model="m")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (told.status, told.certain) == (413, True)
    assert peak < 3 * packed.MAX_BYTES


def test_a_long_body_of_text_is_read_up_to_the_bound() -> None:
    whole = encoded({"model": "m", "prompt": "".join(f"{number * 7919 % 99991} fish, " for number in range(600_000))})
    assert len(whole) > packed.MAX_BYTES
    got = parsed(gzip.compress(whole, 1), "/v1/completions", headers={"content-encoding": "gzip"})
    assert (got.request.model, got.note) == ("m", "cut off")
    assert len(got.request.blocks) > 4_000


def test_broken_and_cut_streams() -> None:
    body = gzip.compress(encoded({"model": "m", **chat(TEXT, TEXT)}))
    headers = {"content-encoding": "gzip"}
    assert refused(b"no gzip at all", headers=headers).status == 400
    assert parsed(b"no gzip at all", headers=headers, only_model="m").request.model == "m"
    assert parsed(body[: len(body) * 2 // 3], headers=headers).request.model == "m", "what came out is enough"
    assert refused(body[:12], headers=headers).status == 400
