"""File to typed GridConfig; what does not parse or has the wrong shape is refused with what to write."""

import difflib
import re
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec
import yaml

from tradewind.config.errors import ConfigError, Problem
from tradewind.config.schema import GridConfig

MAX_FILE_BYTES = 16 * 2**20  # ten thousand cells are about 2 MB; beyond it the file is not a grid file

EXAMPLES = {
    "id": "id: east-0",
    "site": "site: east",
    "url": "url: http://127.0.0.1:8000",
    "cell": "cell: east-0",
    "listen": "listen: 127.0.0.1:7400",
    "admin": "admin: 127.0.0.1:7401",
    "cells": "cells: [{id: east-0, site: east, url: http://127.0.0.1:8000}]",
    "sites": "sites: [east, west]",
    "endpoint": "endpoint: tcp://127.0.0.1:5557",
    "kv_events": "kv_events: {endpoint: tcp://127.0.0.1:5557}",
    "a": "a: east",
    "b": "b: west",
}

TYPES = {
    "str": "text, in quotes if YAML takes it for something else: 'no', '1e3', '2024-01-01'",
    "float": "a number, e.g. 1.5; YAML reads 1e3 as text, and 1.0e+3 as a number",
    "int": "a whole number",
    "bool": "true or false",
    "array": "a list, e.g. [a, b]",
    "object": "keys with values, e.g. {id: a}",
}

_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_KEY_AT = re.compile(r"^Expected `str`(?:, got `(?P<got>[^`]*)`)? - at `key` in `(?P<path>[^`]*)`$")
_EXPECTED = re.compile(r"^Expected `(?P<type>\w+)")
_UNKNOWN_FIELD = re.compile(r"unknown field `(?P<name>[^`]*)`")
_MISSING_FIELD = re.compile(r"missing required field `(?P<name>[^`]*)`")


class _UniqueKeyLoader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """YAML keeps the last of two equal keys and says nothing; here the second one is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        seen: set[object] = set()
        for key_node, _value in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else key_node
            if key in seen:
                what = f"key {key!r} is written twice"
                raise yaml.constructor.ConstructorError(None, None, what, key_node.start_mark)
            seen.add(key)
        mapping: dict[object, object] = super().construct_mapping(node, deep=deep)
        return mapping


def load(path: Path | str) -> GridConfig:
    """Read a grid file (.yaml, or .json as written by `resolve`). Raises ConfigError."""
    source = Path(path)
    return parse(_read(source), source=str(path), as_json=source.suffix == ".json")


def parse(text: str, *, source: str = "grid.yaml", as_json: bool = False) -> GridConfig:
    """Parse the text of a grid file. Raises ConfigError naming `source`."""
    raw = _parse_json(text, source) if as_json else _parse_yaml(text, source)
    if raw is None:
        raise ConfigError(source, [Problem(where="$", what="the file is empty", write=EXAMPLES["cells"])])
    try:
        return msgspec.convert(raw, GridConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(source, [_explain(str(error))]) from error


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:  # not by its size, of which a pipe and a device have none
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError(str(path), [Problem(where="$", what=f"larger than {MAX_FILE_BYTES >> 20} MiB")])
        return data.decode("utf-8")
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise ConfigError(str(path), [Problem(where="file", what=what, write="the path of a grid file")]) from error
    except UnicodeDecodeError as error:
        what = f"is not UTF-8 text (byte {error.start})"
        raise ConfigError(str(path), [Problem(where="file", what=what)]) from error


def _parse_yaml(text: str, source: str) -> object:
    try:
        return yaml.load(text, _UniqueKeyLoader)  # a subclass of the safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "$"
        raise ConfigError(source, [Problem(where=where, what=f"not YAML: {_marked(error)}")]) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(source, [Problem(where="$", what=f"not YAML: {error}")]) from error


def _marked(error: yaml.MarkedYAMLError) -> str:
    """What is wrong, and where that began which is not whole."""
    if not error.context:
        return str(error.problem)
    mark = error.context_mark
    begun = f" that begins at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"{error.context}{begun}, {error.problem}"


def _parse_json(text: str, source: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(source, [Problem(where="$", what=f"not JSON: {error}")]) from error


def _explain(message: str) -> Problem:
    """Turn msgspec's message into where, what and what to write."""
    key = _KEY_AT.match(message)
    if key:
        return Problem(
            where=key["path"], what=f"a key is no text but {key['got'] or 'something else'}", write=TYPES["str"]
        )
    match = _AT.match(message)
    assert match is not None
    what, path = match["what"], match["path"] or "$"
    unknown = _UNKNOWN_FIELD.search(what)
    if unknown:
        return _unknown_key(path, unknown["name"])
    missing = _MISSING_FIELD.search(what)
    if missing:
        name = missing["name"]
        return Problem(where=path, what=f"the key '{name}' is missing", write=EXAMPLES.get(name, f"{name}: ..."))
    field = re.sub(r"\[[^\]]*\]", "", path).rsplit(".", 1)[-1]
    allowed = ", ".join(str(value) for value in _literals_at(path))
    expected = _EXPECTED.match(what)
    by_type = TYPES.get(expected["type"], "") if expected else ""
    write = f"one of {allowed}" if allowed else EXAMPLES.get(field, by_type) if field != "$" else EXAMPLES["cells"]
    return Problem(where=path, what=what[:1].lower() + what[1:], write=write)


def _unknown_key(path: str, name: str) -> Problem:
    known = _keys_at(path)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"'{close[0]}'" if close else "one of " + ", ".join(known) if known else ""
    return Problem(where=path, what=f"unknown key '{name}'", write=hint)


def _keys_at(path: str) -> list[str]:
    section = _struct_in(_annotation_at(path))
    return list(section.__struct_fields__) if section else []


def _literals_at(path: str) -> tuple[object, ...]:
    annotation = _annotation_at(path)
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _annotation_at(path: str) -> object:
    """The declared type at a path such as "$.cells[0].url"; None where the schema has no such place."""
    annotation: object = GridConfig
    for name in re.findall(r"\.(\w+)", path):
        section = _struct_in(annotation)
        annotation = get_type_hints(section).get(name) if section else None
    return annotation


def _struct_in(annotation: object) -> type[msgspec.Struct] | None:
    """The section inside an annotation such as list[CellConfig] or EmulationConfig | None."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    return next(filter(None, map(_struct_in, get_args(annotation))), None)
