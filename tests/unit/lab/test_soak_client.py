"""What the soak calls an end: every token is compared with the one that the prompt must give."""

import json
import random

import pytest

from tradewind.lab.soak.client import LARGEST_BYTES, SMALLEST_BYTES, End, draw, judge

EXPECTED = " dew oak fin pen"


def event(text: str, answer_id: str = "a") -> bytes:
    body = {"id": answer_id, "choices": [{"index": 0, "delta": {"content": text}}]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


WORDS = [event(" dew"), event(" oak"), event(" fin"), event(" pen")]
ROLE = event("")
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error": {"message": "EngineCore died", "code": 500}}\n\n'


@pytest.mark.parametrize(
    ("status", "parts", "broken", "end"),
    [
        (200, [ROLE, *WORDS, DONE], "", End.OK),
        (200, [], "cut", End.LOST),
        (0, [], "the server disconnected", End.LOST),
        (200, [ROLE], "cut", End.LOST),
        (200, [ROLE, DONE], "", End.LOST),
        (200, [ROLE, *WORDS[:2]], "cut", End.CUT),
        (200, [ROLE, *WORDS[:2], b'data: {"id": "a", "cho'], "cut", End.CUT),
        (200, [ROLE, *WORDS], "", End.CUT),
        (200, [ROLE, *WORDS[:3], DONE], "", End.CUT),
        (503, [b'{"error": {}}'], "", End.ERROR_STATUS),
        (200, [ERROR, DONE], "", End.ERROR_EVENT),
        (200, [ROLE, WORDS[0], WORDS[0], *WORDS[1:], DONE], "", End.WRONG),
        (200, [ROLE, *WORDS, *WORDS, DONE], "", End.WRONG),
        (200, [ROLE, *WORDS[:2], event(" fin", "b"), WORDS[3], DONE], "", End.WRONG),
    ],
)
def test_an_end_is_called_what_it_is(status: int, parts: list[bytes], broken: str, end: End) -> None:
    assert judge(status, b"".join(parts), broken, expected=EXPECTED)[0] is end


def test_prompts_are_of_every_order_of_magnitude_and_the_same_for_a_seed() -> None:
    def lengths() -> list[int]:
        rng = random.Random(1)
        return [len(draw(rng, f"r{i}", output_tokens=4, cancel_share=0.1).text) for i in range(200)]

    found = lengths()
    assert found == lengths()
    assert min(found) < 100
    assert max(found) > 100_000
    assert all(SMALLEST_BYTES <= length <= LARGEST_BYTES for length in found)
