"""The tuner's commands: what it does, what it did, and an operator's orders to it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli import tuner_check, tuner_pretrain
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
    show,
)

if TYPE_CHECKING:
    from tradewind.cli.tuner_orders import TunerReport

app = typer.Typer(
    help="The tuner moves two weights of the pick's cost, rtt and queue, in control. Without `tuner:` in the grid file "
    "there is none."
)

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command("status", epilog="Example: tradewind tuner status -f grid.yaml")
def status(file: FileOption = DEFAULT_FILE, control: ControlOption = "", as_json: JsonOption = False) -> None:
    """Show the weights in force, what is compared with them, and whether the tuner is frozen or has failed; and what
    each gateway of the file follows. 1 and 1 are the physical rates; most grids are best served near them."""
    with explained(as_json=as_json):
        from tradewind.cli.tuner_orders import gateways_follow, tuners
        from tradewind.cli.tuner_tables import status_lines

        seen = tuners(asked(file, control), _get)
        followed = [] if control else gateways_follow(file)
        if as_json:
            print_json({"controls": [item.as_json() for item in seen], "gateways": followed})
        else:
            print("\n".join(status_lines(seen, followed)))
        if not any(item.tuner for item in seen):
            raise typer.Exit(EXIT_FAILED)


@app.command("history", epilog="Example: tradewind tuner history --report build/tuner.html")
def history(
    file: FileOption = DEFAULT_FILE,
    control: ControlOption = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=2_000, help="The newest so many lines.")] = 100,
    report: Annotated[Path | None, typer.Option("--report", help="Draw the weights over time to this page.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what the tuner did and why, oldest first: proposals, verdicts with their figures, orders. It outlives
    restarts of control. With several controls, the first one that has a tuner answers."""
    with explained(as_json=as_json):
        from tradewind.cli.tuner_orders import first_history
        from tradewind.cli.tuner_tables import history_table

        found = first_history(asked(file, control), _get, limit=limit)
        if report is not None:
            from tradewind.lab.tuner_page import write_history

            write_history(report, found)
        if as_json:
            print_json(found)
        else:
            show(history_table(found))


@app.command("freeze", epilog="Example: tradewind tuner freeze")
def freeze(file: FileOption = DEFAULT_FILE, control: ControlOption = "", as_json: JsonOption = False) -> None:
    """Keep the weights as they are, at once: a comparison ends, nothing is proposed, and it stays so through restarts
    until `thaw`. The first thing to do when in doubt; it costs nothing."""
    _order(file, control, "freeze", as_json=as_json)


@app.command("thaw", epilog="Example: tradewind tuner thaw")
def thaw(file: FileOption = DEFAULT_FILE, control: ControlOption = "", as_json: JsonOption = False) -> None:
    """Let the tuner go on after a freeze."""
    _order(file, control, "thaw", as_json=as_json)


@app.command("set", epilog="Example: tradewind tuner set 1 0.5 --reason 'pretrain on yesterday'")
def put(
    rtt: Annotated[float, typer.Argument(min=0, max=MAX_FACTOR, help="Factor on the round trip to the cell.")],
    queue: Annotated[
        float, typer.Argument(min=0, max=MAX_FACTOR, help="Factor on the wait for work before the request.")
    ],
    file: FileOption = DEFAULT_FILE,
    control: ControlOption = "",
    reason: Annotated[str, typer.Option("--reason", help="Why, for whoever reads the history.")] = "",
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Put weights in force at every control, at once, for all requests. The tuner goes on from there; freeze it first
    to keep them. Weights outside of the box of the grid file are refused."""
    _agree(f"Put rtt {rtt:g}, queue {queue:g} in force?", file, control, yes=yes, as_json=as_json)
    _order(file, control, "set", body={"rtt": rtt, "queue": queue, "reason": reason}, as_json=as_json)


@app.command("reset", epilog="Example: tradewind tuner reset --yes")
def reset(
    file: FileOption = DEFAULT_FILE, control: ControlOption = "", yes: YesOption = False, as_json: JsonOption = False
) -> None:
    """Go back to the start weights of the grid file and forget what was learned; the history stays. A tuner that was
    disabled by a fault is replaced by a fresh one."""
    _agree("Back to the start weights?", file, control, yes=yes, as_json=as_json)
    _order(file, control, "reset", as_json=as_json)


app.command("check", epilog="Example: tradewind tuner check --queue 0.5 --change 5")(tuner_check.check)
app.command("pretrain", epilog="Example: tradewind tuner pretrain --trace run/gateway-0/requests.ndjson --for 300")(
    tuner_pretrain.pretrain
)


def _agree(question: str, file: Path, control: str, *, yes: bool, as_json: bool) -> None:
    """Ask, beside what is in force now; exit unless the answer is yes."""
    if yes:
        return
    with explained(as_json=as_json):
        if as_json:
            fail("--json asks nothing: write --yes too", code=EXIT_USAGE)
        from tradewind.cli.tuner_orders import tuners
        from tradewind.cli.tuner_tables import status_lines

        print("\n".join(status_lines(tuners(asked(file, control), _get), [])))
    if not typer.confirm(question):
        print("nothing was changed")
        raise typer.Exit(EXIT_FAILED)


def _order(file: Path, control: str, order: str, *, body: object = None, as_json: bool) -> None:
    with explained(as_json=as_json):
        report = ordered(file, control, order, body)
        if as_json:
            print_json(report.as_json())
        else:
            print("\n".join(report.lines()))
        if not report.complete:
            raise typer.Exit(EXIT_FAILED)


def ordered(file: Path, control: str, order: str, body: object = None) -> "TunerReport":
    """An order given to the named control, else to all of the file."""
    from tradewind.cli.tuner_orders import order_tuners
    from tradewind.runtime.ask import ask

    secret = token()
    return order_tuners(
        asked(file, control),
        order,
        lambda address, path: ask(address, path, method="POST", body=body, token=secret),
    )


def _get(address: str, path: str) -> object:
    from tradewind.runtime.ask import ask

    return ask(address, path, token=token())
