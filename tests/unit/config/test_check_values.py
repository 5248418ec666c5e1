"""Every number of the grid file has its range, and no text holds a NUL."""

import typing
from collections.abc import Iterator

import msgspec
import pytest

from tradewind.config.check import check
from tradewind.config.check_values import value_problems
from tradewind.config.errors import ConfigError
from tradewind.config.load import parse
from tradewind.config.schema import GridConfig, TunerWeightsConfig

WHOLE = """
sites: [s, t]
controls: [{id: c}]
gateways: [{id: g, site: s, routing: pick, pick: {capture: picks.ndjson}}]
agents: [{id: a}]
tuner: {start: {}, box: {rtt: [0.5, 2], queue: [0.5, 2]}}
cells:
  - {id: x, site: s, url: "http://127.0.0.1:0"}
  - {id: y, site: t, url: "http://127.0.0.1:8000", kv_events: {endpoint: "tcp://127.0.0.1:5557"}}
emulation: {engines: [{cell: x, kv_events: {}}], dcgm: [{site: s}], wan: [{a: s, b: t}]}
"""
# A seed may be any number. What is off, or unlimited where it is used, is judged by the rule of its own section.
FREE = {"seed", "capture_max_bytes", "timeout_factor", "timeout_min_s", "after_s"}


def numbers(section: object, where: str = "$") -> Iterator[tuple[str, msgspec.Struct, str, type]]:
    """Every number of the schema: its place, its section, its key, its type."""
    if isinstance(section, list):
        for index, item in enumerate(section):
            yield from numbers(item, f"{where}[{index}]")
    if not isinstance(section, msgspec.Struct):
        return
    hints = typing.get_type_hints(type(section))
    for name in section.__struct_fields__:
        if hints[name] in (int, float):
            yield f"{where}.{name}", section, name, hints[name]
        yield from numbers(getattr(section, name), f"{where}.{name}")


def with_value(section: object, target: msgspec.Struct, name: str, value: float) -> object:
    """The grid with one number changed."""
    if section is target:
        return msgspec.structs.replace(target, **{name: value})
    if isinstance(section, list):
        return [with_value(item, target, name, value) for item in section]
    if isinstance(section, msgspec.Struct):
        parts = {key: with_value(getattr(section, key), target, name, value) for key in section.__struct_fields__}
        return msgspec.structs.replace(section, **parts)
    return section


GRID = parse(WHOLE)
NUMBERS = list(numbers(GRID))


def problems(target: msgspec.Struct, name: str, value: float) -> str:
    changed = with_value(GRID, target, name, value)
    assert isinstance(changed, GridConfig)
    try:
        check(changed)
    except ConfigError as error:
        return str(error)
    return ""


def test_the_grid_is_good_and_holds_every_section() -> None:
    check(GRID)
    assert len(NUMBERS) > 35


@pytest.mark.parametrize("number", NUMBERS, ids=[where for where, *_ in NUMBERS])
def test_no_number_is_without_ends(number: tuple[str, msgspec.Struct, str, type]) -> None:
    """NaN was written to the settled file as null, and 5e9 ended the gateway: protobuf counts in 32 bits."""
    where, section, name, kind = number
    bad = [float("nan"), float("inf"), -float("inf")] if kind is float else []
    if name not in FREE and not isinstance(section, TunerWeightsConfig):
        bad += [-1e30, 1e30] if kind is float else [-(10**30), 10**30, 10**400]
    for value in bad:
        assert where.rpartition(".")[0] in problems(section, name, value), f"{where}: {value} passes"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "gateways: [{limits: {request_buffer_bytes: 5000000000}}]",
            "limits.request_buffer_bytes: 5000000000 is out of range; write a number from 65536 to 4294967295",
        ),
        ("gateways: [{slo_ttft_s: 0}]", "0 is out of range; write a number from 0.001 to 86400"),
        ("tuner: {start: {rtt: .nan}}", "$.tuner.start.rtt: nan is out of range; write a number"),
        ('state_dir: "a\\0b"', "$.state_dir: 'a\\x00b' holds a NUL; write text without it"),
        ('cells: [{id: a, site: s, url: "http://127.0.0.1:1", labels: {"k\\0": v}}]', "$.cells[0].labels: 'k"),
    ],
)
def test_it_says_where_and_what_to_write(text: str, expected: str) -> None:
    assert expected in "\n".join(map(str, value_problems(parse(text))))
