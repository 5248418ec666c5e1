"""What two prompts share: the leading blocks of the canonical form (FC-52)."""

import base64
from itertools import pairwise

import pytest

from tests.unit.requests.asking import COMPLETIONS, chat, parsed
from tradewind.gateway.requests.parse import ParserSettings

TEXT = "".join(f"Line {number} of the ship's log says nothing new. " for number in range(60))


def blocks(body: dict[str, object], tenant: str = "", path: str = "/v1/chat/completions") -> tuple[int, ...]:
    return parsed(body, path, tenant=tenant).request.blocks


def shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    depth = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        depth += 1
    return depth


def test_a_longer_conversation_begins_with_the_shorter() -> None:
    turns = [TEXT, "first", TEXT + "a", "second", TEXT + "b"]
    chains = [blocks(chat(*turns[: end + 1])) for end in range(len(turns))]
    for shorter, longer in pairwise(chains):
        assert longer[: len(shorter)] == shorter
    assert len(chains[-1]) == len("".join(turns)) // 512


def test_a_longer_text_begins_with_the_shorter() -> None:
    assert shared(blocks(chat(TEXT)), blocks(chat(TEXT + TEXT))) == len(TEXT) // 512
    prompt = blocks({"model": "m", "prompt": TEXT}, path=COMPLETIONS)
    assert shared(prompt, blocks({"model": "m", "prompt": TEXT + "more"}, path=COMPLETIONS)) == len(prompt)


def test_what_differs_early_shares_nothing() -> None:
    plain = blocks(chat(TEXT))
    different: list[dict[str, object]] = [
        chat("x" + TEXT),
        chat(TEXT, model="m-lora"),
        chat(TEXT, cache_salt="s"),
        chat(TEXT, tools=[{"type": "function", "function": {"name": "f"}}]),
        chat(TEXT, chat_template_kwargs={"enable_thinking": False}),
        chat(TEXT, reasoning_effort="high"),
        chat("", TEXT),
        {"model": "m", "messages": [{"role": "user", "content": TEXT}]},
        {
            "model": "m",
            "messages": [{"role": "system", "name": "n", "content": TEXT}, {"role": "user", "content": TEXT}],
        },
    ]
    chains = [blocks(body) for body in different[:-1]]
    assert all(shared(plain, other) == 0 for other in chains)
    assert len({other[0] for other in chains}) == len(chains)
    assert shared(plain, blocks(chat(TEXT), tenant="acme")) == 0
    assert shared(plain, blocks({"model": "m", "prompt": TEXT}, path=COMPLETIONS)) == 0
    assert shared(plain, parsed(chat(TEXT), settings=ParserSettings(chain_key=1)).request.blocks) == 0


def test_tools_are_shared_by_those_who_have_the_same() -> None:
    tools = [{"type": "function", "function": {"name": f"f{n}", "description": TEXT[:200]}} for n in range(20)]
    one, other = blocks(chat("a", tools=tools)), blocks(chat("b", tools=tools))
    assert shared(one, other) == len(one) >= 8


def test_boundaries_are_part_of_the_key() -> None:
    """Each pair has the same letters and other boundaries; the tail makes a block of it."""
    tail: dict[str, object] = {"role": "user", "content": TEXT}

    def of(*messages: dict[str, object]) -> int:
        return blocks({"model": "m", "messages": [*messages, tail]})[0]

    def parts(*texts: str) -> dict[str, object]:
        return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}

    user: dict[str, object] = {"role": "user", "content": "abc"}
    assert of(user) == of(parts("abc")), "a list of one text is that text"
    keys = [
        of(user),
        of(parts("ab", "c")),
        of(parts("a", "bc")),
        of({"role": "user", "content": "ab"}, {"role": "user", "content": "c"}),
        of({"role": "assistant", "content": "abc"}),
        of({"role": "user", "content": "abc", "tool_calls": []}),
        of({"role": "user", "content": "abc", "name": "c"}),
        of({"role": "usera", "content": "bc"}),
        of({"role": "user", "content": 'a\\",\\"role'}),
    ]
    assert len(set(keys)) == len(keys)


def image(data: bytes, detail: str = "auto") -> dict[str, object]:
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    return {"type": "image_url", "image_url": {"url": url, "detail": detail}}


def png(width: int, height: int, body: bytes) -> bytes:
    size = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + size + b"\x08\x02\0\0\0" + body


def test_images_count_by_their_bytes() -> None:
    def of(data: bytes) -> tuple[int, ...]:
        return blocks(chat("s", [{"type": "text", "text": "what is this?"}, image(data)]))

    one = of(png(640, 480, bytes(5_000)))
    assert one == of(png(640, 480, bytes(5_000)))
    assert shared(one, of(png(640, 480, bytes(4_999) + b"\x01"))) == 0, "they differ in the last byte only"
    assert len(one) == (23 * 18 * 4 + 20) // 512, "four bytes of the stream for each token of the image"


def test_remote_images_count_by_their_address() -> None:
    def of(url: str) -> tuple[int, ...]:
        return blocks(chat("s", [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": TEXT}]))

    base = "https://pictures.example/" + "a" * 200
    assert shared(of(base + "1"), of(base + "2")) == 0
    assert of(base + "1") == of(base + "1")


def test_text_after_an_image_is_told_apart_from_text_before_it() -> None:
    text = {"type": "text", "text": TEXT}
    one, other = blocks(chat("s", [text, image(b"1")])), blocks(chat("s", [image(b"1"), text]))
    assert shared(one, other) == 0


def test_an_unseen_kind_of_part_does_not_pass_for_another() -> None:
    def of(part: dict[str, object]) -> tuple[int, ...]:
        return blocks(chat("s", [part, {"type": "text", "text": TEXT}]))

    assert shared(of({"type": "hologram", "hologram": "a"}), of({"type": "hologram", "hologram": "b"})) == 0


@pytest.mark.parametrize(
    ("part", "modality"),
    [
        ({"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}, "image"),
        ({"type": "input_image", "image_url": "https://x.example/a.png"}, "image"),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}, "image"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, "audio"),
        ({"type": "video_url", "video_url": {"url": "https://x.example/a.mp4"}}, "video"),
    ],
)
def test_modalities_are_named(part: dict[str, object], modality: str) -> None:
    assert parsed(chat("s", [part])).request.modalities == (modality,)
    assert parsed(chat("s", "text")).request.modalities == ()


def test_many_pictures_do_not_swell_the_stream() -> None:
    part = {"type": "image_url", "image_url": {"url": "u"}}
    got = parsed(chat("s", [part] * 5_000)).request
    assert len(got.blocks) <= (1 << 20) // 512 + 5_000 * 40 // 512
    assert got.prompt_tokens > 5_000_000
