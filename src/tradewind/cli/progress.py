"""Progress of long work on a terminal, and as a line now and then where there is none."""

import sys
import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tradewind.cli.options import say
from tradewind.lab.harness.experiment import Trial
from tradewind.lab.harness.runner import Watch

_LINE_EVERY_S = 15.0


class Bars(Watch):
    """A bar on stderr; a context manager."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._bars = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True))
        self._is_terminal = sys.stderr.isatty()
        self._task = self._bars.add_task("", total=None)
        self._name, self._did, self._of, self._line_at_s = "", 0, 0, 0.0

    def __enter__(self) -> Self:
        if self._is_terminal:
            self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_raised: object) -> None:
        if self._is_terminal:
            self._bars.stop()
        if kind is KeyboardInterrupt:
            say(f"stopped after {self._did} of {self._of} trials; the same command goes on from there")

    def began(self, name: str, trials: int, reused: int) -> None:
        self._name, self._did, self._of, self._line_at_s = name, reused, trials, time.monotonic()
        self._bars.update(self._task, description=name, total=trials, completed=reused)
        if reused and not self._is_terminal:
            say(f"{name}: {reused} of {trials} trials are there from a run before")

    def did(self, trial: Trial) -> None:
        self._did += 1
        self._bars.update(self._task, completed=self._did)
        if not self._is_terminal and time.monotonic() - self._line_at_s >= _LINE_EVERY_S:
            self._line_at_s = time.monotonic()
            say(f"{self._name}: {self._did} of {self._of} trials")

    def said(self, line: str) -> None:
        if self._is_terminal:
            self._bars.console.print(line, markup=False, highlight=False)
        else:
            say(line)
