"""Options that several commands share, and how commands talk to people and to machines."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

FileOption = Annotated[Path, typer.Option("-f", "--file", help="The grid file (YAML).", show_default=True)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
IdOption = Annotated[str, typer.Option("--id", help="Which one of the grid file; may be left out where there is one.")]
ControlOption = Annotated[
    str, typer.Option("--control", help="Ask this control, e.g. http://127.0.0.1:7401, and read no file.")
]

DEFAULT_FILE = Path("grid.yaml")
EXIT_FAILED, EXIT_USAGE = 1, 2


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    import msgspec

    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    sys.stdout.flush()


def say(line: str) -> None:
    """Progress for people: on stderr, so that stdout stays for results."""
    print(line, file=sys.stderr, flush=True)


def fail(message: str, *, code: int = EXIT_FAILED, as_json: bool = False) -> NoReturn:
    """Say what went wrong on stderr (as JSON on stdout too, for machines) and exit."""
    if as_json:
        print_json({"error": {"message": message}})
    print(f"error: {message}", file=sys.stderr)
    raise typer.Exit(code)


@contextmanager
def explained(*, as_json: bool = False) -> Iterator[None]:
    """Turn the errors that an operator can act on into one message and an exit code; bugs stay tracebacks."""
    from tradewind.config.errors import ConfigError
    from tradewind.runtime.ask import AskFailed
    from tradewind.runtime.supervise import StartFailed

    try:
        yield
    except ConfigError as error:
        fail(str(error), code=EXIT_USAGE, as_json=as_json)
    except (AskFailed, StartFailed, OSError) as error:
        fail(str(error), as_json=as_json)


def pick_id(ids: list[str], wanted: str, *, noun: str, say: Callable[[str], NoReturn]) -> str:
    """The wanted id, or the only one there is."""
    if wanted in ids:
        return wanted
    known = ", ".join(ids) or "none"
    if wanted:
        say(f"there is no {noun} {wanted!r} in the file; write --id with one of: {known}")
    if len(ids) != 1:
        say(f"the file has {len(ids)} {noun}s; write --id with one of: {known}")
    return ids[0]
