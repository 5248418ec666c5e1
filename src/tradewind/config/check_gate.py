"""Do the sections on the first-token gate and on late first tokens make sense?"""

from collections.abc import Iterator

from tradewind.config.check_pick import no_header, reaches_gateway
from tradewind.config.errors import Problem
from tradewind.config.schema import FirstTokenConfig, GatewayConfig, GridConfig

MOST_DEATHS = 8
LONGEST_S = 86_400.0  # what Envoy's header can say is more, what anybody waits for is less
MOST_FACTOR = 1_000.0
# A gate holds up to 256 KiB of a stream, and what comes next is added before it can let go: beyond the buffer, Envoy
# answers 500.
LEAST_BUFFER_BYTES = 1_048_576


def gate_problems(grid: GridConfig) -> Iterator[Problem]:
    """Every problem of `gate` and `first_token`."""
    for index, gateway in enumerate(grid.gateways):
        at = f"$.gateways[{index}]"
        if gateway.gate.mode == "native" and gateway.envoy == "external":
            what = "a native gate is built for the Envoy that Tradewind starts, and this one is external"
            yield Problem(where=f"{at}.gate.mode", what=what, write="wasm, if that Envoy has the V8 runtime, or none")
        if gateway.gate.mode != "none" and 65_536 <= gateway.limits.request_buffer_bytes < LEAST_BUFFER_BYTES:
            what = "a gate holds the beginning of an answer in this buffer, and it is too small for that"
            write = f"{LEAST_BUFFER_BYTES} or more, or gate: {{mode: none}} in the same gateway"
            yield Problem(where=f"{at}.limits.request_buffer_bytes", what=what, write=write)
        if not 0 <= gateway.gate.quarantine_s <= LONGEST_S:
            what = f"a quarantine of {gateway.gate.quarantine_s:g} s"
            yield Problem(where=f"{at}.gate.quarantine_s", what=what, write=f"0 for none, or up to {LONGEST_S:g}")
        if not 2 <= gateway.gate.deaths <= MOST_DEATHS:
            what = f"{gateway.gate.deaths} engines that may end under one request"
            yield Problem(
                where=f"{at}.gate.deaths", what=what, write=f"2 to {MOST_DEATHS}; 2 keeps the third engine safe"
            )
        yield from _first_token(f"{at}.first_token", gateway)


def _first_token(at: str, gateway: GatewayConfig) -> Iterator[Problem]:
    section = gateway.first_token
    wanted = _wanted(section)
    if not wanted:
        return
    if gateway.routing != "pick":
        what = "the time limit of a stream comes with its pick, and this gateway does not pick"
        yield Problem(where=f"{at}.{wanted}", what=what, write="routing: pick in the same gateway")
    if gateway.gate.mode == "none" or (gateway.envoy == "external" and gateway.gate.mode == "auto"):
        what = "without a gate the headers of a stream end the wait for its first token"
        yield Problem(where=f"{at}.{wanted}", what=what, write="gate: {mode: wasm} in the same gateway")
    if not gateway.limits.retries:
        what = "a second cell is a retry, and retries are off"
        yield Problem(where=f"{at}.{wanted}", what=what, write="limits: {retries: 1} or more in the same gateway")
    yield from _bounds(at, section)
    yield from _hedge(f"{at}.hedge", section)


def _wanted(section: FirstTokenConfig) -> str:
    """The key that switches something on; "" when all is off."""
    if section.timeout_factor:
        return "timeout_factor"
    return "hedge.header" if section.hedge.header or section.hedge.value else ""


def _bounds(at: str, section: FirstTokenConfig) -> Iterator[Problem]:
    if 0 < section.timeout_factor < 1 or MOST_FACTOR < section.timeout_factor < float("inf"):
        what = f"{section.timeout_factor:g} times the estimate"
        yield Problem(where=f"{at}.timeout_factor", what=what, write=f"0 for off, or 1 to {MOST_FACTOR:g}, e.g. 10")
    for key, value_s in (("timeout_min_s", section.timeout_min_s), ("hedge.after_s", section.hedge.after_s)):
        if LONGEST_S < value_s < float("inf"):
            yield Problem(where=f"{at}.{key}", what=f"{value_s:g} s", write=f"at most {LONGEST_S:g}")


def _hedge(at: str, section: FirstTokenConfig) -> Iterator[Problem]:
    hedge = section.hedge
    if bool(hedge.header) != bool(hedge.value):
        what = "a class of requests is a header and its value"
        yield Problem(where=at, what=what, write="both header and value, or neither")
    if hedge.header and not reaches_gateway(hedge.header):
        yield no_header(f"{at}.header", hedge.header)
