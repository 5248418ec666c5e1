"""Orders to the router about late first tokens: for streams only, by the estimate or by the class of the request."""

import pytest

from tradewind.config.schema import FirstTokenConfig, HedgeConfig
from tradewind.gateway.pick.late import LateSettings, late_settings, orders

LIMIT, HEDGE = "x-envoy-upstream-rq-per-try-timeout-ms", "x-envoy-hedge-on-per-try-timeout"
GATE = "x-tw-first-token-ms"
BOTH = late_settings(
    FirstTokenConfig(
        timeout_factor=10.0, timeout_min_s=20.0, hedge=HedgeConfig(header="X-Class", value="live", after_s=0.75)
    )
)


@pytest.mark.parametrize(
    ("settings", "stream", "expected_s", "asked", "expected"),
    [
        (LateSettings(), True, 1.0, {"x-class": "live"}, {}),
        (BOTH, True, 0.5, {}, {LIMIT: "20000", GATE: "20000"}),
        (BOTH, True, 3.0001, {}, {LIMIT: "30001", GATE: "30001"}),
        (BOTH, True, None, {}, {}),
        (BOTH, False, 3.0, {"x-class": "live"}, {}),
        (BOTH, True, 3.0, {"x-class": "live"}, {LIMIT: "750", GATE: "750", HEDGE: "true"}),
        (BOTH, True, 3.0, {"x-class": "batch"}, {LIMIT: "30000", GATE: "30000"}),
    ],
)
def test_orders(
    settings: LateSettings, stream: bool, expected_s: float | None, asked: dict[str, str], expected: dict[str, str]
) -> None:
    assert dict(orders(settings, stream=stream, expected_s=expected_s, asked=asked)) == expected
