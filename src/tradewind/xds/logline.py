"""What Envoy writes into the access log of each request and each failed attempt: one text, which is cheap to read."""

from tradewind.xds.pick import DECISION_HEADER
from tradewind.xds.pick import METADATA as PICK_METADATA

TAG = "line"
SEPARATOR = "\n"  # no header can hold one, and no model name may
LEAST_DEATHS, GATE_REFUSES = 2, 422  # of engines under one request, and what the gate answers after so many or more
_SINCE_START = "%COMMON_DURATION(DS_RX_BEG:{}:us)%"

# Field -> Envoy's command operator, in order; a field without a value is empty. Engines flush headers early: the first
# token is the first byte of the body.
FIELDS = {
    "kind": "%ACCESS_LOG_TYPE%",
    "status": "%RESPONSE_CODE%",
    "flags": "%RESPONSE_FLAGS%",
    "host": "%UPSTREAM_HOST%",
    "request_id": "%REQ(x-request-id)%",
    "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
    "route": "%ROUTE_NAME%",
    "request_bytes": "%BYTES_RECEIVED%",
    "response_bytes": "%BYTES_SENT%",
    "attempt_us": _SINCE_START.format("US_TX_BEG"),  # Envoy keeps the times of the newest attempt only
    "ttft_us": _SINCE_START.format("US_RX_BODY_BEG"),
    "end_us": _SINCE_START.format("DS_TX_END"),  # empty when the answer did not end
    "duration_ms": "%DURATION%",
    "answer": "%FILTER_STATE(tradewind.answer:PLAIN)%",  # of answer.lua
    "retry_after": "%RESP(retry-after)%",
    "deaths": "%FILTER_STATE(wasm.tradewind.deaths:PLAIN)%%FILTER_STATE(tradewind.deaths.2:PLAIN)%",  # one gate runs
    "decision": f"%DYNAMIC_METADATA({PICK_METADATA}:{DECISION_HEADER})%",  # the picker's id, empty without one
}
LINE = SEPARATOR.join(FIELDS.values())
