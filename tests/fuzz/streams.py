"""Fuzzes the first-token gate's reading of event streams."""

import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.xds.gate import model
from tests.unit.xds.gate.host import judge

ROUND_EXAMPLES = 2_000


def generated(seconds: float) -> int:
    """Rounds of hypothesis until the time is over; how many streams were judged."""
    tried = 0

    @settings(max_examples=ROUND_EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(stream=model.streams, before=st.one_of(st.just(b""), model.pieces))
    def one_round(stream: tuple[bytes, int], before: bytes) -> None:
        nonlocal tried
        tried += 1
        text, verdict = stream
        judged, used = judge(before + text)
        assert used <= len(before + text)
        assert before or judged == verdict

    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        one_round()
    return tried
