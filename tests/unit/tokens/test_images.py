"""The size of an image from its first bytes, and its tokens by the model family's rule."""

import base64
import struct

import pytest

from tests.unit.requests.asking import chat, parsed
from tradewind.core.tokens.images import image_size, image_tokens

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 1024, 768) + b"\x08\x02\0\0\0"
GIF = b"GIF89a" + struct.pack("<HH", 320, 200) + b"\0\0\0"
EXIF = b"\xff\xe1" + struct.pack(">H", 2_002) + bytes(2_000)
JPEG = b"\xff\xd8" + EXIF + b"\xff\xdb\x00\x04ab\xff\xff\xc2\x00\x11\x08" + struct.pack(">HH", 480, 640) + bytes(9)
VP8X = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + (799).to_bytes(3, "little") + (599).to_bytes(3, "little")
VP8L = b"RIFF\0\0\0\0WEBPVP8L\x0a\0\0\0\x2f" + struct.pack("<I", (99) | (49 << 14))
VP8 = b"RIFF\0\0\0\0WEBPVP8 \x0a\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 176, 144)


@pytest.mark.parametrize(
    ("head", "size"),
    [
        (PNG, (1024, 768)),
        (GIF, (320, 200)),
        (JPEG, (640, 480)),
        (VP8X, (800, 600)),
        (VP8L, (100, 50)),
        (VP8, (176, 144)),
        (b"", None),
        (b"<svg/>", None),
        (PNG[:18], None),
        (JPEG[:100], None),
        (b"\xff\xd8" + b"\xff" * 4_000, None),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"\xff" * 8, None),
    ],
)
def test_the_size_stands_in_the_first_bytes(head: bytes, size: tuple[int, int] | None) -> None:
    assert image_size(head) == size


@pytest.mark.parametrize(
    ("model", "size", "tokens"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", (1024, 1024), 1369),
        ("qwen2-vl", (224, 448), 128),
        ("Qwen3-VL-8B", (1024, 1024), 1024),
        ("OpenGVLab/InternVL3-8B", (448, 448), 256),
        ("OpenGVLab/InternVL3-8B", (896, 896), 1280),
        ("llava-1.5-7b", (4000, 3000), 576),
        ("google/gemma-3-27b-it", (10, 10), 256),
        ("pixtral-12b", (1024, 512), 65 * 32),
        ("any", (1, 1), 4),
        ("any", (60_000, 60_000), 16_384),
        ("any", None, 1369),
    ],
)
def test_tokens_follow_the_family(model: str, size: tuple[int, int] | None, tokens: int) -> None:
    assert image_tokens(model, size) == tokens


def test_a_picture_in_a_request_is_not_counted_as_text() -> None:  # FC-54
    def of(head: bytes, filler: int) -> int:
        url = "data:image/x;base64," + base64.b64encode(head + bytes(filler)).decode()
        return parsed(chat("s", [{"type": "image_url", "image_url": {"url": url}}])).request.prompt_tokens

    assert 1024 * 768 // 784 < of(PNG, 3_000_000) < 1_100
    assert 23 * 18 < of(JPEG, 2_000_000) < 23 * 18 + 40, "its size stands behind two kilobytes of EXIF"
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG + bytes(500_000)).decode()}
    body = chat("s", [{"type": "image", "source": source}], max_tokens=1)
    assert 1024 * 768 // 784 < parsed(body, "/v1/messages").request.prompt_tokens < 1_100


def test_sounds_count_by_their_length() -> None:
    wav = base64.b64encode(b"RIFF" + bytes(320_000)).decode()
    part = {"type": "input_audio", "input_audio": {"data": wav, "format": "wav"}}
    assert 230 < parsed(chat("s", [part])).request.prompt_tokens < 290, "ten seconds"


def test_a_picture_in_a_tools_result_is_not_counted_as_text() -> None:
    inner = [{"type": "image", "source": {"type": "base64", "data": base64.b64encode(PNG + bytes(500_000)).decode()}}]
    result = {"type": "tool_result", "tool_use_id": "t", "content": inner}
    assert parsed(chat("s", [result]), "/v1/messages").request.prompt_tokens < 1_500
