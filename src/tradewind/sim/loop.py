"""Virtual time: one heap of events, taken in order of time and, at equal times, in order of scheduling."""

import heapq
from collections.abc import Callable
from itertools import count

Action = Callable[[], object]  # what it returns is nobody's business


class EventLoop:
    """Runs actions at their times. Nothing here knows a real clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.events = 0
        self._heap: list[tuple[float, int, Action]] = []
        self._order = count()

    def at(self, when_s: float, action: Action) -> None:
        """Call `action` at `when_s`, which must not lie in the past."""
        assert when_s >= self.now_s, f"an event at {when_s} is before now, {self.now_s}"
        heapq.heappush(self._heap, (when_s, next(self._order), action))

    def every(self, period_s: float, action: Action, *, until_s: float, first_s: float = 0.0) -> None:
        """Call `action` at `first_s` and each `period_s` after it, up to and with `until_s`."""
        assert period_s > 0

        def tick() -> None:
            action()
            if self.now_s + period_s <= until_s:
                self.at(self.now_s + period_s, tick)

        self.at(max(first_s, self.now_s), tick)

    def run(self, *, until_s: float) -> None:
        """Run every event that is due by `until_s`."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until_s:
            self.now_s, _, action = pop(heap)
            self.events += 1
            action()

    def step(self, *, until_s: float) -> bool:
        """Run the next event that is due by `until_s`; False if there is none."""
        if not self._heap or self._heap[0][0] > until_s:
            return False
        self.now_s, _, action = heapq.heappop(self._heap)
        self.events += 1
        action()
        return True
