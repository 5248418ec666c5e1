"""Open-loop load client: sends each request when the plan says so, however slow the answers are."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from tradewind.lab.exchange import Exchange, begin
from tradewind.measure.record import Failure, Record
from tradewind.workload.plan import Plan, Planned
from tradewind.workload.prompts import chat_body, prompt_text

MAX_OPEN = 4_000  # requests in flight; beyond it a request is recorded as NOT_SENT
CONNECT_TIMEOUT_S = 10.0
Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the load goes. `address` is "ip:port" of a gateway's listener or of one engine."""

    address: str
    model: str
    path: str = "/v1/chat/completions"
    timeout_s: float = 120.0  # for one request as a whole
    headers: Headers = ()
    stream: bool = True
    tls: bool = False  # https, with the system's certificates


def unique_text(planned: Planned) -> str:
    """A prompt that no other request begins like."""
    return prompt_text(planned.request_id, tokens=planned.prompt_tokens)


def no_headers(_planned: Planned) -> Headers:
    """No request has headers of its own."""
    return ()


class LoadClient:
    """Runs plans against a target. Records count their times from `start_s` on time.monotonic()."""

    def __init__(
        self,
        target: Target,
        *,
        on_record: Callable[[Record], None] = lambda _record: None,
        text_of: Callable[[Planned], str] = unique_text,
        headers_of: Callable[[Planned], Headers] = no_headers,
    ) -> None:
        """`text_of` writes the prompt of a request; by default no two share anything. `headers_of`: on top."""
        self.target = target
        self._text_of = text_of
        self._headers_of = headers_of
        self.records: list[Record] = []
        self.start_s = 0.0
        self.open = 0
        self._on_record = on_record

    async def run(self, plan: Plan, *, start_s: float | None = None) -> list[Record]:
        """Send everything, wait for every end; the records come in order of their ends. `start_s`: default now."""
        self.start_s = time.monotonic() if start_s is None else start_s
        async with asyncio.TaskGroup() as tasks:
            for planned in sorted(plan, key=lambda item: item.at_s):
                await asyncio.sleep(max(0.0, self.start_s + planned.at_s - time.monotonic()))
                tasks.create_task(self.send(planned))
        return self.records

    async def send(self, planned: Planned) -> Record:
        """Send one request now and return what became of it; a failure is a record, never an exception."""
        if self.open >= MAX_OPEN:
            return self._keep(replace(begin(planned), failure=Failure.NOT_SENT, detail=f"{MAX_OPEN} requests are open"))
        self.open += 1
        try:
            return self._keep(await self._exchange(planned))
        finally:
            self.open -= 1

    async def _exchange(self, planned: Planned) -> Record:
        loop = asyncio.get_running_loop()
        base = replace(begin(planned), sent_s=time.monotonic() - self.start_s)
        exchange = Exchange(loop, start_s=self.start_s)
        host, _, port = self.target.address.rpartition(":")
        try:
            async with asyncio.timeout(min(CONNECT_TIMEOUT_S, self.target.timeout_s)):
                transport, _ = await loop.create_connection(
                    lambda: exchange, host.strip("[]"), int(port), ssl=self.target.tls or None
                )
        except (OSError, TimeoutError) as error:
            detail = str(error) or f"no connection within {CONNECT_TIMEOUT_S:g} s"
            return replace(base, end_s=time.monotonic() - self.start_s, failure=Failure.REFUSED, detail=detail)
        try:
            transport.write(self._request(planned))
            async with asyncio.timeout(self.target.timeout_s):
                await exchange.ended
        except TimeoutError:
            exchange.fail(Failure.TIMEOUT, f"no end within {self.target.timeout_s:g} s")
        finally:
            transport.abort()
        return exchange.record(base)

    def _request(self, planned: Planned) -> bytes:
        target = self.target
        text = self._text_of(planned)
        body = chat_body(target.model, text, output_tokens=planned.output_tokens, stream=target.stream)
        headers = (
            ("host", target.address),
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("x-request-id", planned.request_id),
            ("connection", "close"),
            *target.headers,
            *self._headers_of(planned),
        )
        head = "".join(f"{name}: {value}\r\n" for name, value in headers)
        return f"POST {target.path} HTTP/1.1\r\n{head}\r\n".encode() + body

    def _keep(self, record: Record) -> Record:
        self.records.append(record)
        self._on_record(record)
        return record
