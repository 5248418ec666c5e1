"""CPU of one per-request decision, the look-up in the prefix index and the booking included."""

import random
import time
import timeit
from collections import deque

from benchmarks.grids import cell_views
from tradewind.core.pick.picker import Picker
from tradewind.core.pick.settings import PickSettings
from tradewind.core.prefix.index import PrefixIndex
from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.instant.usage import p50
from tradewind.model.decision import Decision
from tradewind.model.outcome import Outcome
from tradewind.model.request import Request
from tradewind.model.view import GridView, PathReading, ViewVersion

BLOCK_TOKENS = 128
BYTES_PER_TOKEN = 4
SIZES = ((9, 2 << 10, 60.0), (64, 64 << 10, 300.0))  # cells, bytes of prompt, bound in microseconds
OUTPUT_TOKENS = 128
WINDOW = 100  # decisions
FIRST_S, DECODE_S = 0.3, 3.0  # of every request
LOAD_PER_CELL = 1.2  # requests per second
SHARED = 0.7  # of a prompt is the conversation so far
CONVERSATIONS_PER_CELL = 20


def bench(quick: bool) -> list[Check]:
    rows = []
    for cells, prompt_bytes, bound_us in SIZES:
        best_us = min(measure(cells, prompt_bytes, 400 if quick else 1_200, seed) for seed in range(2 if quick else 5))
        name = (
            f"pick: CPU of a decision, {cells} cells, {prompt_bytes >> 10} KiB prompt, p50 of {WINDOW} in a row, best"
        )
        rows.append(at_most(name, best_us, bound_us, unit="us"))
    rows.append(reported("for scale, in the same run: a list of 1,000 squares, best", scale_us(), unit="us"))
    return rows


def measure(cells: int, prompt_bytes: int, picks: int, seed: int) -> float:
    """CPU microseconds of `pick` under steady load: requests in flight, a warm index, learned speeds.

    The median of the quietest stretch: the cores are shared, and a neighbour's cache misses are not the decision's.
    """
    rng = random.Random(seed)
    picker = Picker(PickSettings(), index=PrefixIndex())
    views = cell_views(cells, 1)
    model = views[0].cell.capabilities.models[0]
    picker.observe_view(GridView(version=ViewVersion(control_id="c", incarnation="i", counter=1), cells=views), 0.0)
    for view in views:
        picker.observe_path(PathReading(cell_id=view.cell.cell_id, rtt_s=rng.uniform(0.005, 0.2)), 0.0)
    waiting: deque[tuple[float, Decision]] = deque()
    decoding: deque[tuple[float, Decision]] = deque()
    now_s, times_us = 1.0, []
    for number in range(2 * picks):
        now_s += 1.0 / (LOAD_PER_CELL * cells)
        while waiting and waiting[0][0] <= now_s:
            at_s, decision = waiting.popleft()
            picker.first_token(decision.decision_id, at_s)
            decoding.append((at_s + DECODE_S, decision))
        while decoding and decoding[0][0] <= now_s:
            at_s, decision = decoding.popleft()
            picker.finished(decision.decision_id, _outcome(decision), at_s)
        asked = _request(model, prompt_bytes, number, rng.randrange(CONVERSATIONS_PER_CELL * cells))
        started_s = time.thread_time()
        found = picker.pick(asked, now_s=now_s, rng=rng)
        elapsed_s = time.thread_time() - started_s
        assert isinstance(found, Decision)
        waiting.append((now_s + FIRST_S, found))
        if number >= picks:  # warm
            times_us.append(elapsed_s * 1e6)
    return min(p50(times_us[start : start + WINDOW]) for start in range(0, picks - WINDOW + 1, WINDOW // 2))


def scale_us() -> float:
    """How fast this machine is right now at plain Python."""
    return min(timeit.repeat("[i * i for i in range(1000)]", number=100, repeat=20)) * 1e4


def _request(model: str, prompt_bytes: int, number: int, conversation: int) -> Request:
    tokens = prompt_bytes // BYTES_PER_TOKEN
    count = max(1, tokens // BLOCK_TOKENS)
    shared = int(SHARED * count)
    chain = random.Random(conversation)
    own = random.Random(-1 - number)
    blocks = tuple((chain if place < shared else own).getrandbits(64) for place in range(count))
    return Request(
        request_id=f"r{number}",
        model=model,
        prompt_tokens=tokens,
        max_output_tokens=OUTPUT_TOKENS,
        blocks=blocks,
        block_tokens=float(BLOCK_TOKENS),
        stream=True,
    )


def _outcome(decision: Decision) -> Outcome:
    return Outcome(
        request_id=decision.request_id,
        cell_id=decision.cell_id,
        status=200,
        response_bytes=1,
        ttft_s=FIRST_S,
        duration_s=FIRST_S + DECODE_S,
        completion_tokens=OUTPUT_TOKENS,
    )
