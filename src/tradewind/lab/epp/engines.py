"""Engines that the kit plays at the picker's endpoints: they say who served, and what they were sent."""

import asyncio
import hashlib
import json

from aiohttp import web

MAX_BODY_BYTES = 64 * 2**20
SSE_CHUNKS = tuple(
    f"data: {text}\n\n".encode()
    for text in (
        '{"choices":[{"delta":{"content":"one"}}]}',
        '{"choices":[{"delta":{"content":"two"}}]}',
        '{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}',
        "[DONE]",
    )
)
SSE_GAP_S = 0.05


class PlayedEngine:
    """One engine at "ip:port"."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen. Raises OSError where the address is taken."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        host, _, port = self.address.rpartition(":")
        await web.TCPSite(self._runner, host.strip("[]"), int(port)).start()

    async def stop(self) -> None:
        """Refuse connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {"x-served-by": self.address, "x-body-sha256": hashlib.sha256(body).hexdigest()}
        if _streams(body):
            return await self._stream(request, headers)
        usage = {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}
        return web.json_response({"object": "chat.completion", "choices": [], "usage": usage}, headers=headers)

    async def _stream(self, request: web.Request, headers: dict[str, str]) -> web.StreamResponse:
        response = web.StreamResponse(headers={**headers, "content-type": "text/event-stream"})
        await response.prepare(request)
        for chunk in SSE_CHUNKS:
            await response.write(chunk)
            await asyncio.sleep(SSE_GAP_S)
        await response.write_eof()
        return response


def _streams(body: bytes) -> bool:
    try:
        decoded = json.loads(body)
    except ValueError:
        return False
    return isinstance(decoded, dict) and decoded.get("stream") is True
