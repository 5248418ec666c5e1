"""What became of one request."""

from typing import NamedTuple


class Outcome(NamedTuple):
    """One finished request as the access log tells it. Times in seconds; None when unknown.

    A tuple, since one is made per request and a frozen dataclass of so many fields costs five times as much.
    """

    request_id: str
    cell_id: str | None  # the cell that answered last; None if no cell was reached
    model: str | None = None
    status: int = 0  # 0 when no response was sent
    flags: str = ""  # Envoy response flags, e.g. "UF,URX"
    attempts: int = 1
    attempted_cells: tuple[str, ...] = ()  # in order, the last one is the one that answered
    attempt_failures: tuple[str, ...] = ()  # why each earlier attempt failed: Envoy flags or the status, "UF", "503"
    request_bytes: int = 0
    response_bytes: int = 0
    ttft_s: float | None = None  # request start to first response body byte
    attempt_s: float | None = None  # request start to the start of the last attempt upstream
    duration_s: float = 0.0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    stream_error_code: int | None = None  # an error event inside a 200 stream
    retry_after_s: float | None = None
    client_cancelled: bool = False
    decision_id: str = ""  # the picker's decision that this request followed; "" = it went by the weights
    stored_id: str = ""  # of a response that the engine keeps for follow-ups
    deaths: int = 0  # engines that ended or failed under this request before its first token, where a gate counts them
    synthetic: bool = False  # made by a probe, never a client's
