"""`tradewind doctor`: look at this machine and a grid file before anything is started."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.options import DEFAULT_FILE, EXIT_FAILED, JsonOption, explained, print_json

if TYPE_CHECKING:
    from tradewind.lab.doctor import Diagnosis

STYLES = {"good": "green", "warning": "yellow", "bad": "red"}


def doctor(
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="The grid file; default: grid.yaml where there is one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check this machine and a grid file: Envoy, first-token gate, folders, ports. Exit code 1 if something is bad."""
    with explained(as_json=as_json):
        from tradewind.lab.doctor import examine, healthy

        found = examine(file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None))
        if as_json:
            print_json({"healthy": healthy(found), "checks": found})
        else:
            _show(found)
        if not healthy(found):
            raise typer.Exit(EXIT_FAILED)


def _show(found: "list[Diagnosis]") -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for item in found:
        console.print(
            Text(f"{item.state:8}", style=STYLES[item.state]) + Text(f"{item.what}: {item.found}"), soft_wrap=True
        )
        if item.advice and item.state != "good":
            console.print(Text(f"         {item.advice}", style="dim"), soft_wrap=True)
