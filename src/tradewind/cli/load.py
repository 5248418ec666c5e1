"""The load command: an open loop against any OpenAI-compatible address."""

import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.options import (
    EXIT_FAILED,
    EXIT_USAGE,
    MAX_FACTOR,
    MAX_MS,
    MAX_RATE_PER_S,
    MAX_SPAN_S,
    MAX_WAIT_S,
    JsonOption,
    explained,
    fail,
    print_json,
    say,
    show,
)
from tradewind.cli.workload import ArrivalsOption, BlockOption

if TYPE_CHECKING:
    from tradewind.lab.load import LoadOptions, LoadReport, Progress
    from tradewind.measure.summary import Percentiles
    from tradewind.workload.mooncake import Trace

CLASS_FOR_S = 60.0
MAX_DETAIL = 160  # characters of a failure
_LINE_EVERY_S = 10.0
_Trace = Annotated[Path | None, typer.Option("--trace", help="Replay this file; `tradewind workload stats` reads it.")]
_Class = Annotated[str, typer.Option("--class", help="Or make this one of `tradewind workload list`.")]
_Rate = Annotated[float, typer.Option("--rate", min=0.001, max=MAX_RATE_PER_S, help="Requests per second of --class.")]
_For = Annotated[
    float | None, typer.Option("--for", min=0.1, max=MAX_SPAN_S, help="Seconds; --class: 60, --trace: all of it.")
]
_Scale = Annotated[
    float, typer.Option("--time-scale", min=0.001, max=MAX_FACTOR, help="Multiplies the gaps of --trace.")
]
_Salt = Annotated[
    str, typer.Option("--salt", help="Equal salts send equal prompts; default: one that none had before.")
]
_Slo = Annotated[
    float, typer.Option("--slo-ttft-ms", min=0, max=MAX_MS, help="Goodput counts requests whose TTFT is within.")
]
_Failed = Annotated[float, typer.Option("--max-failed", min=0, max=1, help="Exit 1 above this share of failures.")]
_Header = Annotated[list[str], typer.Option("--header", help="'name: value' for every request; may be repeated.")]
_Bytes = Annotated[
    float, typer.Option("--bytes-per-token", min=0.5, max=100, help="Of the model's tokenizer on English.")
]
_Timeout = Annotated[
    float, typer.Option("--timeout", min=0.1, max=MAX_WAIT_S, help="Seconds for one request as a whole.")
]


def load(
    url: Annotated[str, typer.Argument(help="http://HOST:PORT of a gateway or of one engine.")],
    trace: _Trace = None,
    workload: _Class = "",
    rate_per_s: _Rate = 4.0,
    for_s: _For = None,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same lengths and arrivals.")] = 1,
    arrivals: ArrivalsOption = "poisson",
    time_scale: _Scale = 1.0,
    block_tokens: BlockOption = 512,
    model: Annotated[str, typer.Option("--model", help="May be left out where the address lists one.")] = "",
    salt: _Salt = "",
    slo_ttft_ms: _Slo = 1_500.0,
    max_failed: _Failed = 0.01,
    timeout_s: _Timeout = 120.0,
    header: _Header = [],  # noqa: B006  typer copies it
    bytes_per_token: _Bytes = 4.0,
    out: Annotated[Path | None, typer.Option("--out", help="Write one JSON object per request here.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Send a trace or a class in an open loop and tell latencies, failures by kind, and goodput.

    TTFT counts from the time the plan says, so that a client that cannot keep up hides no wait, and beside it from the
    actual sending; to the first content, not to a role or an empty chunk. Latencies are over successes.
    """
    from tradewind.lab.load import LoadError, LoadOptions, target_of

    with explained(as_json=as_json):
        if (trace is None) == (not workload):
            fail("write either --trace FILE or --class NAME", code=EXIT_USAGE)
        try:
            target = target_of(url, model=model, timeout_s=timeout_s, headers=header)
            if trace is not None:
                requests = _from_file(trace, block_tokens=block_tokens, time_scale=time_scale, for_s=for_s, seed=seed)
            else:
                for_s = for_s or CLASS_FOR_S
                requests = _made(workload, seed=seed, rate_per_s=rate_per_s, for_s=for_s, arrivals=arrivals)
            options = LoadOptions(
                target=target,
                trace=requests,
                title=workload or str(trace),
                salt=salt or secrets.token_hex(4),
                for_s=for_s,
                slo_ttft_s=slo_ttft_ms / 1e3,
                max_failed_ratio=max_failed,
                bytes_per_token=bytes_per_token,
                out=out,
            )
        except ValueError as error:  # of a reader or a parser, each of which says what to write
            fail(str(error), code=EXIT_USAGE)
        try:
            report = _run(options)
        except LoadError as error:
            fail(str(error), code=EXIT_USAGE)
    if as_json:
        print_json(report)
    else:
        _print_report(report, out)
    raise typer.Exit(0 if report.holds else EXIT_FAILED)


def _from_file(path: Path, *, block_tokens: int, time_scale: float, for_s: float | None, seed: int) -> "Trace":
    """Raises OSError, TraceError, ValueError."""
    from tradewind.workload.files import read_trace
    from tradewind.workload.streams import stream
    from tradewind.workload.ties import spread, step_s
    from tradewind.workload.timing import first_part, slower

    whole = read_trace(path, block_tokens=block_tokens)
    step = step_s(whole)
    if step is not None:
        say(f"{path}: times come in steps of {step:g} s; the requests of each are spread over it by the seed")
        whole = spread(whole, stream(seed, "ties"))
    whole = slower(whole, time_scale)
    return whole if for_s is None else first_part(whole, for_s)


def _made(name: str, *, seed: int, rate_per_s: float, for_s: float, arrivals: str) -> "Trace":
    """Raises ValueError with what there is."""
    from tradewind.workload.arrivals import parse_arrivals
    from tradewind.workload.named import make_trace

    process = parse_arrivals(arrivals)
    trace = make_trace(name, seed=seed, rate_per_s=rate_per_s, for_s=for_s, arrivals=process)
    if not trace.requests:
        raise ValueError(f"no request within {for_s:g} s at {rate_per_s:g}/s; write more of either")
    return trace


def _run(options: "LoadOptions") -> "LoadReport":
    """Raises LoadError, AskFailed, OSError."""
    import asyncio
    from dataclasses import replace

    import uvloop

    from tradewind.lab.load import LoadReport, only_model, run_load

    async def main() -> LoadReport:
        chosen, target = options, options.target
        if not target.model:
            chosen = replace(options, target=replace(target, model=await only_model(target)))
        with _showing() as show:
            return await run_load(chosen, on_tick=show)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


@contextmanager
def _showing() -> "Iterator[Callable[[Progress], None]]":
    """A bar on a terminal, a line now and then elsewhere; both on stderr."""
    if not sys.stderr.isatty():
        next_s = time.monotonic() + _LINE_EVERY_S

        def line(progress: "Progress") -> None:
            nonlocal next_s
            if time.monotonic() >= next_s or progress.ended == progress.planned:
                next_s = time.monotonic() + _LINE_EVERY_S
                say(f"{progress.ended} of {progress.planned} ended, {progress.text()}")

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("")
        yield lambda progress: bar.update(
            task, total=progress.planned, completed=progress.ended, description=progress.text()
        )


def _print_report(report: "LoadReport", out: Path | None) -> None:
    from rich.table import Table

    summary = report.summary
    title = f"{report.workload} on {report.model} at {report.address}: {summary.succeeded} of {summary.requests} served"
    table = Table("over successes, ms", *("n", "p50", "p95", "p99"), title=title, title_justify="left")
    for name, found in (
        ("TTFT from the intended sending", summary.ttft_s),
        ("TTFT from the actual sending", summary.ttft_sent_s),
        ("E2E", summary.e2e_s),
        ("ITL, mean of a request", summary.itl_s),
    ):
        table.add_row(name, *_milliseconds(found))
    table.add_row("how late the client sent (all)", *_milliseconds(summary.send_lag_s))
    show(table, *report_lines(report))
    if out is not None:
        say(f"records: {out}")


def _milliseconds(found: "Percentiles") -> tuple[str, str, str, str]:
    p50, p95, p99 = ("-" if value is None else f"{1e3 * value:,.1f}" for value in (found.p50, found.p95, found.p99))
    return str(found.count), p50, p95, p99


def report_lines(report: "LoadReport") -> list[str]:
    """What stands beside the latencies."""
    summary = report.summary
    failures = ", ".join(f"{count} {name}" for name, count in summary.failures.items()) or "none"
    cached = "unknown" if summary.cached_ratio is None else f"{summary.cached_ratio:.1%} of the prompt tokens"
    goodput = f"goodput {summary.goodput_per_s:.2f}/s: {summary.good} within {1e3 * summary.slo_ttft_s:,.0f} ms TTFT"
    lines = [
        f"{goodput} in {summary.for_s:,.1f} s; {summary.output_tokens_per_s:,.0f} output tokens/s; cached: {cached}",
        f"failures: {failures}; the salt was {report.salt}",
        *(f"  {line[:MAX_DETAIL]}" for line in report.failed),
    ]
    if report.stopped:
        missing = report.planned - summary.requests
        lines.append(f"stopped: {missing} of {report.planned} were not sent, or had not ended, and are in no figure")
    elif not report.holds:
        lines.append(f"more failed than the {report.max_failed_ratio:.1%} that --max-failed allows")
    return lines
