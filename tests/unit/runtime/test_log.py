"""Log lines: one event is one line of printable text, whatever a peer has sent."""

import logging

import pytest

from tradewind.runtime.log import log_event


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ("a\nb", '"a\\nb"'),
        ("\x1b[2J", '"\\u001b[2J"'),
        ("\x00", '"\\u0000"'),
        ("\u202egro", '"\\u202egro"'),
        ("s\u00fcd", "s\u00fcd"),
        (0.123456, "0.1235"),
    ],
)
def test_a_value_ends_no_line_and_tells_a_terminal_nothing(
    value: object, written: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    log_event(logging.getLogger("test"), "name", key=value)
    assert caplog.messages == [f"name key={written}"]
