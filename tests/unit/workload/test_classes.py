"""The eight classes: one seed, one trace; their lengths, rates and shared parts are what they declare."""

import itertools
from collections import Counter
from statistics import fmean, stdev

import pytest

from tradewind.workload.arrivals import CONSTANT, POISSON
from tradewind.workload.classes import CLASSES, LONG_CONTEXT, RAG_MULTIDOC, SHIFTS, VERY_LONG, class_named
from tradewind.workload.mooncake import Trace, reuse
from tradewind.workload.streams import stream

KV_TOKENS = 140_000  # of the card that the published fleet has


def made(name: str, *, seed: int = 1, rate_per_s: float = 10.0, for_s: float = 200.0) -> Trace:
    return class_named(name).make(stream(seed, name), rate_per_s=rate_per_s, for_s=for_s)


@pytest.mark.parametrize("name", CLASSES)
def test_same_seed_same_trace(name: str) -> None:
    assert made(name, for_s=30) == made(name, for_s=30) != made(name, for_s=30, seed=2)


@pytest.mark.parametrize("name", CLASSES)
def test_arrivals_are_in_order_and_ids_mean_equal_prefixes(name: str) -> None:
    trace, before = made(name, for_s=60), dict[int, tuple[int, ...]]()
    assert all(a.at_s <= b.at_s for a, b in itertools.pairwise(trace.requests))
    for request in trace.requests:
        assert len(request.block_ids) == request.prompt_tokens // trace.block_tokens
        for depth, block in enumerate(request.block_ids):
            assert before.setdefault(block, request.block_ids[:depth]) == request.block_ids[:depth]


@pytest.mark.parametrize(
    ("name", "mean", "deviation", "shared"),
    [
        ("baseline_mixed", 512, 200, (0.0, 0.0)),
        ("rapid_shift", 1_024, 405, (0.34, 0.40)),
        ("code_heavy", 1_040, 480, (0.19, 0.28)),
        ("adversarial_spike", 512, 195, (0.18, 0.27)),
        ("multiturn", 9_216, 4_700, (0.93, 0.97)),
        ("rag_multidoc", 4_000, 800, (0.85, 0.90)),
        ("long_context", 8_000, 1_500, (0.85, 0.92)),
        ("very_long", 16_000, 3_000, (0.85, 0.92)),
    ],
)
def test_lengths_and_reuse(name: str, mean: float, deviation: float, shared: tuple[float, float]) -> None:
    trace = made(name)
    lengths = [request.prompt_tokens for request in trace.requests]
    assert fmean(lengths) == pytest.approx(mean, rel=0.04)
    assert stdev(lengths) == pytest.approx(deviation, rel=0.12)
    assert shared[0] <= reuse(trace).anywhere <= shared[1]


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "adversarial_spike"])
def test_constant_arrivals_are_the_rate(name: str) -> None:
    trace = class_named(name).make(stream(1, name), rate_per_s=8, for_s=25, arrivals=CONSTANT)
    assert [request.at_s for request in trace.requests] == [index / 8 for index in range(200)]


def test_spikes_come_on_top_of_a_steady_rate() -> None:
    trace = made("adversarial_spike", rate_per_s=10, for_s=90)
    spikes = Counter(request.at_s for request in trace.requests if request.kind == "spike")
    assert spikes == {5.0: 50, 35.0: 50, 65.0: 50}
    assert len(trace.requests) - 150 == pytest.approx(900, rel=0.1)


def test_a_session_changes_shape_with_every_request() -> None:
    by_session: dict[str, list[int]] = {}
    for request in made("rapid_shift", for_s=60).requests:
        by_session.setdefault(request.session, []).append(request.prompt_tokens)
    assert max(map(len, by_session.values())) == 8
    assert all(a != b for lengths in by_session.values() for a, b in itertools.pairwise(lengths))
    assert fmean(prompt for prompt, _ in SHIFTS) == 1_024


def test_a_session_grows_turn_by_turn_and_keeps_what_it_said() -> None:
    by_session: dict[str, list[tuple[int, ...]]] = {}
    for request in made("multiturn").requests:
        by_session.setdefault(request.session, []).append(request.block_ids)
    for turns in by_session.values():
        assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(turns))
    whole = [turns for turns in by_session.values() if len(turns) == 8]
    assert [16 * turn for turn in range(1, 9)] == [len(blocks) for blocks in whole[0]]


@pytest.mark.parametrize("shape", [RAG_MULTIDOC, LONG_CONTEXT, VERY_LONG])
def test_a_pool_is_a_fifth_of_what_a_card_can_hold(shape: object) -> None:
    assert isinstance(shape, type(RAG_MULTIDOC))
    assert sum(shape.pool_tokens()) == pytest.approx(0.2 * KV_TOKENS, rel=0.1)
    assert all(tokens % 512 == 0 for tokens in shape.pool_tokens())


def test_unknown_class_names_the_known_ones() -> None:
    with pytest.raises(KeyError, match="very_long"):
        class_named("short")


def test_classes_take_any_arrivals() -> None:
    assert made("very_long", for_s=20) == CLASSES["very_long"].make(
        stream(1, "very_long"), rate_per_s=10.0, for_s=20, arrivals=POISSON
    )
