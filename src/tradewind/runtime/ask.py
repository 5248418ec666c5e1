"""Ask an admin API: small JSON over HTTP, bounded in time and size, blocking or from a loop."""

import asyncio
import http.client

import msgspec

TIMEOUT_S = 3.0
MAX_BODY_BYTES = 64 * 2**20  # ten thousand cells with every signal


class AskFailed(Exception):
    """Nobody answered, or the answer was an error; `status` is 0 when nobody did."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def ask(
    address: str, path: str, *, method: str = "GET", body: object = None, token: str = "", timeout_s: float = TIMEOUT_S
) -> object:
    """The JSON answer of http://address/path. Raises AskFailed."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout_s)
    headers = {"content-type": "application/json"} if body is not None else {}
    if token:
        headers["authorization"] = f"Bearer {token}"
    try:
        connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
        answer = connection.getresponse()
        data = answer.read(MAX_BODY_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise AskFailed(f"http://{address}{path} does not answer: {error}") from error
    finally:
        connection.close()
    if answer.status >= 400:
        text = _error_text(data)
        raise AskFailed(f"http://{address}{path} answers {answer.status}: {text}", status=answer.status)
    try:
        return msgspec.json.decode(data) if data else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AskFailed(f"http://{address}{path} answers something that is not JSON: {error}") from error


async def ask_async(
    address: str, path: str, *, method: str = "GET", body: object = None, timeout_s: float = TIMEOUT_S
) -> object:
    """`ask` in a thread. Raises AskFailed."""
    return await asyncio.to_thread(ask, address, path, method=method, body=body, timeout_s=timeout_s)


def _error_text(data: bytes) -> str:
    """The message of an error reply, or its first bytes."""
    try:
        reply = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data[:200].decode("utf-8", "replace").strip()
    error = reply.get("error") if isinstance(reply, dict) else None
    return str(error.get("message", error) if isinstance(error, dict) else error or reply)[:400]
