"""`make acceptance`: one trace through the live grid by our load client and by others' tools; TTFT side by side.

    python -m tradewind.lab.acceptance.run [--class rag_multidoc] [--rate 2] [--for 60] [--seed 1] [--only aiperf]

Each client has the grid to itself, newly started: caches are cold and the requests the same. What a gateway saw of the
same requests stands beside each: a client and the gateway that disagree do not measure the same thing.
"""

import argparse
import asyncio
import contextlib
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec
import uvloop
from rich.console import Console

from tradewind.config.schema import GridConfig
from tradewind.lab.acceptance.install import (
    TOKENIZER,
    NotInstalled,
    ensure_installed,
    environment,
    folder_of,
    tokenizer_of,
)
from tradewind.lab.acceptance.tools import AIPERF, GUIDELLM, Measured, Replay, Tool, measured
from tradewind.lab.checks import Check, all_hold, at_least, at_most, checks_table, reported, write_checks
from tradewind.lab.client import LoadClient
from tradewind.lab.facts import machine_facts
from tradewind.lab.grid import LOG_QUIET_S, LiveGrid
from tradewind.lab.grids import MODEL, emulated_grid
from tradewind.measure.statistics import percentile
from tradewind.workload.files import write_trace
from tradewind.workload.mooncake import Trace, coarser
from tradewind.workload.named import make_trace
from tradewind.workload.texts import Texts

TOOLS = (AIPERF, GUIDELLM)
OURS = "tradewind load"
TOOL_OVERHEAD_S = 240.0  # for a tool to start, make its prompts and write its report
OTHER_RUN_BOUND = 0.15  # a tool's median TTFT against ours: other runs of the same requests
SAME_RUN_BOUND = 0.10  # against what the gateway saw of the very same requests: a busy client reads late
Say = Callable[[str], None]


class GatewaySaw(msgspec.Struct, frozen=True, kw_only=True):
    """The same requests in the gateway's request log."""

    requests: int
    ttft: Measured
    off_p95_s: float | None  # how far arrivals were from the trace's times, their common shift left out
    prompt_tokens: float | None  # mean, as engines counted
    cached_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One client's run."""

    client: str
    measured: Measured
    gateway: GatewaySaw


class _Line(msgspec.Struct):
    model: str | None = None
    at_unix_s: float = 0.0  # of the end
    duration_s: float = 0.0
    completion_tokens: int | None = None
    ttft_s: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What every client replays."""

    workload: str = "rag_multidoc"
    rate_per_s: float = 2.0
    for_s: float = 60.0
    seed: int = 1
    home: Path = Path("build")

    @property
    def folder(self) -> Path:
        """For traces, reports and the grid's state."""
        return self.home / "acceptance"


def acceptance_grid(state_dir: Path, seed: int) -> GridConfig:
    """Three RTX PRO 6000 at 8, 22 and 38 ms, a cell per request."""
    return emulated_grid(
        cells_per_site=1, policy="cost", exporters=False, seed=seed, state_dir=str(state_dir), name="acceptance"
    )


async def run_arms(options: Options, tools: Sequence[Tool], *, say: Say) -> list[Arm]:
    """Ours first, then each tool. Raises StartFailed, OSError; a tool that fails raises RuntimeError with its words."""
    made = make_trace(options.workload, seed=options.seed, rate_per_s=options.rate_per_s, for_s=options.for_s)
    trace = coarser(made)
    arms = [await _arm(options, trace, OURS, lambda grid: _ours(grid, trace), say=say)]
    for tool in tools:

        async def run_tool(grid: LiveGrid, tool: Tool = tool) -> Measured:
            return await _theirs(grid, tool, trace, options)

        arms.append(await _arm(options, trace, tool.name, run_tool, say=say))
    return arms


async def _arm(
    options: Options, trace: Trace, client: str, run: Callable[[LiveGrid], Awaitable[Measured]], *, say: Say
) -> Arm:
    state = (options.folder / f"state-{client.replace(' ', '-')}").absolute()
    shutil.rmtree(state, ignore_errors=True)
    async with LiveGrid(acceptance_grid(state, options.seed), say=say) as grid:
        say(f"{client}: {options.workload}, {options.rate_per_s:g}/s for {options.for_s:g} s")
        found = await run(grid)
        await asyncio.sleep(LOG_QUIET_S)
        log = state / f"gateway-{grid.gateway.id}" / "requests.ndjson"
        return Arm(client=client, measured=found, gateway=gateway_saw(log, trace))


async def _ours(grid: LiveGrid, trace: Trace) -> Measured:
    texts = Texts(trace, prefix="ours")
    records = await LoadClient(grid.target(model=MODEL), text_of=texts.text_of).run(texts.plan())
    ttfts_s = [record.ttft_sent_s for record in records if record.ok and record.ttft_sent_s is not None]
    return measured(ttfts_s, failed=len(records) - len(ttfts_s))


async def _theirs(grid: LiveGrid, tool: Tool, trace: Trace, options: Options) -> Measured:
    folder = (options.folder / tool.name).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder.with_suffix(".jsonl")
    write_trace(path, trace, in_seconds=tool.seconds)
    replay = Replay(
        address=grid.gateway.listen,
        model=MODEL,
        trace=path,
        tokenizer=TOKENIZER,
        tokenizer_folder=tokenizer_of(tool, options.home).absolute(),
        folder=folder,
    )
    command = tool.command(folder_of(tool, options.home).absolute(), replay)
    log = folder.with_suffix(".log")
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment(tool, options.home),
            cwd=folder,
        )
        try:
            async with asyncio.timeout(options.for_s + TOOL_OVERHEAD_S):
                status = await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    if status:
        raise RuntimeError(f"{tool.name} ended with {status}; see {log}")
    try:
        return tool.read(folder)
    except (OSError, msgspec.MsgspecError, LookupError) as error:
        raise RuntimeError(f"{tool.name} wrote no report that can be read: {error!r}; see {log}") from error


def gateway_saw(log: Path, trace: Trace) -> GatewaySaw:
    """The trace's requests in a gateway's log: what a tool tries before it starts names no model or another length.

    Raises OSError, msgspec.DecodeError.
    """
    decoder = msgspec.json.Decoder(_Line)
    planned = {request.output_tokens for request in trace.requests}
    every = [decoder.decode(line) for line in log.read_bytes().splitlines()]
    asked = [line for line in every if line.model is not None]
    lines = [line for line in asked if line.completion_tokens is None or line.completion_tokens in planned]
    ttfts_s = [line.ttft_s for line in lines if line.ttft_s is not None]
    prompts = [line.prompt_tokens for line in lines if line.prompt_tokens is not None]
    return GatewaySaw(
        requests=len(lines),
        ttft=measured(ttfts_s, failed=len(lines) - len(ttfts_s)),
        off_p95_s=_off_p95_s([line.at_unix_s - line.duration_s for line in lines], trace),
        prompt_tokens=sum(prompts) / len(prompts) if prompts else None,
        cached_ratio=sum(line.cached_tokens or 0 for line in lines) / sum(prompts) if sum(prompts) else None,
    )


def _off_p95_s(arrived_s: Sequence[float], trace: Trace) -> float | None:
    """None where not as many arrived as the trace has: then nobody knows which is which."""
    if not arrived_s or len(arrived_s) != len(trace.requests):
        return None
    shifts = [at_s - request.at_s for at_s, request in zip(sorted(arrived_s), trace.requests, strict=True)]
    common_s = median(shifts)
    return percentile([abs(shift - common_s) for shift in shifts], 0.95)


def acceptance_checks(arms: Sequence[Arm]) -> list[Check]:
    """Every client's figures; each against the gateway of its run, and theirs against ours."""
    ours = next(arm for arm in arms if arm.client == OURS)
    return [check for arm in arms for check in (*_figures(arm), *_against(arm, ours))]


def _figures(arm: Arm) -> list[Check]:
    found, saw = arm.measured, arm.gateway
    requests = found.succeeded + found.failed
    cached = "unknown" if saw.cached_ratio is None else f"{saw.cached_ratio:.0%}"
    prompt = "unknown" if saw.prompt_tokens is None else f"{saw.prompt_tokens:,.0f} tokens"
    note = f"mean prompt {prompt}, cached {cached}"
    return [
        at_least(f"{arm.client}: served", found.succeeded / requests if requests else None, 1.0, note=f"{requests}"),
        reported(f"{arm.client}: TTFT mean", _ms(found.ttft_mean_s), unit="ms", note=note),
        reported(f"{arm.client}: TTFT p50", _ms(found.ttft_p50_s), unit="ms"),
        reported(f"{arm.client}: TTFT p95", _ms(found.ttft_p95_s), unit="ms"),
        reported(f"{arm.client}: arrivals off the trace's times, p95", _ms(saw.off_p95_s), unit="ms"),
        at_most(
            f"{arm.client}: TTFT mean against the gateway's log",
            _apart(found.ttft_mean_s, saw.ttft.ttft_mean_s),
            SAME_RUN_BOUND,
            note=f"{_ms(saw.ttft.ttft_mean_s) or 0:.0f} ms of {saw.requests} requests",
        ),
        at_most(
            f"{arm.client}: TTFT p95 against the gateway's log",
            _apart(found.ttft_p95_s, saw.ttft.ttft_p95_s),
            SAME_RUN_BOUND,
            note=f"{_ms(saw.ttft.ttft_p95_s) or 0:.0f} ms",
        ),
    ]


def _against(arm: Arm, ours: Arm) -> list[Check]:
    if arm is ours:
        return []
    theirs, mine = arm.measured, ours.measured
    mean, p95 = (
        _apart(theirs.ttft_mean_s, mine.ttft_mean_s),
        _apart(theirs.ttft_p95_s, mine.ttft_p95_s),
    )
    return [
        at_most(f"{arm.client} against ours: TTFT p50", _apart(theirs.ttft_p50_s, mine.ttft_p50_s), OTHER_RUN_BOUND),
        # The tail of a cold start belongs to a few requests and to when exactly they came: no bound across runs.
        reported(f"{arm.client} against ours: TTFT mean", mean),
        reported(f"{arm.client} against ours: TTFT p95", p95),
    ]


def _apart(one: float | None, other: float | None) -> float | None:
    """How far one is from the other, as a share of it; None when either is unknown."""
    return abs(one / other - 1) if one is not None and other else None


def _ms(value_s: float | None) -> float | None:
    return None if value_s is None else 1e3 * value_s


def main() -> int:
    """0 when every client that could be installed agrees; tools that could not are told in a line."""
    parser = argparse.ArgumentParser(prog="python -m tradewind.lab.acceptance.run")
    parser.add_argument("--class", default=Options().workload, dest="workload", metavar="NAME")
    parser.add_argument("--rate", type=float, default=Options().rate_per_s, dest="rate_per_s", metavar="PER_SECOND")
    parser.add_argument("--for", type=float, default=Options().for_s, dest="for_s", metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=Options().seed)
    parser.add_argument("--only", default="", choices=["", *(tool.name for tool in TOOLS)])
    chosen = parser.parse_args()
    options = Options(workload=chosen.workload, rate_per_s=chosen.rate_per_s, for_s=chosen.for_s, seed=chosen.seed)
    console = Console()

    def say(line: str) -> None:
        console.print(line, style="dim", markup=False, highlight=False)

    tools = []
    for tool in TOOLS:
        if chosen.only in ("", tool.name):
            try:
                ensure_installed(tool, options.home)
                tools.append(tool)
            except NotInstalled as why:
                say(f"{tool.name}: skipped, it cannot be installed here: {why}")
    if not tools:
        return 0
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            checks = acceptance_checks(runner.run(run_arms(options, tools, say=say)))
        except RuntimeError as error:
            console.print(f"error: {error}", style="red", markup=False)
            return 1
    console.print(checks_table(checks, title=f"{options.workload}, {options.rate_per_s:g}/s, {options.for_s:g} s"))
    write_checks(options.home / "acceptance.json", checks, facts=machine_facts())
    return 0 if all_hold(checks) else 1


if __name__ == "__main__":
    sys.exit(main())
