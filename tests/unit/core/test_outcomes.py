"""What an attempt that failed says of its cell."""

import pytest

from tradewind.core.outcomes import Kind, kind_of_attempt


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("UF", Kind.UNREACHED),
        ("UC", Kind.UNREACHED),
        ("UPE", Kind.UNREACHED),
        ("", Kind.UNREACHED),
        ("502", Kind.FAILURE),
        ("503", Kind.BACKPRESSURE),
        ("UT", Kind.IGNORED),
        ("0", Kind.IGNORED),
    ],
)
def test_an_attempt_that_envoy_gave_up_is_no_failure_of_the_cell(reason: str, expected: Kind) -> None:
    """UT: its time for a first token was over. 0: another attempt had won."""
    assert kind_of_attempt(reason) is expected
