"""A grid file that is wrong says where and what to write; one that is right is settled once for every process."""

import random
from pathlib import Path

import pytest

from tradewind.config.check import baseline_ok, check
from tradewind.config.errors import ConfigError
from tradewind.config.load import load, parse
from tradewind.config.resolve import load_checked, resolve, resolved_path, write_resolved
from tradewind.config.schema import GridConfig, KvEventsConfig

GOOD = """
grid: small
sites: [east, west]
controls: [{id: c0, site: east}]
gateways: [{id: g0, site: east, baseline: "least-request:3"}]
cells:
  - {id: east-0, site: east, url: "http://127.0.0.1:0"}
  - {id: west-0, site: west, url: "http://127.0.0.1:0"}
  - {id: real-0, site: west, url: "http://127.0.0.1:8000"}
emulation:
  engines: [{cell: east-0, profile: fast, kv_events: {topic: kv}}, {cell: west-0, profile: h100, aliases: [m]}]
  dcgm: [{site: east}]
  wan: [{a: east, b: west, rtt_ms: 20}]
"""


def said(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        check(parse(text))
    return str(caught.value)


def test_good_file_passes() -> None:
    assert check(parse(GOOD)).grid == "small"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file is empty"),
        ("- 1", "$: expected `object`"),
        ("cells:\n - {id: a\n - b", "line 4, column 1: not YAML"),
        ("grid: a\ngrid: b", "line 2, column 1: not YAML: key 'grid' is written twice"),
        ("? [a]\n: b", "unhashable key"),
        ("cells: [{id: a, site: b}]", "$.cells[0]: the key 'url' is missing; write url: http://127.0.0.1:8000"),
        ("cells: [{id: a, site: b, urll: c, url: d}]", "unknown key 'urll'; write 'url'"),
        ("emulation: {wan: [{a: x, b: y, rtt: 3}]}", "$.emulation.wan[0]: unknown key 'rtt'; write 'rtt_ms'"),
        ("gateways: [{scoring: best}]", "write one of recipe, published, published-v2"),
        ("controls: [{listen: 5}]", "$.controls[0].listen: expected `str`, got `int`; write listen: 127.0.0.1:7400"),
        ("grid: no", "$.grid: expected `str`, got `bool`; write text, in quotes if YAML takes it for something else"),
        ("gateways: [{gamma: 1e3}]", "$.gateways[0].gamma: expected `float`, got `str`; write a number"),
        ("gateways: [{envoy_concurrency: 1.5}]", "expected `int`, got `float`; write a whole number"),
        ("plaintext: maybe", "$.plaintext: expected `bool`, got `str`; write true or false"),
        ("[1, 2]", "$: expected `object`, got `array`; write cells: [{id: east-0"),
        ("1: a", "$: a key is no text"),
        ("gateways: [{reach: {1: a}}]", "$.gateways[0].reach: a key is no text but int"),
        ('grid: "x', "that begins at line 1, column 7, found unexpected end of stream"),
    ],
)
def test_wrong_shape_says_where_and_what_to_write(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, source="my.yaml")
    assert str(caught.value).startswith("my.yaml: ")
    assert expected in str(caught.value)


CELL = 'cells: [{id: a, site: s, url: "http://127.0.0.1:8000"}]\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("controls: [{id: c}, {id: c}]", "$.controls[1].id: 'c' is already the id of $.controls[0]"),
        ("gateways: [{id: 'a/b'}]", "$.gateways[0].id: 'a/b' is not an id"),
        ("sites: [east]\ncontrols: [{site: eats}]", "there is no site 'eats'; write east"),
        (CELL + "gateways: [{reach: {b: '127.0.0.1:1'}}]", "$.gateways[0].reach: there is no cell 'b'; write one of a"),
        (CELL + "agents: [{id: x, cells: [b]}]", "$.agents[0].cells[0]: there is no cell 'b'"),
        (CELL + "agents: [{id: x}, {id: y}]", "cell 'a' is owned by agents x, y"),
        (CELL + "gateways: [{reach: {a: 'b:1'}}]", "$.gateways[0].reach.a: 'b:1' is not ip:port"),
        ('cells: [{id: a, site: s, url: "127.0.0.1:80"}]', "does not begin with http:// or https://"),
        ('cells: [{id: a, site: s, url: "http://127.0.0.1"}]', "has no port; write http://127.0.0.1:8000"),
        ('cells: [{id: a, site: s, url: "http://127.0.0.1:80/v1"}]', "holds more than scheme, host and port"),
        ('cells: [{id: a, site: s, url: "http://gpu:80"}]', "'gpu' is a name, and Envoy's endpoints are addresses"),
        ('cells: [{id: a, site: s, url: "http://127.0.0.1:0"}]', "only an emulated engine may have port 0"),
        ("controls: [{admin: 'here'}]", "$.controls[0].admin: 'here' is not ip:port"),
        ("controls: [{admin: '127.0.0.1:70000'}]", "is not ip:port"),
        ("controls: [{admin: '127.0.0.1:7', listen: '127.0.0.1:7'}]", "is already taken by $.controls[0].listen"),
        ("gateways: [{listen: '0.0.0.0:7', admin: '127.0.0.1:7'}]", "is already taken by $.gateways[0].listen"),
        ("controls: [{admin: '0.0.0.0:7'}]", "not encrypted; write 127.0.0.1, or plaintext: true"),
        ("gateways: [{baseline: rr}]", "'rr' is not a baseline; write round-robin"),
        (
            "gateways: [{limits: {path_timeout_s: 1000000}}]",
            "$.gateways[0].limits.path_timeout_s: 1e+06 is out of range",
        ),
        ("gateways: [{limits: {retries: -1}}]", "$.gateways[0].limits.retries: -1 is out of range"),
        ("gateways: [{gamma: .nan}]", "$.gateways[0].gamma: nan is out of range"),
        (
            "controls: [{heartbeat_ttl_s: 0.5}]",
            "is not longer than an agent's interval_s of 0.5 s; write at least 0.75",
        ),
        ("models: [m, m]", "model 'm' is listed twice"),
        (CELL + "emulation: {engines: [{cell: a, model: m, aliases: [m]}]}", "are aliases of each other"),
        (CELL + "emulation: {engines: [{cell: a}, {cell: a}]}", "already has an emulated engine"),
        (CELL + "emulation: {engines: [{cell: a, profile: h10}]}", "there is no profile 'h10'; write h100"),
        (
            CELL + "emulation: {engines: [{cell: a, kv_capacity_tokens: 16}]}",
            "$.emulation.engines[0].kv_capacity_tokens: 16 is out of range; write a number from 32",
        ),
        (
            CELL + "emulation: {engines: [{cell: a, kv_events: {listen: '0.0.0.0:7'}}]}",
            "$.emulation.engines[0].kv_events.listen: 0.0.0.0:7 is not loopback",
        ),
        (CELL + "emulation: {engines: [{cell: a, kv_events: {encoding: json}}]}", "write one of map, array"),
        (CELL + "sites: [s, t]\nemulation: {wan: [{a: s, b: t}, {a: t, b: s}]}", "the path s - t is given twice"),
        (CELL + "emulation: {scenario: faults.yaml}", "there is no file"),
    ],
)
def test_wrong_sense_says_where_and_what_to_write(text: str, expected: str) -> None:
    assert expected in said(text)


def test_all_problems_are_told_at_once() -> None:
    text = "controls: [{id: c, admin: x}, {id: c, admin: y}]\ngateways: [{baseline: rr}]\nmodels: [m, m]"
    assert len(said(text).splitlines()) == 5


def test_client_address_may_leave_loopback_and_plaintext_allows_the_rest() -> None:
    check(parse("gateways: [{listen: '0.0.0.0:8080'}]"))
    check(parse("plaintext: true\ncontrols: [{admin: '0.0.0.0:7401'}]"))


@pytest.mark.parametrize(
    ("baseline", "ok"),
    [
        ("", True),
        ("round-robin", True),
        ("least-request", True),
        ("least-request:9", True),
        ("random", True),
        ("least-request:1", False),
        ("least-request:", False),
        ("random:2", False),
        ("roundrobin", False),
    ],
)
def test_baseline_syntax(baseline: str, *, ok: bool) -> None:
    assert baseline_ok(baseline) is ok


def test_missing_file_and_folder_are_config_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Too many levels"):
        load_checked(tmp_path / "loop.yaml")
    with pytest.raises(ConfigError, match="larger than 16 MiB"):
        load("/dev/zero")
    (tmp_path / "latin.yaml").write_bytes(b"grid: \xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(tmp_path / "latin.yaml")


def test_resolve_settles_every_port_once() -> None:
    grid = resolve(check(parse(GOOD)), rng=random.Random(1))
    assert grid.emulation is not None
    addresses = [grid.controls[0].listen, grid.controls[0].admin, grid.gateways[0].listen, grid.gateways[0].admin]
    addresses += [grid.gateways[0].envoy_admin, grid.emulation.api, grid.emulation.dcgm[0].listen, grid.dashboard]
    addresses += [engine.kv_events.listen for engine in grid.emulation.engines if engine.kv_events is not None]
    addresses += [engine.listen["east"] for engine in grid.emulation.engines]
    addresses += [cell.url.removeprefix("http://") for cell in grid.cells]
    assert len(set(addresses)) == len(addresses)
    assert not any(address.endswith(":0") for address in addresses)
    check(grid)


def test_resolve_fills_what_emulation_implies() -> None:
    grid = resolve(check(parse(GOOD)))
    assert grid.emulation is not None
    east, west, real = grid.cells
    assert grid.gateways[0].reach == {e.cell: e.listen["east"] for e in grid.emulation.engines}
    assert east.dcgm_url == f"http://{grid.emulation.dcgm[0].listen}/metrics"
    assert east.gpu_uuids == [grid.emulation.engines[0].gpu_uuid] == ["GPU-east-0"]
    assert west.dcgm_url == ""
    assert (east.hardware, west.hardware, real.hardware) == ("fast", "h100", "")
    assert real.url == "http://127.0.0.1:8000"
    published = grid.emulation.engines[0].kv_events
    assert published is not None
    assert east.kv_events == KvEventsConfig(endpoint=f"tcp://{published.listen}", topic="kv")
    assert west.kv_events is None


def test_reload_keeps_the_ports_that_were_settled() -> None:
    first = resolve(check(parse(GOOD)))
    more = GOOD.replace("emulation:", '  - {id: real-1, site: west, url: "http://127.0.0.1:8001"}\nemulation:')
    second = resolve(check(parse(more)), keep=first)
    assert second.controls == first.controls
    assert second.gateways == first.gateways
    assert second.cells[:3] == first.cells
    assert second.emulation == first.emulation


def test_resolved_file_reads_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(GOOD + "  scenario: faults.yaml\nstate_dir: state\n")
    (tmp_path / "faults.yaml").write_text("[]")
    grid = resolve(load_checked(path))
    assert grid.state_dir == str(tmp_path / "state")
    assert write_resolved(grid) == resolved_path(grid) == tmp_path / "state" / "grid.resolved.json"
    assert load_checked(resolved_path(grid)) == grid


def test_empty_grid_is_a_grid() -> None:
    assert resolve(check(GridConfig())).sites == []
