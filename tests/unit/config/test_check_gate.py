"""Sections on the gate and on late first tokens that make no sense say where and what to write."""

import pytest

from tradewind.config.check import check
from tradewind.config.errors import ConfigError
from tradewind.config.load import parse

CELL = 'cells: [{id: a, site: eu, url: "http://127.0.0.1:8000"}]\n'
HEDGE = "hedge: {header: x-class, value: live, after_s: 1}"


@pytest.mark.parametrize(
    ("gateway", "expected"),
    [
        ("{gate: {mode: on}}", "$.gateways[0].gate.mode: expected `str`, got `bool`; write one of auto, wasm"),
        (
            "{gate: {mode: yes-please}}",
            "gate.mode: invalid enum value 'yes-please'; write one of auto, wasm, native, none",
        ),
        ("{gate: {deaths: 1}}", "gate.deaths: 1 engines that may end under one request; write 2 to 8"),
        ("{gate: {quarantine_s: -1}}", "gate.quarantine_s: "),
        (
            "{envoy: external, gate: {mode: native}}",
            "this one is external; write wasm, if that Envoy has the V8 runtime",
        ),
        (
            "{limits: {request_buffer_bytes: 1048575}}",
            "request_buffer_bytes: a gate holds the beginning of an answer in this buffer, and it is too small",
        ),
        (
            "{first_token: {timeout_factor: 10}}",
            "first_token.timeout_factor: the time limit of a stream comes with",
        ),
        (f"{{first_token: {{{HEDGE}}}}}", "first_token.hedge.header: the time limit of a stream comes with its pick"),
        (
            "{routing: pick, gate: {mode: none}, first_token: {timeout_factor: 10}}",
            "timeout_factor: without a gate the headers of a stream end the wait for its first token; write gate:",
        ),
        ("{routing: pick, envoy: external, first_token: {timeout_factor: 10}}", "without a gate the headers"),
        ("{routing: pick, limits: {retries: 0}, first_token: {timeout_factor: 10}}", "retries are off; write limits:"),
        ("{routing: pick, first_token: {timeout_factor: 0.5}}", "0.5 times the estimate; write 0 for off, or 1 to"),
        ("{routing: pick, first_token: {timeout_factor: 2000}}", "2000 times the estimate; write 0 for off, or 1 to"),
        ("{routing: pick, first_token: {timeout_factor: .nan}}", "first_token.timeout_factor: nan is out of range"),
        ("{routing: pick, first_token: {timeout_factor: 9, timeout_min_s: 0}}", "timeout_min_s: 0 is out of range"),
        ("{routing: pick, first_token: {timeout_factor: 9, timeout_min_s: 90000}}", "90000 s; write at most 86400"),
        ("{routing: pick, first_token: {hedge: {header: x-class}}}", "hedge: a class of requests is a header and its"),
        ("{routing: pick, first_token: {hedge: {value: live}}}", "write both header and value, or neither"),
        (f"{{routing: pick, first_token: {{{HEDGE.replace('x-class', 'x-envoy-a')}}}}}", "not beginning with x-tw- or"),
        (
            f"{{routing: pick, first_token: {{{HEDGE.replace('after_s: 1', 'after_s: 0')}}}}}",
            "after_s: 0 is out of range",
        ),
    ],
)
def test_wrong_sense_says_where_and_what_to_write(gateway: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(parse(f"{CELL}gateways: [{gateway}]"))
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "gateway",
    [
        "{}",
        "{gate: {mode: none}}",
        "{envoy: external, gate: {mode: wasm}}",
        "{routing: pick, first_token: {timeout_factor: 10, timeout_min_s: 60}}",
        f"{{routing: pick, first_token: {{{HEDGE}}}}}",
        f"{{routing: pick, envoy: external, gate: {{mode: wasm}}, first_token: {{{HEDGE}}}}}",
    ],
)
def test_good_sections_pass(gateway: str) -> None:
    check(parse(f"{CELL}gateways: [{gateway}]"))


def test_a_header_of_the_router_cannot_name_a_residency_rule() -> None:
    """It is removed at the edge, and a rule that sees nothing would open every site."""
    rule = "{name: eu-only, header: x-envoy-region, value: eu, sites: [eu]}"
    with pytest.raises(ConfigError, match="x-envoy-region"):
        check(parse(f"{CELL}gateways: [{{residency: [{rule}]}}]"))
