"""One small request that proves an engine can serve, after each of its starts."""

import msgspec

from tradewind.telemetry.fetch import Fetcher
from tradewind.telemetry.http_connection import Fault, FetchFailed

WARM_UP_TIMEOUT_S = 300.0  # the first request may compile kernels for minutes
_NOT_HERE = (404, 405)


async def warm_up(fetcher: Fetcher, model: str) -> None:
    """Ask for one token, as a completion or, where that is not served, as a chat. Raises FetchFailed."""
    status = await _post(fetcher, "/v1/completions", {"model": model, "prompt": "warm up", "max_tokens": 1})
    if status in _NOT_HERE:
        message = {"role": "user", "content": "warm up"}
        status = await _post(fetcher, "/v1/chat/completions", {"model": model, "messages": [message], "max_tokens": 1})
    if not 200 <= status < 300:
        raise FetchFailed(Fault.STATUS, f"the warm-up request was answered {status}")


async def _post(fetcher: Fetcher, path: str, body: dict[str, object]) -> int:
    response = await fetcher.exchange("POST", path, body=msgspec.json.encode(body), timeout_s=WARM_UP_TIMEOUT_S)
    return response.status
