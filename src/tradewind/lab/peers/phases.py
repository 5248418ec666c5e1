"""What every peer goes through on the emulated cells: conversations, a limit that nobody tells, a kill."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tradewind.lab.client import LoadClient
from tradewind.lab.emulated import Counters, hit_ratio, largest_share
from tradewind.lab.peers.envoy_config import SESSION_HEADER
from tradewind.lab.peers.stand import Front
from tradewind.lab.scenarios.common import MISMATCH, failures_text, poisson_plan
from tradewind.lab.scenarios.mismatch import LIMIT_TOKENS
from tradewind.measure.record import Record
from tradewind.measure.summary import HTTP_BAD_REQUEST, leak, summarise
from tradewind.workload.plan import Planned, with_burst
from tradewind.workload.sessions import CHAT, sessions
from tradewind.workload.streams import stream
from tradewind.workload.texts import Texts

Json = dict[str, Any]
SLO_TTFT_S = 1.5
WARM_UP_RATIO = 0.2  # of the conversations' time, left out of latencies and hits
LIMITED, KILLED = "west-1", "south-1"
POLL_S = 0.05
BURST_LEAD_S, BURST_TOKENS, BURST_OUTPUT = 0.3, 1_000, 64
USERS_TOKENS = 128  # of prompts; fewer may be a warm-up that no user sent


# As CHAT, but turns follow so soon that a minute sees several of each conversation.
SHORT_CHAT = replace(CHAT, least_gap_s=4.0, mean_more_s=4.0, output_tokens=64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How long, and how much."""

    seed: int
    chat_per_s: float = 5.0
    chat_s: float = 45.0
    mismatch_per_s: float = 12.0
    mismatch_s: float = 16.0
    kill_per_s: float = 10.0
    kill_s: float = 20.0
    kill_at_s: float = 5.0
    back_at_s: float = 9.0
    burst_requests: int = 18


async def conversations(front: Front, sizes: Sizes) -> Json:
    """Chats that grow turn by turn: latencies, and what the engines' caches served."""
    trace = sessions(stream(sizes.seed, "chat"), SHORT_CHAT, rate_per_s=sizes.chat_per_s, for_s=sizes.chat_s)
    texts = Texts(trace, prefix=f"chat-{sizes.seed}")
    client = LoadClient(front.target, text_of=texts.text_of, headers_of=_session)
    from_s = WARM_UP_RATIO * sizes.chat_s
    async with asyncio.TaskGroup() as tasks:
        load = tasks.create_task(client.run(texts.plan()))
        before = tasks.create_task(_later(from_s, front))
    after = await front.cells.counters()
    counted = [record for record in load.result() if record.intended_s >= from_s]
    summary = summarise(counted, slo_ttft_s=SLO_TTFT_S, for_s=sizes.chat_s - from_s)
    engines = differences(before.result(), after)
    return {
        "requests": summary.requests,
        "success": summary.success_ratio,
        "failures": failures_text(load.result()),
        "ttft_p50_s": summary.ttft_s.p50,
        "ttft_p95_s": summary.ttft_s.p95,
        "ttft_p99_s": summary.ttft_s.p99,
        "e2e_p50_s": summary.e2e_s.p50,
        "e2e_p95_s": summary.e2e_s.p95,
        "goodput_per_s": summary.goodput_per_s,
        "hit_ratio": hit_ratio(engines),
        "largest_share": largest_share(engines),
        "send_lag_p99_s": summary.send_lag_s.p99,
    }


async def _later(after_s: float, front: Front) -> dict[str, Counters]:
    await asyncio.sleep(after_s)
    return await front.cells.counters()


def differences(before: Mapping[str, Counters], after: Mapping[str, Counters]) -> list[Counters]:
    """Of every engine; one that could not be read either time counts as unknown."""
    unknown = Counters(finished=None, prompt_tokens=None, hit_tokens=None)
    return [after.get(cell, unknown).since(before.get(cell, unknown)) for cell in sorted({*before, *after})]


def _session(planned: Planned) -> tuple[tuple[str, str], ...]:
    return ((SESSION_HEADER, planned.kind),) if planned.kind else ()


async def mismatch(front: Front, sizes: Sizes) -> Json:
    """One of nine cells refuses long prompts and does not say so."""
    fault = await front.cells.inject("max_model_len", cell=LIMITED, params={"tokens": LIMIT_TOKENS, "advertise": False})
    plan = poisson_plan(
        seed=sizes.seed, rate_per_s=sizes.mismatch_per_s, for_s=sizes.mismatch_s, mix=MISMATCH, prefix="mismatch"
    )
    records = await LoadClient(front.target).run(plan)
    await front.cells.clear(fault)
    found = leak(records, longer_than=LIMIT_TOKENS)
    others = [record for record in records if not record.ok and record.status != HTTP_BAD_REQUEST]
    return {
        "requests": len(records),
        "long": found.long_prompts,
        "leaked": found.leaked,
        "leak": found.ratio,
        "other_failures": len(others),
        "failures": failures_text(others),
    }


async def kill(front: Front, sizes: Sizes) -> Json:
    """SIGKILL one engine's process, start it again a few seconds later; who is lost, and when it serves again."""
    steady = poisson_plan(seed=sizes.seed, rate_per_s=sizes.kill_per_s, for_s=sizes.kill_s, prefix="kill")
    # Just before the kill, so that requests without a token wait in the engine that dies.
    plan = with_burst(
        steady,
        requests=sizes.burst_requests,
        at_s=sizes.kill_at_s - BURST_LEAD_S,
        prompt_tokens=BURST_TOKENS,
        output_tokens=BURST_OUTPUT,
    )
    client = LoadClient(front.target)
    begin_s = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        load = tasks.create_task(client.run(plan, start_s=begin_s))
        script = tasks.create_task(_kill_and_start(front, sizes, lambda: time.monotonic() - begin_s))
    killed_s, back_s = script.result()
    return {**kill_figures(load.result(), killed_s), "serves_again_s": back_s}


async def _kill_and_start(front: Front, sizes: Sizes, now_s: Callable[[], float]) -> tuple[float, float | None]:
    """When it was killed; seconds from its start until it works on a user's prompt, None if it did not."""
    await asyncio.sleep(sizes.kill_at_s)
    pid = await front.cells.pid(KILLED)
    assert pid is not None, f"{KILLED} has no engine to kill"
    os.kill(pid, signal.SIGKILL)
    killed_s = now_s()
    await asyncio.sleep(max(0.0, sizes.back_at_s - now_s()))
    await front.cells.inject("restart", cell=KILLED)
    started_s = now_s()
    while now_s() < sizes.kill_s:
        counted = (await front.cells.counters()).get(KILLED)
        if counted is not None and (counted.prompt_tokens or 0.0) >= USERS_TOKENS:
            return killed_s, now_s() - started_s
        await asyncio.sleep(POLL_S)
    return killed_s, None


def kill_figures(records: Sequence[Record], killed_s: float) -> Json:
    """Failures by what the client had got, and those of requests that were sent when the engine was dead already."""
    failed = [record for record in records if not record.ok]
    cut = [record for record in failed if record.content_s is not None]
    late_s = [record.sent_s - killed_s for record in failed if (record.sent_s or 0.0) > killed_s and record.sent_s]
    return {
        "requests": len(records),
        "lost": len(failed) - len(cut),
        "cut": len(cut),
        "sent_later_and_failed": len(late_s),
        "failing_for_s": max(late_s, default=0.0),
        "failures": failures_text(failed),
    }
