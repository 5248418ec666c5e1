"""A load from the command line: requests against an address, records on disk as they end, and a summary."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from tradewind.lab.client import LoadClient, Target
from tradewind.lab.up import unless
from tradewind.measure.record import Record
from tradewind.measure.statistics import percentile
from tradewind.measure.summary import Summary, summarise
from tradewind.runtime.ask import ask_async
from tradewind.runtime.supervise import signalled
from tradewind.workload.mooncake import Trace
from tradewind.workload.plan import duration_s
from tradewind.workload.texts import Texts

CHAT_PATH = "/v1/chat/completions"
PORTS = {"http": 80, "https": 443}
TICK_S = 0.5
RECENT = 200  # successes whose TTFT the progress shows


class LoadError(ValueError):
    """What is asked for cannot be sent; the message says what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """One load. `for_s` is what goodput is counted over, None = until the last arrival."""

    target: Target
    trace: Trace
    title: str
    salt: str
    for_s: float | None = None
    slo_ttft_s: float = 1.5
    max_failed_ratio: float = 0.01
    bytes_per_token: float = 4.0
    out: Path | None = None


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `tradewind load --json` prints."""

    holds: bool  # as many succeeded as was asked for, and nothing stopped the load
    address: str
    model: str
    workload: str
    salt: str
    planned: int
    stopped: bool  # by a signal, before everything was sent and had ended
    max_failed_ratio: float
    failed: tuple[str, ...]  # one for each kind of failure, in words
    summary: Summary


@dataclass(slots=True)
class Progress:
    """Where a load is."""

    planned: int
    ended: int = 0
    open: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    recent_ttft_s: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def take(self, record: Record) -> None:
        """One more request has ended."""
        self.ended += 1
        if not record.ok:
            self.failures[record.failure.value] += 1
        elif record.ttft_s is not None:
            self.recent_ttft_s.append(record.ttft_s)

    def text(self) -> str:
        """For people."""
        failed = self.failures.total()
        words = [f"{self.open} open", f"{failed} failed" if failed else ""]
        recent = list(self.recent_ttft_s)
        if recent:
            p50, p95 = (1e3 * (percentile(recent, ratio) or 0.0) for ratio in (0.5, 0.95))
            words.append(f"TTFT p50 {p50:.0f}, p95 {p95:.0f} ms of the last {len(recent)}")
        return ", ".join(filter(None, words))


def target_of(url: str, *, model: str, timeout_s: float, headers: Sequence[str] = ()) -> Target:
    """The target that a URL and lines "name: value" name. Raises LoadError."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in PORTS or not parts.hostname:
        raise LoadError(f"{url!r} is no address; write http://HOST:PORT or https://HOST")
    try:
        port = parts.port or PORTS[parts.scheme]
    except ValueError as error:
        raise LoadError(f"{url!r}: {error}; write http://HOST:PORT") from error
    path = parts.path.rstrip("/")
    named = [_header(line) for line in headers]
    return Target(
        address=f"[{parts.hostname}]:{port}" if ":" in parts.hostname else f"{parts.hostname}:{port}",
        model=model,
        path=path if path.endswith("/chat/completions") else f"{path.removesuffix('/v1')}{CHAT_PATH}",
        timeout_s=timeout_s,
        headers=tuple(named),
        tls=parts.scheme == "https",
    )


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip() or "\n" in line or "\r" in line:
        raise LoadError(f"{line!r} is no header; write 'name: value'")
    return name.strip().lower(), value.strip()


async def only_model(target: Target) -> str:
    """The one model that the target lists. Raises LoadError where that does not settle it, and AskFailed."""
    if target.tls:
        raise LoadError("write --model: over https the models are not asked for")
    answer = await ask_async(target.address, f"{target.path.removesuffix('/chat/completions')}/models")
    rows = answer.get("data") if isinstance(answer, dict) else None
    known = [str(row["id"]) for row in rows or [] if isinstance(row, dict) and "id" in row]
    if len(known) != 1:
        raise LoadError(f"{target.address} lists {len(known)} models; write --model with one of: {', '.join(known)}")
    return known[0]


async def run_load(options: LoadOptions, *, on_tick: Callable[[Progress], None]) -> LoadReport:
    """Send everything in an open loop; SIGINT and SIGTERM stop it and what has ended is reported. Raises OSError."""
    texts = Texts(options.trace, prefix=options.salt, salt=options.salt, bytes_per_token=options.bytes_per_token)
    plan = texts.plan()
    progress = Progress(planned=len(plan))
    encoder = msgspec.json.Encoder()
    with ExitStack() as stack:
        file = None
        if options.out is not None:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(options.out.open("wb"))

        def keep(record: Record) -> None:
            progress.take(record)
            if file is not None:
                file.write(encoder.encode(record) + b"\n")

        client = LoadClient(options.target, on_record=keep, text_of=texts.text_of)

        async def send() -> None:
            await client.run(plan)

        async with signalled() as stop:
            ticking = asyncio.create_task(_tick(client, progress, on_tick))
            try:
                whole = await unless(stop, send())
            finally:
                ticking.cancel()
    progress.open = client.open
    on_tick(progress)
    return _report(options, client, planned=len(plan), stopped=not whole, until_s=duration_s(plan))


async def _tick(client: LoadClient, progress: Progress, on_tick: Callable[[Progress], None]) -> None:
    while True:
        progress.open = client.open
        on_tick(progress)
        await asyncio.sleep(TICK_S)


def _report(options: LoadOptions, client: LoadClient, *, planned: int, stopped: bool, until_s: float) -> LoadReport:
    records = client.records
    sent_s = max((record.intended_s for record in records), default=0.0)
    for_s = sent_s if stopped else options.for_s or until_s
    summary = summarise(records, slo_ttft_s=options.slo_ttft_s, for_s=for_s)
    failed_ratio = 1 - (summary.success_ratio or 0.0)
    return LoadReport(
        holds=not stopped and failed_ratio <= options.max_failed_ratio,
        address=options.target.address,
        model=options.target.model,
        workload=options.title,
        salt=options.salt,
        planned=planned,
        stopped=stopped,
        max_failed_ratio=options.max_failed_ratio,
        failed=tuple(first_of_each_kind(records)),
        summary=summary,
    )


def first_of_each_kind(records: Iterable[Record]) -> Iterator[str]:
    """The first failure of each kind and status, with what the client knows of it."""
    seen: set[tuple[str, int]] = set()
    for record in records:
        kind = (record.failure.value, record.status)
        if not record.ok and kind not in seen:
            seen.add(kind)
            status = f" {record.status}" if record.status else ""
            yield f"{record.request_id} {record.failure.value}{status}: {record.detail}"
