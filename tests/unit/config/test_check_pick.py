"""Sections on picking and residency that make no sense say where and what to write."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tradewind.cli.main import app
from tradewind.config.check import check
from tradewind.config.errors import ConfigError
from tradewind.config.load import parse
from tradewind.config.resolve import load_checked

CELL = 'cells: [{id: a, site: eu, url: "http://127.0.0.1:8000"}]\n'
RULE = "{name: eu-only, header: x-region, value: eu, sites: [eu]}"


@pytest.mark.parametrize(
    ("gateway", "expected"),
    [
        ("{routing: pick, baseline: random}", "$.gateways[0].baseline: baseline 'random' turns scoring off"),
        ("{pick: {session_header: 'a b'}}", "$.gateways[0].pick.session_header: 'a b' is not a header"),
        ("{pick: {policy: costs}}", "pick.policy: unknown pick policy 'costs'; write one of cache_aware, cost, gorgo:"),
        ("{pick: {policy: 'cost:2'}}", "pick.policy: unknown pick policy 'cost:2'; write one of"),
        (
            "{pick: {policy: 'least_request:0'}}",
            "not '0'; write least_request:2, least_request:N, gorgo:.5/.1 or file.py",
        ),
        (
            "{pick: {policy: 'mine.py:Mine'}}",
            "pick.policy: 'mine.py:Mine' is a file of Python, and this grid runs none",
        ),
        ("{pick: {policy: 'mine.py'}}", "pick.policy: 'mine.py' names no class; write file.py:Name"),
        ("{pick: {policy: 'gorgo:1'}}", "e.g. gorgo:.5/.1, not '1'; write"),
        (
            "{pick: {explain_key_env: 'se-cret'}}",
            "pick.explain_key_env: this is not the name of an environment variable",
        ),
        (
            "{pick: {capture: picks.ndjson, capture_max_bytes: 1000}}",
            "pick.capture_max_bytes: 1000 is no size for a capture; write 1048576 to",
        ),
        ("{pick: {timeout_s: 0}}", "$.gateways[0].pick.timeout_s: 0 is out of range"),
        ("{epp: {listen: '127.0.0.1:9002'}}", "epp.listen: an endpoint picker has nothing to say without a picker"),
        ("{routing: pick, epp: {listen: '10.0.0.1:9002'}}", "10.0.0.1:9002 is not loopback"),
        ("{routing: pick, epp: {tls_key: a}}", "epp: a certificate and its key come together"),
        ("{residency: [{name: a, header: x_y, value: v, sites: [eu]}]}", "residency[0].header: 'x_y' is not a header"),
        ("{residency: [{name: a, header: x-tw-a, value: v, sites: [eu]}]}", "not beginning with x-tw-"),
        ("{residency: [{name: a, header: h, value: v, sites: [mars]}]}", "there is no site 'mars'; write one"),
        ("{residency: [{name: a, header: h, value: v, sites: []}]}", "residency[0].sites: no site is allowed"),
        ("{residency: [{name: a, header: h, value: '', sites: [eu]}]}", "is empty or has a rule already"),
        (f"{{residency: [{RULE}, {RULE.replace('x-region', 'x-team')}]}}", "residency: rules look at x-region, x-team"),
        ("{pick: {max_body_bytes: 100000000}}", "pick.max_body_bytes: 100000000 is more than a picker takes"),
        (f"{{residency: [{RULE}, {RULE}]}}", "residency[1].name: 'eu-only' is not a name of its own"),
        (f"{{residency: [{RULE}, {RULE.replace('eu-only', 'b')}]}}", "residency[1].value: value 'eu' is empty or has"),
    ],
)
def test_wrong_sense_says_where_and_what_to_write(gateway: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(parse(f"{CELL}gateways: [{gateway}]"))
    assert expected in str(caught.value)


@pytest.mark.parametrize("policy", ["cost", "random", "least_request", "least_request:N", "gorgo:.276/.5", "pressure"])
def test_every_policy_that_exists_passes(policy: str) -> None:
    section = f"{{routing: pick, pick: {{policy: '{policy}', explain_key_env: TW_KEY}}}}"
    assert check(parse(f"{CELL}gateways: [{section}]")).gateways[0].pick.policy == policy


def test_a_good_section_passes() -> None:
    grid = check(parse(f"{CELL}gateways: [{{routing: pick, residency: [{RULE}]}}]"))
    assert grid.gateways[0].residency[0].sites == ["eu"]


def test_a_policy_file_is_looked_for_beside_the_grid_file_and_named_in_full(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text(f"allow_policy_files: true\n{CELL}gateways: [{{routing: pick, pick: {{policy: 'own.py:Mine:2'}}}}]")
    with pytest.raises(ConfigError, match=r"there is no file '.*own\.py'; write file\.py:Name with a path relative"):
        load_checked(file)
    (tmp_path / "own.py").write_text("")
    assert load_checked(file).gateways[0].pick.policy == f"{tmp_path}/own.py:Mine:2"
    told = CliRunner().invoke(app, ["validate", "-f", str(file)])
    assert told.exit_code == 2
    assert f"$.gateways[0].pick.policy: {tmp_path}/own.py has no class 'Mine'; write a class with choose" in told.stderr
