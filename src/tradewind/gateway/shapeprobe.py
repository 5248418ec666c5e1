"""Sends one synthetic request of a refused shape straight to a cell, to learn whether the refusal is over."""

import asyncio
import logging
import os
import random
from collections.abc import Callable, Coroutine

import aiohttp
import msgspec

from tradewind.model.outcome import Outcome
from tradewind.model.routing import ProbeOrder
from tradewind.runtime.log import log_event

log = logging.getLogger(__name__)

TIMEOUT_S = 30.0  # a long prompt on a busy engine takes seconds; an answer later than this teaches nothing
MAX_ANSWER_BYTES = 64 * 1024
MAX_PROMPT_BYTES = 8 * 2**20
MAX_OUTSTANDING = 16  # over all cells; one per cell
PROBE_HEADER = "x-tw-probe"

# Short, common, different: about one token each, so that bytes and tokens relate as in ordinary text.
WORDS = ("the", "wind", "moves", "over", "water", "and", "night", "ships", "follow", "many", "bright", "stars", "home")


def unique_prompt(prompt_bytes: int, rng: random.Random) -> str:
    """A prompt of that many bytes whose first words differ each time, so that no prefix cache answers it."""
    size = max(16, min(prompt_bytes, MAX_PROMPT_BYTES))
    head = f"{rng.getrandbits(64):016x}"
    words = rng.choices(WORDS, k=size // 3 + 1)
    return f"{head} {' '.join(words)}"[:size]


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None


class _Answer(msgspec.Struct):
    usage: _Usage | None = None


def _prompt_tokens(body: bytes) -> int | None:
    try:
        usage = msgspec.json.decode(body, type=_Answer).usage
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # an error page, or more than is read
        return None
    return usage.prompt_tokens if usage is not None and (usage.prompt_tokens or 0) > 0 else None


async def _read(content: aiohttp.StreamReader) -> bytes:
    """All of it, up to the bound: a single read may return less than has come."""
    body = b""
    while len(body) < MAX_ANSWER_BYTES and (part := await content.read(MAX_ANSWER_BYTES - len(body))):
        body += part
    return body


class ShapeProber:
    """Runs probe orders, one outstanding per cell; results go to `on_result`, never into user counts."""

    def __init__(
        self,
        *,
        address_of: Callable[[str], str | None],
        api_key_env_of: Callable[[str], str],
        on_result: Callable[[ProbeOrder, Outcome], None],
        spawn: Callable[[Coroutine[None, None, None]], asyncio.Task[None]],
        clock: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self.sent = 0
        self.skipped = 0
        self._address_of = address_of
        self._api_key_env_of = api_key_env_of
        self._on_result = on_result
        self._spawn = spawn
        self._clock = clock
        self._rng = rng
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._session: aiohttp.ClientSession | None = None

    def send(self, order: ProbeOrder) -> None:
        """Start a probe unless one is outstanding at the cell or too many are in all."""
        address = self._address_of(order.cell_id)
        if address is None or order.cell_id in self._tasks or len(self._tasks) >= MAX_OUTSTANDING:
            self.skipped += 1
            return
        task = self._spawn(self._probe(order, address))
        self._tasks[order.cell_id] = task
        task.add_done_callback(lambda _done: self._tasks.pop(order.cell_id, None))

    def keep_only(self, cell_ids: frozenset[str]) -> None:
        """Abort probes of cells that left."""
        for cell_id in sorted(self._tasks.keys() - cell_ids):
            self._tasks[cell_id].cancel()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _probe(self, order: ProbeOrder, address: str) -> None:
        self.sent += 1
        started_s = self._clock()
        tokens: int | None = None
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status, tokens = await self._post(order, address)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            log_event(log, "probe.no_answer", cell=order.cell_id, error=error or type(error).__name__)
            status = 0
        outcome = Outcome(
            request_id=f"probe-{order.cell_id}-{self.sent}",
            cell_id=order.cell_id,
            model=order.model,
            status=status,
            request_bytes=order.prompt_bytes,
            duration_s=self._clock() - started_s,
            prompt_tokens=tokens,
            synthetic=True,
        )
        self._on_result(order, outcome)

    async def _post(self, order: ProbeOrder, address: str) -> tuple[int, int | None]:
        """The status, and how long the engine found the prompt, if it says; of the body a bounded part is read."""
        body = {
            "model": order.model,
            "messages": [{"role": "user", "content": unique_prompt(order.prompt_bytes, self._rng)}],
            "max_tokens": max(1, order.max_tokens),
            "stream": False,
        }
        headers = {"content-type": "application/json", PROBE_HEADER: "shape", **self._authorization(order.cell_id)}
        url = f"http://{address}/v1/chat/completions"
        session = self._open_session()
        async with session.post(url, data=msgspec.json.encode(body), headers=headers, allow_redirects=False) as answer:
            return answer.status, _prompt_tokens(await _read(answer.content))

    def _authorization(self, cell_id: str) -> dict[str, str]:
        name = self._api_key_env_of(cell_id)
        key = os.environ.get(name, "") if name else ""
        return {"authorization": f"Bearer {key}"} if key else {}

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=MAX_OUTSTANDING, force_close=True)
            self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
        return self._session
