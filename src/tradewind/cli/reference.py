"""The reference pages, written from the code: commands, grid file, metrics.

`make docs` writes docs/reference; a test fails when a page is out of date.
"""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from tradewind.config import schema

COMMON = """\
Exit codes: 0 done; 1 it failed, or what was asked for does not hold; 2 the command line or a file is wrong, or is not
there; 130 ended by Ctrl-C, which to services and `top` is an end like any other: 0. Errors go to stderr. With `--json`,
stdout holds one JSON document, of an error `{"error": {"message": ...}}` (of `validate`: its problems); only what the
command line itself gets wrong, an unknown option or a number out of range, leaves it empty. `python -m tradewind` is
the same as `tradewind`.
"""
NOTE = "<!-- Written by `make docs` from the code; edit the code, not this page. -->\n"


def commands_page(app: typer.Typer) -> str:
    """docs/reference/cli.md: every command with its help, its example and its options."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    parts = [NOTE, "# Commands\n", COMMON]
    for name, command in _commands(group, "tradewind"):
        parts += [f"## {name}\n", *_command(command)]
    return "\n".join(parts)


def _commands(group: TyperGroup, prefix: str) -> Iterator[tuple[str, TyperCommand]]:
    """Every command that is not hidden with its full name, those of groups too."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from _commands(command, f"{prefix} {name}")
        elif isinstance(command, TyperCommand) and not command.hidden:
            yield f"{prefix} {name}", command


def _command(command: TyperCommand) -> Iterator[str]:
    yield inspect.cleandoc(command.help or "") + "\n"
    if command.epilog:
        yield f"    {command.epilog.removeprefix('Example: ')}\n"
    rows = [option for option in command.params if isinstance(option, TyperOption) and option.name != "help"]
    if rows:
        yield "| option | default | what |\n|---|---|---|"
        yield "\n".join(_option(option) for option in rows) + "\n"


def _option(option: TyperOption) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    default = "required" if option.required else _default(option.default)
    return f"| {names} | {default} | {_cell(option.help or '')} |"


def _default(value: object) -> str:
    plain = isinstance(value, bool | int | float | str | Path) and value != ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`" if plain else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def config_page() -> str:
    """docs/reference/grid-file.md: every section and key, with the comment that stands beside it in the schema."""
    source = inspect.getsource(schema)
    lines = source.splitlines()
    parts = [NOTE, "# The grid file\n", (ast.get_docstring(ast.parse(source)) or "") + "\n"]
    for node in reversed([node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]):
        struct = getattr(schema, node.name)
        if node.name.startswith("_") or not issubclass(struct, msgspec.Struct):
            continue
        parts += [f"## {node.name.removesuffix('Config')}\n", (ast.get_docstring(node) or "") + "\n"]
        parts += ["| key | type | default | what |\n|---|---|---|---|", *_keys(node, struct, lines), ""]
    return "\n".join(parts)


def _keys(node: ast.ClassDef, struct: type[msgspec.Struct], lines: list[str]) -> Iterator[str]:
    comments = {
        item.target.id: lines[item.lineno - 1].partition("  # ")[2]
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    types = {
        item.target.id: ast.unparse(item.annotation)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    for field in msgspec.structs.fields(struct):
        default = "required" if field.required else f"`{_shown(field)}`"
        yield f"| `{field.name}` | {_cell(types[field.name])} | {default} | {_cell(comments[field.name])} |"


def _shown(field: msgspec.structs.FieldInfo) -> object:
    if field.default is not msgspec.NODEFAULT:
        return '""' if field.default == "" else field.default
    factory = field.default_factory
    made = factory() if callable(factory) else None
    return "see its section" if made and not isinstance(made, str | int | float) else made


FAMILY = re.compile(r"^# (HELP|TYPE) (\S+) (.*)$", re.M)


def metrics_page(pages: Iterable[tuple[str, str]]) -> str:
    """docs/reference/metrics.md from (process, exposition page) pairs; only families of our own."""
    parts = [NOTE, "# Metrics\n", "Every process serves Prometheus text at `/metrics` of its admin address.\n"]
    for process, page in pages:
        parts += [f"## {process}\n", "| metric | type | what |\n|---|---|---|", *_families(page), ""]
    return "\n".join(parts)


def _families(page: str) -> Iterator[str]:
    helps: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for keyword, name, text in FAMILY.findall(page):
        (helps if keyword == "HELP" else kinds)[name] = text
    for name in sorted(kinds):
        if name.startswith("tradewind_") and not name.endswith("_created"):
            yield f"| `{name}` | {kinds[name]} | {_cell(helps.get(name, ''))} |"
