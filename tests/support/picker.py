"""A real PickServer in a thread, and an Envoy that asks it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.edge import Edge, running_edge
from tradewind.gateway.pick.server import PickServer, Question
from tradewind.gateway.pick.server import Reply as PickReply
from tradewind.xds.settings import PickerSettings, ResidencyRule


class Picker:
    """A real PickServer in a thread of its own; `answer` may be changed by a test."""

    def __init__(self, path: str) -> None:
        self.questions: list[Question] = []
        self.answer: Callable[[Question], PickReply] = lambda question: PickReply(503)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.server = PickServer(path, self._answer, max_body_bytes=2**20)
        self.start()

    def _answer(self, question: Question) -> PickReply:
        self.questions.append(question)
        return self.answer(question)

    def start(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.start(), self._loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.stop(), self._loop).result(10)

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@contextmanager
def picking_edge(
    directory: Path, residency: tuple[ResidencyRule, ...] = (), *, timeout_s: float = 0.05, **options: object
) -> Iterator[tuple[Edge, Picker]]:
    picker = Picker(str(directory / "pick.sock"))
    try:
        settings = PickerSettings(max_body_bytes=2**16, timeout_s=timeout_s)
        with running_edge(directory, picker=settings, residency=residency, **options) as edge:  # type: ignore[arg-type]  # passed on
            yield edge, picker
    finally:
        picker.close()
