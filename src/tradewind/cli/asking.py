"""Commands that ask or order a running grid: status, top, drain, undrain."""

import asyncio
import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.options import (
    DEFAULT_FILE,
    EXIT_FAILED,
    EXIT_USAGE,
    MAX_WAIT_S,
    ControlOption,
    FileOption,
    JsonOption,
    explained,
    fail,
    pick_id,
    print_json,
    show,
)

if TYPE_CHECKING:
    from tradewind.cli.orders import Asked, Order

CellArgument = Annotated[str, typer.Argument(help="The cell's id, as `tradewind status` shows it.")]


def status(file: FileOption = DEFAULT_FILE, control: ControlOption = "", as_json: JsonOption = False) -> None:
    """Show the grid: cells by site with state and reason, and the processes of this machine."""
    with explained(as_json=as_json):
        from tradewind.lab.report_status import grid_status, status_tables

        with _perhaps_down("" if control else str(file)):
            seen = grid_status(None if control else file, control=control_address(file, control))
        if as_json:
            print_json(seen)
        else:
            show(*status_tables(seen))
        if seen["problem"]:
            raise typer.Exit(EXIT_FAILED)


def top(
    file: FileOption = DEFAULT_FILE,
    gateway_id: Annotated[str, typer.Option("--gateway", help="Whose view; default: the file's first.")] = "",
    every_s: Annotated[
        float, typer.Option("--every", min=0.2, max=MAX_WAIT_S, help="Seconds between two looks.")
    ] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Watch weights, pressure and signals of every cell, live; --json prints one look and exits."""
    with explained(as_json=as_json), contextlib.suppress(KeyboardInterrupt):
        from tradewind.lab.locate import running
        from tradewind.lab.tables import watch_top
        from tradewind.lab.watch import gateway_cells

        grid = running(file)
        ids = [gateway.id for gateway in grid.gateways]
        chosen = pick_id(ids, gateway_id or (ids[0] if ids else ""), noun="gateway", option="--gateway")
        gateway = next(item for item in grid.gateways if item.id == chosen)
        with _perhaps_down(str(file)):
            if as_json:
                print_json(asyncio.run(gateway_cells(gateway)))
            else:
                asyncio.run(watch_top(gateway, every_s=every_s))


@contextlib.contextmanager
def _perhaps_down(file: str) -> Iterator[None]:
    """Nobody answers: most often the grid has ended, and the addresses are those of its last run."""
    from tradewind.runtime.ask import AskFailed

    try:
        yield
    except AskFailed as error:
        if error.status or not file:
            raise
        fail(f"{error}; if the grid is down: tradewind up -f {shlex.quote(file)}")


def drain(
    cell: CellArgument,
    file: FileOption = DEFAULT_FILE,
    control: ControlOption = "",
    reason: Annotated[str, typer.Option("--reason", help="Why, for whoever looks later.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Take a cell out of new work, at every control of the file; streams in flight finish, and it stays out until
    `undrain`. Fails unless every control that knows the cell has obeyed."""
    _order(cell, "drain", file, control, body={"reason": reason}, as_json=as_json)


def undrain(
    cell: CellArgument, file: FileOption = DEFAULT_FILE, control: ControlOption = "", as_json: JsonOption = False
) -> None:
    """Give a drained cell its traffic back, at every control of the file."""
    _order(cell, "undrain", file, control, body=None, as_json=as_json)


def _order(cell: str, order: "Order", file: Path, control: str, *, body: object, as_json: bool) -> None:
    with explained(as_json=as_json):
        from tradewind.cli.orders import order_all
        from tradewind.runtime.ask import ask

        secret = token()
        report = order_all(
            asked(file, control),
            cell,
            order,
            lambda address, path: ask(address, path, method="POST", body=body, token=secret),
        )
        if as_json:
            print_json(report.as_json())
        else:
            print("\n".join(report.lines()))
        if not report.complete:
            raise typer.Exit(EXIT_FAILED)


def asked(file: Path, control: str) -> "list[Asked]":
    """The control named by --control, else all of the file."""
    from tradewind.cli.orders import Asked

    if control:
        return [Asked(id="", address=control_address(file, control))]
    from tradewind.lab.locate import running

    controls = running(file).controls
    if not controls:
        fail(f"{file} has no control; write --control http://IP:PORT", code=EXIT_USAGE)
    return [Asked(id=item.id, address=item.admin) for item in controls]


def control_address(file: Path, control: str) -> str:
    """ "ip:port" of a control: from --control, else the file's first."""
    if control:
        address = control.removeprefix("http://").rstrip("/")
        host, _, port = address.rpartition(":")
        if not host or set(host) & set("/?#@") or not (port.isascii() and port.isdigit() and 0 < int(port) <= 65_535):
            fail(f"--control {control}: write http://HOST:PORT, e.g. http://127.0.0.1:7401", code=EXIT_USAGE)
        return address
    from tradewind.lab.locate import running

    grid = running(file)
    if not grid.controls:
        fail(f"{file} has no control; write --control http://IP:PORT", code=EXIT_USAGE)
    return grid.controls[0].admin


def token() -> str:
    """What a control that is not on loopback wants to see; "" without."""
    import os

    from tradewind.control.guard import TOKEN_VARIABLE

    return os.environ.get(TOKEN_VARIABLE, "")
