"""The latency histograms of one simulated engine, as its metrics page would show them."""

from bisect import bisect_left
from itertools import accumulate

from tradewind.engine.sequence import Sequence
from tradewind.model.telemetry import Histogram

TTFT_BOUNDS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)  # vLLM's


class Latencies:
    """TTFT by vLLM's buckets; of the gaps between tokens their number and sum, which is all that scoring reads."""

    def __init__(self) -> None:
        self.finished = 0
        self._ttft_counts = [0] * (len(TTFT_BOUNDS_S) + 1)
        self._ttft_total_s = 0.0
        self._streaming: dict[int, Sequence] = {}  # with a first token and not the last
        self._gaps = 0  # of sequences that have ended
        self._gaps_total_s = 0.0

    def first(self, sequence: Sequence, now_s: float) -> None:
        """The first token came now."""
        ttft_s = now_s - sequence.arrival_s
        self._ttft_counts[bisect_left(TTFT_BOUNDS_S, ttft_s)] += 1
        self._ttft_total_s += ttft_s
        self._streaming[sequence.request.seq_id] = sequence

    def last(self, sequence: Sequence) -> None:
        """The sequence ended, by itself or not; one without a first token counts nowhere but in `finished`."""
        self.finished += 1
        if self._streaming.pop(sequence.request.seq_id, None) is not None:
            self._gaps += sequence.generated - 1
            self._gaps_total_s += _between_s(sequence)

    def ttft_s(self) -> Histogram:
        """From arrival at the server to the first token."""
        counts = tuple(map(float, accumulate(self._ttft_counts)))
        return Histogram(bounds=TTFT_BOUNDS_S, counts=counts, total=self._ttft_total_s)

    def itl_s(self) -> Histogram:
        """Between tokens, all in one bucket."""
        gaps, total_s = self._gaps, 0.0
        for sequence in self._streaming.values():
            gaps += sequence.generated - 1
            total_s += _between_s(sequence)
        return Histogram(bounds=(), counts=(float(gaps),), total=self._gaps_total_s + total_s)


def _between_s(sequence: Sequence) -> float:
    first_s, last_s = sequence.first_token_s, sequence.last_token_s
    assert first_s is not None
    assert last_s is not None
    return last_s - first_s
