"""`tradewind explain`: why a request went where it went, and what became of it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.options import DEFAULT_FILE, EXIT_FAILED, FileOption, JsonOption, explained, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from tradewind.config.schema import GatewayConfig

Json = dict[str, Any]
IdArgument = Annotated[
    str, typer.Argument(help="The request's x-request-id, as its answer and the request log have it.")
]


def explain(request_id: IdArgument, file: FileOption = DEFAULT_FILE, as_json: JsonOption = False) -> None:
    """Why a request went where it went, and what became of it; every gateway of the file is asked."""
    with explained(as_json=as_json):
        from tradewind.lab.locate import running

        answers = ask_all(running(file).gateways, request_id)
        known = [answer for answer in answers if answer.get("how", "unknown") != "unknown"]
        if as_json:
            print_json({"request_id": request_id, "known": bool(known), "gateways": answers})
        else:
            for answer in known or answers:
                show(answer)
        if not known:
            raise typer.Exit(EXIT_FAILED)


def ask_all(gateways: "list[GatewayConfig]", request_id: str) -> list[Json]:
    """What each gateway says, in the file's order; one that does not answer has a "problem" instead."""
    from concurrent.futures import ThreadPoolExecutor

    if not gateways:
        return []
    with ThreadPoolExecutor(min(16, len(gateways))) as pool:
        return list(pool.map(lambda gateway: _ask(gateway, request_id), gateways))


def _ask(gateway: "GatewayConfig", request_id: str) -> Json:
    from urllib.parse import quote

    from tradewind.runtime.ask import AskFailed, ask

    try:
        answer = ask(gateway.admin, f"/v1/explain?id={quote(request_id, safe='')}")
    except AskFailed as error:
        return {"gateway_id": gateway.id, "problem": str(error)}
    return answer if isinstance(answer, dict) else {"gateway_id": gateway.id, "problem": "no explanation in its answer"}


def show(answer: Json) -> None:
    """One gateway's answer for people."""
    from rich.console import Console

    console = Console(soft_wrap=True)
    for line in lines(answer):
        console.print(line, markup=False, highlight=False)
    decision = answer.get("decision")
    if decision and decision["candidates"]:
        console.print(candidates_table(decision))


def lines(answer: Json) -> Iterator[str]:
    """Everything but the table of candidates."""
    gateway = answer["gateway_id"]
    if "problem" in answer:
        yield f"gateway {gateway}: {answer['problem']}"
        return
    if answer["how"] == "unknown":
        yield f"gateway {gateway}: {answer['reason']}"
        return
    yield f"{answer['request_id']} at gateway {gateway}, {answer['asked_ago_s']:.1f} s ago: {_headline(answer)}"
    yield f"  why: {answer['reason']}"
    decision, outcome = answer["decision"], answer["outcome"]
    if decision:
        yield from _expected(decision)
    if outcome:
        yield from _became(decision, outcome)
    excluded = decision["excluded"] if decision else answer["excluded"]
    if excluded:
        yield "  not asked: " + ", ".join(f"{cell} ({why})" for cell, why in excluded)


def _headline(answer: Json) -> str:
    decision = answer["decision"]
    said = {
        "weights": "went by the weights",
        "refused": "refused by the picker",
        "earlier": "picked, but the reasons are gone",
    }.get(answer["how"]) or f"{decision['cell_id']} picked by {decision['policy']}"
    phase = {"waiting": ", in flight, no first token yet", "decoding": ", in flight, being answered"}
    return said + phase.get(answer["phase"], "")


def _expected(decision: Json) -> Iterator[str]:
    chance = decision["probability"]
    drawn = f", drawn with chance {chance:.2f}" if chance < 1 else ""
    parts = [
        f"first token after {_ms(decision['expected_ttft_s'])}",
        f"about {decision['prompt_tokens']} prompt tokens of which {decision['matched_tokens']} cached{drawn}",
        f"next in line {', '.join(decision['alternatives']) or 'nobody'}",
    ]
    yield "  expected: " + ", ".join(parts)


def _became(decision: Json | None, outcome: Json) -> Iterator[str]:
    cell = outcome["cell_id"] or "no cell"
    moved = decision is not None and outcome["cell_id"] not in (None, decision["cell_id"])
    parts = [
        f"{outcome['status'] or 'no answer'} from {cell}{' instead' if moved else ''}",
        f"first token after {_ms(outcome['ttft_s'])}",
        f"over after {outcome['duration_s']:.2f} s",
        f"{_count(outcome['prompt_tokens'])} prompt tokens of which {_count(outcome['cached_tokens'])} cached",
        f"{_count(outcome['completion_tokens'])} written",
    ]
    parts += ["the client left"] if outcome["client_cancelled"] else []
    parts += [f"Envoy says {outcome['flags']}"] if outcome["flags"] else []
    yield "  seen:     " + ", ".join(parts)
    if outcome["failed"]:
        yield "  failed:   " + ", ".join(f"{cell} ({why})" for cell, why in outcome["failed"])


def candidates_table(decision: Json) -> "Table":
    """The cheapest cells side by side, with what their costs are made of; terms that are 0 for all are left out."""
    from rich.table import Table

    cells, in_seconds = decision["candidates"], decision["in_seconds"]
    table = Table(title=f"the cheapest by {decision['policy']}" + (", ms" if in_seconds else ""), title_justify="left")
    table.add_column("")
    for cell in cells:
        chosen = cell["cell_id"] == decision["cell_id"]
        table.add_column(f"> {cell['cell_id']}" if chosen else cell["cell_id"], justify="right")
    table.add_row("cost", *(f"{cell['cost'] * 1e3:.1f}" if in_seconds else f"{cell['cost']:g}" for cell in cells))
    for name in _terms(cells) if in_seconds else ():
        table.add_row(f"  {name}", *(f"{cell['terms'].get(name, 0.0) * 1e3:.1f}" for cell in cells))
    table.add_row("cached tokens", *(str(cell["matched_tokens"]) for cell in cells))
    table.add_row("slowness", *(f"{cell['slowness_ratio']:.2f}" for cell in cells))
    table.add_row("chance", *(f"{cell['probability']:.2f}" for cell in cells))
    return table


def _terms(cells: list[Json]) -> list[str]:
    return [name for name in cells[0]["terms"] if any(cell["terms"].get(name) for cell in cells)]


def _ms(value_s: float | None) -> str:
    return "?" if value_s is None else f"{value_s * 1e3:.0f} ms"


def _count(value: int | None) -> str:
    return "?" if value is None else str(value)
