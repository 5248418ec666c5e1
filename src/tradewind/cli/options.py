"""Options that several commands share, and how commands talk to people and to machines."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

FileOption = Annotated[Path, typer.Option("-f", "--file", help="The grid file (YAML).", show_default=True)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
IdOption = Annotated[str, typer.Option("--id", help="Which one of the grid file; may be left out where there is one.")]
ControlOption = Annotated[
    str, typer.Option("--control", help="Ask this control, e.g. http://127.0.0.1:7401, and read no file.")
]

DEFAULT_FILE = Path("grid.yaml")
EXIT_FAILED, EXIT_USAGE = 1, 2
# Of options: every number has both ends, or `inf` would be one.
MAX_RATE_PER_S, MAX_SPAN_S, MAX_WAIT_S, MAX_MS = 100_000.0, 2_678_400.0, 86_400.0, 86_400_000.0
MAX_FACTOR = 1_000.0
_WIDE = 180  # columns where there is no terminal: a file and a pipe have room


class CommandFailed(Exception):
    """A command cannot do what it was asked for; `explained` tells it."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    import msgspec

    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    sys.stdout.flush()


def say(line: str) -> None:
    """Progress for people: on stderr, so that stdout stays for results."""
    print(line, file=sys.stderr, flush=True)


def console() -> "Console":
    """stdout for people, as wide as the terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _WIDE)


def show(*parts: "RenderableType") -> None:
    """Tables and lines for people; what does not fit is folded, and nothing is cut away."""
    from rich.table import Table

    screen = console()
    for part in parts:
        for column in part.columns if isinstance(part, Table) else ():
            column.overflow = "fold"
        screen.print(part, markup=False, highlight=False)


def fail(message: str, *, code: int = EXIT_FAILED) -> NoReturn:
    """Give up within `explained`."""
    raise CommandFailed(message, code=code)


@contextlib.contextmanager
def explained(*, as_json: bool = False) -> Iterator[None]:
    """Turn the errors that an operator can act on into one message and an exit code; bugs stay tracebacks.

    The message goes to stderr, and with `as_json` as JSON to stdout too.
    """
    from tradewind.config.errors import ConfigError
    from tradewind.runtime.ask import AskFailed
    from tradewind.runtime.supervise import StartFailed

    try:
        yield
    except CommandFailed as error:
        _tell(str(error), code=error.code, as_json=as_json)
    except ConfigError as error:
        _tell(str(error), code=EXIT_USAGE, as_json=as_json)
    except (AskFailed, StartFailed) as error:
        _tell(str(error), code=EXIT_FAILED, as_json=as_json)
    except BrokenPipeError:  # whoever read the output has gone: there is nobody to tell
        raise typer.Exit(EXIT_FAILED) from None
    except OSError as error:
        wrong_name = isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError)
        _tell(os_text(error), code=EXIT_USAGE if wrong_name else EXIT_FAILED, as_json=as_json)


def os_text(error: OSError) -> str:
    """Which file and what, without the number."""
    return ": ".join(str(part) for part in (error.filename, error.strerror) if part) or str(error)


def _tell(message: str, *, code: int, as_json: bool) -> NoReturn:
    if as_json:
        with contextlib.suppress(OSError):  # stdout may be what has failed
            print_json({"error": {"message": message}})
    say(f"error: {message}")
    raise typer.Exit(code)


def pick_id(ids: list[str], wanted: str, *, noun: str, option: str = "--id") -> str:
    """The wanted id, or the only one there is."""
    if wanted in ids:
        return wanted
    known = ", ".join(ids) or "none"
    if wanted:
        fail(f"there is no {noun} {wanted!r} in the file; write {option} with one of: {known}", code=EXIT_USAGE)
    if len(ids) != 1:
        fail(f"the file has {len(ids)} {noun}s; write {option} with one of: {known}", code=EXIT_USAGE)
    return ids[0]
