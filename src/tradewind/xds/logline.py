"""What Envoy writes into the access log of each request and each failed attempt: one text, which is cheap to read."""

from tradewind.xds.usage import NAMESPACE

TAG = "line"
SEPARATOR = "\n"  # no header can hold one, and no model name may
_SINCE_START = "%COMMON_DURATION(DS_RX_BEG:{}:us)%"
_USAGE = f"%DYNAMIC_METADATA({NAMESPACE}:{{}})%"

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
    "answer": _USAGE.format("answer"),  # of a whole JSON answer: prompt, completion, cached
    "prompt_tokens": _USAGE.format("prompt_tokens"),  # of a stream, as are the next ones
    "completion_tokens": _USAGE.format("completion_tokens"),
    "cached_tokens": _USAGE.format("cached_tokens"),
    "error_code": _USAGE.format("error_code"),
    "retry_after": "%RESP(retry-after)%",
    "error_text": f"%DYNAMIC_METADATA({NAMESPACE}:error_text):1%",  # whether there is one; the engine's words stay out
}
LINE = SEPARATOR.join(FIELDS.values())
