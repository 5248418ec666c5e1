"""Request classes with their prefix blocks: what of a prompt is shared with which other prompt is declared here.

The eight of published_systems.md A by name in `CLASSES`, and `hot_prefix`, the project's own. The publication gives
lengths only. Its four long classes exceed the cards' cold prefill several times, and its rates hardly fall with
prompt length, so most of each prompt must have been cached (simulation.md 3.4). The pools below are declared so that
the published fleet can serve the published rates, and so small, a fifth of one card's KV blocks (140,000 tokens),
that every card has computed its pool once within a warm-up of 30 s.
"""

import heapq
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist, pstdev
from typing import Protocol

from tradewind.workload.arrivals import POISSON, Arrivals
from tradewind.workload.lengths import baseline_mixed as mixed_lengths
from tradewind.workload.lengths import mismatch as mismatch_lengths
from tradewind.workload.lengths import normal
from tradewind.workload.mooncake import Trace, TracedRequest

BLOCK_TOKENS = 128
COARSE_TOKENS = 512  # shared parts are multiples of it, so that coarser blocks share as much


class MakeTrace(Protocol):
    """Requests at a mean rate for so long, from a generator of chance and nothing else."""

    def __call__(
        self, rng: random.Random, *, rate_per_s: float, for_s: float, arrivals: Arrivals = POISSON
    ) -> Trace: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadClass:
    """A class by its name; `title` says its shape, `shared` what its prompts have in common."""

    name: str
    title: str
    shared: str
    make: MakeTrace


class _Ids:
    """Block ids, in order, each given out once."""

    def __init__(self) -> None:
        self._next = 1

    def take(self, tokens: int) -> tuple[int, ...]:
        """Ids for the whole blocks of a text of so many tokens."""
        begin = self._next
        self._next += tokens // BLOCK_TOKENS
        return tuple(range(begin, self._next))


# --- short prompts -----------------------------------------------------------------------------------------------


def baseline_mixed(rng: random.Random, *, rate_per_s: float, for_s: float, arrivals: Arrivals = POISSON) -> Trace:
    """512 +- 200 prompt tokens, 128 out, nothing shared."""
    ids = _Ids()
    lengths = mixed_lengths(rng)
    times_s = arrivals.times(rng, rate_per_s=rate_per_s, for_s=for_s)
    return _trace(
        _single(at_s, prompt, output, ids.take(prompt))
        for at_s, (prompt, output, _) in zip(times_s, lengths, strict=False)
    )


def mismatch(rng: random.Random, *, rate_per_s: float, for_s: float, arrivals: Arrivals = POISSON) -> Trace:
    """The length mix of the capability test: 30 % long prompts, see `lengths.mismatch`; nothing shared."""
    ids = _Ids()
    times_s = arrivals.times(rng, rate_per_s=rate_per_s, for_s=for_s)
    return _trace(
        _single(at_s, prompt, output, ids.take(prompt), kind=kind)
        for at_s, (prompt, output, kind) in zip(times_s, mismatch_lengths(rng), strict=False)
    )


def hot_prefix(
    rng: random.Random, *, rate_per_s: float, for_s: float, hot_ratio: float = 0.4, prefix_tokens: int = 6_016
) -> Trace:
    """`baseline_mixed` in which `hot_ratio` of the prompts begin with one and the same prefix of whole blocks."""
    ids = _Ids()
    prefix = ids.take(prefix_tokens)
    lengths = mixed_lengths(rng)
    times_s = POISSON.times(rng, rate_per_s=rate_per_s, for_s=for_s)
    requests: list[TracedRequest] = []
    for at_s, (prompt, output, _) in zip(times_s, lengths, strict=False):
        rest = ids.take(prompt)
        if rng.random() < hot_ratio:
            requests.append(_single(at_s, prefix_tokens + prompt, output, prefix + rest, kind="hot"))
        else:
            requests.append(_single(at_s, prompt, output, rest))
    return _trace(requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortShape:
    """Prompts that begin with one of a few preambles (an application's system prompt); lengths are of the whole."""

    preambles: int
    preamble_tokens: int
    prompt_tokens: tuple[float, float]  # mean and deviation of a normal
    most_tokens: int
    output_tokens: int
    least_own_tokens: int = 32


CODE_HEAVY = ShortShape(
    preambles=16, preamble_tokens=256, prompt_tokens=(1_024, 512), most_tokens=2_560, output_tokens=192
)
SPIKE = ShortShape(preambles=16, preamble_tokens=128, prompt_tokens=(512, 200), most_tokens=1_024, output_tokens=128)
SPIKE_REQUESTS, SPIKE_EVERY_S, FIRST_SPIKE_S = 50, 30.0, 5.0
SHIFTS = ((512, 64), (1_536, 192), (768, 96), (1_280, 160))  # prompt and output tokens of a session's next requests
SHIFT_TURNS, SHIFT_GAP_S = 8, (2.0, 3.0)  # requests of a session, and the time between two: see TURN_GAP_S
SHIFT_PREAMBLES, SHIFT_PREAMBLE_TOKENS = 16, 384


def _short(
    rng: random.Random, shape: ShortShape, *, rate_per_s: float, for_s: float, arrivals: Arrivals = POISSON
) -> Trace:
    times_s = arrivals.times(rng, rate_per_s=rate_per_s, for_s=for_s)
    return _trace(_shorts(rng, shape, ((at_s, "") for at_s in times_s)))


def adversarial_spike(
    rng: random.Random,
    *,
    rate_per_s: float,
    for_s: float,
    arrivals: Arrivals = POISSON,
    requests: int = SPIKE_REQUESTS,
    every_s: float = SPIKE_EVERY_S,
    first_s: float = FIRST_SPIKE_S,
) -> Trace:
    """A steady `rate_per_s`, and on top of it so many requests at one moment each `every_s`; their kind is "spike"."""
    steady = ((at_s, "") for at_s in arrivals.times(rng, rate_per_s=rate_per_s, for_s=for_s))
    spikes = (
        (first_s + index * every_s, "spike")
        for index in range(int(max(0.0, for_s - first_s) / every_s) + 1)
        if first_s + index * every_s < for_s
        for _ in range(requests)
    )
    return _trace(_shorts(rng, SPIKE, heapq.merge(steady, spikes)))


def _shorts(rng: random.Random, shape: ShortShape, arriving: Iterable[tuple[float, str]]) -> Iterator[TracedRequest]:
    ids = _Ids()
    preambles = [ids.take(shape.preamble_tokens) for _ in range(shape.preambles)]
    mean, deviation = shape.prompt_tokens
    least = shape.preamble_tokens + shape.least_own_tokens
    for at_s, kind in arriving:
        prompt = normal(rng, mean=mean, deviation=deviation, least=least, most=shape.most_tokens)
        blocks = rng.choice(preambles) + ids.take(prompt - shape.preamble_tokens)
        yield _single(at_s, prompt, shape.output_tokens, blocks, kind=kind)


def rapid_shift(rng: random.Random, *, rate_per_s: float, for_s: float, arrivals: Arrivals = POISSON) -> Trace:
    """1,024 prompt tokens in the mean; from request to request a session changes between the four `SHIFTS`."""
    ids = _Ids()
    preambles = [ids.take(SHIFT_PREAMBLE_TOKENS) for _ in range(SHIFT_PREAMBLES)]
    times_s = arrivals.times(rng, rate_per_s=rate_per_s, for_s=for_s)
    requests: list[TracedRequest] = []
    for at_s, session, turn in _turns(rng, times_s, turns=SHIFT_TURNS, gap_s=SHIFT_GAP_S, rate_per_s=rate_per_s):
        prompt, output = SHIFTS[(session + turn) % len(SHIFTS)]
        blocks = preambles[session % len(preambles)] + ids.take(prompt - SHIFT_PREAMBLE_TOKENS)
        requests.append(_single(at_s, prompt, output, blocks, session=str(session)))
    return _trace(requests)


# --- long prompts over shared documents --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentShape:
    """A question about one of the pool's documents, which begins the prompt. Pairs: mean and deviation of normals.

    The documents' lengths are spread over their distribution, not drawn: every seed has the same pool. Each is as
    popular as any other.
    """

    documents: int
    document_tokens: tuple[float, float]
    question_tokens: tuple[float, float]
    output_tokens: int = 128

    def pool_tokens(self) -> tuple[int, ...]:
        """The documents' lengths in whole coarse blocks: quantiles, stretched to the class's deviation."""
        mean, deviation = self.document_tokens
        quantiles = [NormalDist().inv_cdf((index + 0.5) / self.documents) for index in range(self.documents)]
        stretch = deviation / pstdev(quantiles)
        wanted = (mean + stretch * quantile for quantile in quantiles)
        return tuple(max(1, round(tokens / COARSE_TOKENS)) * COARSE_TOKENS for tokens in wanted)


RAG_MULTIDOC = DocumentShape(documents=8, document_tokens=(3_520, 750), question_tokens=(480, 150))
LONG_CONTEXT = DocumentShape(documents=4, document_tokens=(7_168, 1_450), question_tokens=(960, 250))
VERY_LONG = DocumentShape(documents=2, document_tokens=(14_208, 2_950), question_tokens=(1_792, 400))


def over_documents(
    rng: random.Random, shape: DocumentShape, *, rate_per_s: float, for_s: float, arrivals: Arrivals = POISSON
) -> Trace:
    """Each request takes a document of the pool and a question that nobody else asks."""
    ids = _Ids()
    pool = [(tokens, ids.take(tokens)) for tokens in shape.pool_tokens()]
    mean, deviation = shape.question_tokens
    requests: list[TracedRequest] = []
    for at_s in arrivals.times(rng, rate_per_s=rate_per_s, for_s=for_s):
        tokens, document = rng.choice(pool)
        question = normal(rng, mean=mean, deviation=deviation, least=64, most=round(4 * mean))
        requests.append(_single(at_s, tokens + question, shape.output_tokens, document + ids.take(question)))
    return _trace(requests)


# --- conversations -----------------------------------------------------------------------------------------------

TURN_TOKENS, TURNS = 2_048, 8
SCRIPTS, SCRIPT_TOKENS = 2, 13_312  # conversations follow one of so many openings for six turns and a half
TURN_GAP_S = (10.0, 10.0)  # between two turns of a session: the first, and an exponential of the second on top


def multiturn(rng: random.Random, *, rate_per_s: float, for_s: float, arrivals: Arrivals = POISSON) -> Trace:
    """Eight turns that grow by 2,048 tokens up to 16,384; sessions share an opening and then go their own way."""
    ids = _Ids()
    scripts = [ids.take(SCRIPT_TOKENS) for _ in range(SCRIPTS)]
    own: dict[int, tuple[int, ...]] = {}  # by session: the blocks after its opening
    times_s = arrivals.times(rng, rate_per_s=rate_per_s, for_s=for_s)
    requests: list[TracedRequest] = []
    for at_s, session, turn in _turns(rng, times_s, turns=TURNS, gap_s=TURN_GAP_S, rate_per_s=rate_per_s):
        if session not in own:
            own[session] = ids.take(TURN_TOKENS * TURNS - SCRIPT_TOKENS)
        prompt = TURN_TOKENS * (turn + 1)
        blocks = (scripts[session % SCRIPTS] + own[session])[: prompt // BLOCK_TOKENS]
        requests.append(_single(at_s, prompt, 128, blocks, session=str(session)))
    return _trace(requests)


def _turns(
    rng: random.Random, times_s: Iterable[float], *, turns: int, gap_s: tuple[float, float], rate_per_s: float
) -> Iterator[tuple[float, int, int]]:
    """Each arrival is the next turn of the session that waits longest for one, else the first of a new session.

    Yields (time, session, turn from 0). At the start as many sessions are open as in the steady state.
    """
    least_s, more_s = gap_s
    open_before = round(rate_per_s * (least_s + more_s) * (turns - 1) / turns)
    waiting = [
        (rng.uniform(0.0, least_s + more_s), session, 1 + rng.randrange(turns - 1)) for session in range(open_before)
    ]
    heapq.heapify(waiting)
    newest = open_before
    for at_s in times_s:
        if waiting and waiting[0][0] <= at_s:
            _, session, turn = heapq.heappop(waiting)
        else:
            session, turn, newest = newest, 0, newest + 1
        yield at_s, session, turn
        if turn + 1 < turns:
            heapq.heappush(waiting, (at_s + least_s + rng.expovariate(1 / more_s), session, turn + 1))


# --- the eight ---------------------------------------------------------------------------------------------------


def _documents(shape: DocumentShape, what: str) -> str:
    pool = shape.pool_tokens()
    return f"{len(pool)} {what} of {min(pool):,} to {max(pool):,} tokens, {sum(pool):,} in all"


CLASSES: dict[str, WorkloadClass] = {
    entry.name: entry
    for entry in (
        WorkloadClass(
            name="baseline_mixed", title="512 +- 200 prompt tokens, 128 out", shared="nothing", make=baseline_mixed
        ),
        WorkloadClass(
            name="rapid_shift",
            title="1,024 prompt tokens in the mean, a session's requests change from 512 to 1,536; 64 to 192 out",
            shared="16 preambles of 384 tokens",
            make=rapid_shift,
        ),
        WorkloadClass(
            name="code_heavy",
            title="1,024 +- 512 prompt tokens, 192 out",
            shared="16 preambles of 256 tokens",
            make=partial(_short, shape=CODE_HEAVY),
        ),
        WorkloadClass(
            name="adversarial_spike",
            title="512 +- 200 prompt tokens, 128 out; 50 requests at once on top, each 30 s",
            shared="16 preambles of 128 tokens",
            make=adversarial_spike,
        ),
        WorkloadClass(
            name="multiturn",
            title="8 turns that grow by 2,048 tokens to 16,384, 128 out",
            shared=f"{SCRIPTS} openings of {SCRIPT_TOKENS:,} tokens, {SCRIPTS * SCRIPT_TOKENS:,} in all",
            make=multiturn,
        ),
        WorkloadClass(
            name="rag_multidoc",
            title="4,000 +- 800 prompt tokens, 128 out",
            shared=_documents(RAG_MULTIDOC, "sets of retrieved documents"),
            make=partial(over_documents, shape=RAG_MULTIDOC),
        ),
        WorkloadClass(
            name="long_context",
            title="8,000 +- 1,500 prompt tokens, 128 out",
            shared=_documents(LONG_CONTEXT, "documents"),
            make=partial(over_documents, shape=LONG_CONTEXT),
        ),
        WorkloadClass(
            name="very_long",
            title="16,000 +- 3,000 prompt tokens, 128 out",
            shared=_documents(VERY_LONG, "documents"),
            make=partial(over_documents, shape=VERY_LONG),
        ),
    )
}


def class_named(name: str) -> WorkloadClass:
    """The class. Raises KeyError with the known names."""
    if name not in CLASSES:
        raise KeyError(f"unknown class {name!r}; known: {', '.join(CLASSES)}")
    return CLASSES[name]


def _single(
    at_s: float, prompt: int, output: int, blocks: tuple[int, ...], *, kind: str = "", session: str = ""
) -> TracedRequest:
    return TracedRequest(
        at_s=at_s, prompt_tokens=prompt, output_tokens=output, block_ids=blocks, kind=kind, session=session
    )


def _trace(requests: Iterable[TracedRequest]) -> Trace:
    return Trace(requests=tuple(requests), block_tokens=BLOCK_TOKENS)
