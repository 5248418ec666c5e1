"""Length mixes: endless (prompt tokens, output tokens, kind), from a generator of chance."""

import random
from collections.abc import Iterator

Lengths = Iterator[tuple[int, int, str]]

SHORT, LONG = "short", "long"


def fixed(*, prompt_tokens: int, output_tokens: int) -> Lengths:
    """Every request the same."""
    while True:
        yield prompt_tokens, output_tokens, SHORT


def baseline_mixed(rng: random.Random, *, output_tokens: int = 128) -> Lengths:
    """512 +- 200 prompt tokens (normal, kept within 32..1,024) and 128 output tokens: published_systems.md A."""
    while True:
        yield normal(rng, mean=512, deviation=200, least=32, most=1_024), output_tokens, SHORT


def mismatch(
    rng: random.Random,
    *,
    long_ratio: float = 0.3,
    long_tokens: tuple[int, int] = (1_500, 4_000),
    output_tokens: int = 128,
) -> Lengths:
    """The mix of the capability-mismatch test: `long_ratio` of the prompts uniform in `long_tokens`, the rest short.

    A short one fits a cell of 1,024 tokens together with its output; a long one never does.
    """
    while True:
        if rng.random() < long_ratio:
            yield rng.randint(*long_tokens), output_tokens, LONG
        else:
            yield normal(rng, mean=512, deviation=200, least=32, most=1_000 - output_tokens), output_tokens, SHORT


def normal(rng: random.Random, *, mean: float, deviation: float, least: int, most: int) -> int:
    """A rounded draw, kept within its bounds."""
    return max(least, min(most, round(rng.gauss(mean, deviation))))
