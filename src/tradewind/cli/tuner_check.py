"""`tradewind tuner check`: two settings by turns on live traffic, and an answer with intervals."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.asking import asked, token
from tradewind.cli.options import (
    DEFAULT_FILE,
    EXIT_FAILED,
    EXIT_USAGE,
    MAX_FACTOR,
    ControlOption,
    FileOption,
    JsonOption,
    explained,
    fail,
    print_json,
    say,
    show,
)

if TYPE_CHECKING:
    from tradewind.cli.tuner_orders import Json

PATH = "/v1/tuner/check"
NO_CHECK = 404  # of a control that has a tuner
LOOK_EACH_S, SAY_EACH_S = 1.0, 15.0


def check(
    rtt: Annotated[
        float | None, typer.Option("--rtt", min=0, max=MAX_FACTOR, help="Factor on the round trip; default: as now.")
    ] = None,
    queue: Annotated[
        float | None, typer.Option("--queue", min=0, max=MAX_FACTOR, help="Factor on the wait; default: as now.")
    ] = None,
    requests: Annotated[
        int | None, typer.Option("--requests", min=8_000, max=200_000, help="Of the check; default: 8,000.")
    ] = None,
    change: Annotated[
        float | None,
        typer.Option("--change", min=0.5, max=50.0, help="Instead: as many as tell this change of p95 TTFT, in %."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Draws which setting begins each pair of blocks.")] = 0,
    stop: Annotated[bool, typer.Option("--stop", help="Give a check up that runs.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until there is an answer.")] = True,
    file: FileOption = DEFAULT_FILE,
    control: ControlOption = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare the weights in force with others on live traffic: all requests by one setting, then all by the other, in
    blocks. Says first what it costs and what it can tell, and at the end who won, by how much, or that it cannot be
    told. Nothing is changed: `tradewind tuner set` is yours to give. Without weights: the newest check. It runs at the
    first control that has a tuner, which is the one that gateways follow."""
    with explained(as_json=as_json):
        address, tuner = _first(file, control)
        if stop:
            _show(_ask(address, "DELETE"), as_json=as_json)  # of one that had ended already, its answer
            return
        if rtt is None and queue is None:
            _told(_ask(address), as_json=as_json)
            return
        other = _other(tuner, rtt, queue)
        count = _count(tuner, requests, change, as_json=as_json)
        _agree(tuner, other, count, yes=yes, as_json=as_json)
        begun = _ask(address, "POST", {"other": other, "requests": count, "seed": seed})
        _told(_followed(address) if wait else begun, as_json=as_json)


def _first(file: Path, control: str) -> "tuple[str, Json]":
    from tradewind.cli.tuner_orders import tuners

    seen = tuners(asked(file, control), _send)
    found = next(((item.control.address, item.tuner) for item in seen if item.tuner is not None), None)
    return found or fail("; ".join(item.problem for item in seen))


def _other(tuner: "Json", rtt: float | None, queue: float | None) -> dict[str, float]:
    now = tuner.get("weights")
    present = now if isinstance(now, dict) else {}
    asked_for = {"rtt": rtt, "queue": queue}
    missing = [name for name, value in asked_for.items() if value is None and name not in present]
    if missing:
        fail(f"control says no weights in force; write --{missing[0]} too", code=EXIT_USAGE)
    return {name: float(present[name]) if value is None else value for name, value in asked_for.items()}


def _count(tuner: "Json", requests: int | None, change: float | None, *, as_json: bool) -> int:
    from tradewind.cli.tuner_check_text import requests_for
    from tradewind.core.tuner.power import LEAST

    if requests is not None and change is not None:
        fail("write --requests or --change, not both", code=EXIT_USAGE)
    if change is None:
        return LEAST if requests is None else requests
    try:
        return requests_for(change / 100.0, tuner)
    except ValueError as error:
        fail(str(error))


def _agree(tuner: "Json", other: "Json", requests: int, *, yes: bool, as_json: bool) -> None:
    from tradewind.cli.tuner_check_text import plan_lines

    for line in plan_lines(tuner, other, requests):
        say(line)
    if yes:
        return
    if as_json:
        fail("--json asks nothing: write --yes too", code=EXIT_USAGE)
    if not typer.confirm("Begin?", err=True):
        say("nothing was changed")
        raise typer.Exit(EXIT_FAILED)


def _followed(address: str) -> "Json":
    """The check once it has ended; an interruption leaves it running."""
    from tradewind.cli.tuner_check_text import progress_line

    said_s = time.monotonic()
    try:
        while (check := _ask(address)).get("running"):
            if time.monotonic() - said_s >= SAY_EACH_S:
                said_s = time.monotonic()
                say(progress_line(check))
            time.sleep(LOOK_EACH_S)
    except KeyboardInterrupt:
        say("the check goes on; `tradewind tuner check` shows it, `tradewind tuner check --stop` ends it")
        raise typer.Exit(EXIT_FAILED) from None
    return check


def _told(check: "Json", *, as_json: bool) -> None:
    """Shows it; exit code 1 for one without an answer to come."""
    _show(check, as_json=as_json)
    if not check.get("answer") and not check.get("running"):
        raise typer.Exit(EXIT_FAILED)


def _show(check: "Json", *, as_json: bool) -> None:
    if as_json:
        print_json(check)
    else:
        from tradewind.cli.tuner_check_text import answer_table, verdict

        if check.get("answer"):
            show(answer_table(check))
        print(verdict(check))


def _ask(address: str, method: str = "GET", body: object = None) -> "Json":
    from tradewind.runtime.ask import AskFailed

    try:
        reply = _send(address, PATH, method, body)
    except AskFailed as error:
        if error.status == NO_CHECK:
            fail("no check has begun since control's start; write other weights, e.g. --queue 0.5")
        raise
    if not isinstance(reply, dict):
        fail(f"http://{address}{PATH} answers something else than a check")
    return reply


def _send(address: str, path: str, method: str = "GET", body: object = None) -> object:
    from tradewind.runtime.ask import ask

    return ask(address, path, method=method, body=body, token=token())
