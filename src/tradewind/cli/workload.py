"""The commands about workloads: which there are, what a trace is, and a trace of one's own."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.options import EXIT_USAGE, MAX_RATE_PER_S, MAX_SPAN_S, JsonOption, explained, fail, print_json, show

if TYPE_CHECKING:
    from tradewind.workload.stats import TraceStats

app = typer.Typer(help="Workloads: the published classes, public traces, and what is in a trace.", no_args_is_help=True)

ArrivalsOption = Annotated[
    str, typer.Option("--arrivals", help="constant, poisson, gamma:CV, modulated:CV or clients[:CV].")
]
BlockOption = Annotated[
    int, typer.Option("--block-tokens", min=1, help="Tokens that one hash id of a Mooncake trace stands for.")
]


@app.command("list", epilog="Example: tradewind workload list")
def list_workloads(as_json: JsonOption = False) -> None:
    """Every workload that can be made, its shape, and what its prompts share."""
    from rich.table import Table

    from tradewind.workload.named import listing

    rows = list(listing())
    if as_json:
        print_json([{"name": name, "shape": shape, "shared": shared} for name, shape, shared in rows])
        return
    table = Table("workload", "shape", "shared between prompts")
    for row in rows:
        table.add_row(*row)
    show(table)


@app.command(epilog="Example: tradewind workload stats conversation_trace.jsonl.gz")
def stats(
    file: Annotated[Path, typer.Argument(help="A Mooncake trace (.jsonl) or an Azure trace (.csv), or either as .gz.")],
    block_tokens: BlockOption = 512,
    as_json: JsonOption = False,
) -> None:
    """Say what a trace is: length, rate, tokens, bursts, and how much of its prompts an infinite cache would serve."""
    from tradewind.workload.errors import TraceError
    from tradewind.workload.files import read_trace
    from tradewind.workload.stats import trace_stats

    with explained(as_json=as_json):
        try:
            found = trace_stats(read_trace(file, block_tokens=block_tokens))
        except TraceError as error:
            fail(str(error), code=EXIT_USAGE)
    if as_json:
        print_json(found)
    else:
        _print_stats(file.name, found)


@app.command(epilog="Example: tradewind workload make rag_multidoc --rate 10 --for 120 --out rag.jsonl")
def make(
    name: Annotated[str, typer.Argument(help="One of `tradewind workload list`.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write: NAME.jsonl or NAME.jsonl.gz.")],
    rate_per_s: Annotated[
        float, typer.Option("--rate", min=0.001, max=MAX_RATE_PER_S, help="Requests per second.")
    ] = 4.0,
    for_s: Annotated[float, typer.Option("--for", min=0.1, max=MAX_SPAN_S, help="Seconds of arrivals.")] = 120.0,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same trace.")] = 1,
    arrivals: ArrivalsOption = "poisson",
    as_json: JsonOption = False,
) -> None:
    """Write a workload as a Mooncake trace, which `tradewind load`, aiperf and guidellm replay."""
    from tradewind.workload.arrivals import parse_arrivals
    from tradewind.workload.files import FORMS, write_trace
    from tradewind.workload.named import make_trace
    from tradewind.workload.stats import trace_stats

    with explained(as_json=as_json):
        if not out.name.removesuffix(".gz").endswith(".jsonl"):
            fail(f"{out}: write {FORMS.partition(' for')[0]} after --out", code=EXIT_USAGE)
        try:
            process = parse_arrivals(arrivals)
            trace = make_trace(name, seed=seed, rate_per_s=rate_per_s, for_s=for_s, arrivals=process)
        except ValueError as error:
            fail(str(error), code=EXIT_USAGE)
        if not trace.requests:
            fail(f"no request within {for_s:g} s at {rate_per_s:g}/s; write more of either", code=EXIT_USAGE)
        write_trace(out, trace)
    found = trace_stats(trace)
    if as_json:
        print_json(found)
    else:
        _print_stats(out.name, found)


def _print_stats(name: str, found: "TraceStats") -> None:
    from rich.table import Table

    table = Table("", *("mean", "p50", "p95", "p99", "most"), title=name, title_justify="left")
    for what, lengths in (("prompt tokens", found.prompt_tokens), ("output tokens", found.output_tokens)):
        numbers = (lengths.mean, lengths.p50, lengths.p95, lengths.p99, lengths.most)
        table.add_row(what, *(f"{number:,.0f}" for number in numbers))
    show(table, *stats_lines(found))


def stats_lines(found: "TraceStats") -> list[str]:
    """The rest of the figures in words; what the trace does not say is said to be unknown."""
    rate = "all at one moment" if found.rate_per_s is None else f"{found.rate_per_s:.2f} requests/s"
    lines = [f"{found.requests:,} requests in {found.span_s:,.1f} s, {rate}"]
    if found.prompt_tokens_per_s is not None:
        lines[0] += f", {found.prompt_tokens_per_s:,.0f} prompt tokens/s"
    windows = ", ".join(f"{value:.2f} in {window}" for window, value in found.dispersion.items())
    bursts = "unknown" if found.gap_cv is None else f"CV of gaps {found.gap_cv:.2f}"
    lines.append(f"bursts: {bursts}; dispersion of counts {windows or 'unknown: too short'} (Poisson: 1)")
    if found.step_s is not None:
        lines.append(f"times come in steps of {found.step_s:g} s: a replay spreads each step's requests over it")
    if found.reuse is None:
        lines.append("prefix reuse: unknown, the trace names no blocks")
        return lines
    lines.append(f"prefix reuse in an infinite cache: {found.reuse:.1%} of the blocks of {found.block_tokens} tokens")
    if found.reuse_within_session is not None and found.reuse_across_sessions is not None:
        lines[-1] += f"; {found.reuse_within_session:.1%} within sessions, {found.reuse_across_sessions:.1%} across"
    if found.sessions is not None:
        lines.append(f"{found.sessions:,} users or sessions, {found.requests_per_session or 0:.1f} requests each")
    return lines
