"""`tradewind replay`: a captured live decision log through the same code again."""

from pathlib import Path
from typing import Annotated

import typer

from tradewind.cli.options import EXIT_FAILED, EXIT_USAGE, JsonOption, explained, fail, print_json

_File = Annotated[Path, typer.Argument(help="What a gateway wrote to `pick.capture`; .gz is read too.")]


def replay(file: _File, as_json: JsonOption = False) -> None:
    """Drive a fresh picker with everything a live one heard, and compare each decision. Exit code 1 if any differs."""
    from dataclasses import asdict

    from tradewind.gateway.pick.capture import CaptureError
    from tradewind.lab.replay import replay_file

    with explained(as_json=as_json):
        try:
            found = replay_file(file)
        except CaptureError as error:
            fail(f"{file}: {error}", code=EXIT_USAGE)
    if as_json:
        print_json({**asdict(found), "equal": found.equal})
    else:
        heard = ", ".join(f"{count} {kind}" for kind, count in found.heard.items())
        print(f"{file}: policy {found.policy}, {found.for_s:.0f} s, {found.notes} notes: {heard}")
        print(f"{found.decisions} decisions ({found.drawn} drawn among near ties), {found.refusals} refusals: ", end="")
        print("all equal" if found.equal else f"{found.different} differ" if found.different else "nothing to compare")
        for line in found.differences:
            print(f"  {line}")
    if not found.equal:
        raise typer.Exit(EXIT_FAILED)
