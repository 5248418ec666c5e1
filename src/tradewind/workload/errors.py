"""What is wrong with a trace that somebody brought."""


class TraceError(ValueError):
    """A file that is no trace; the message says where and what to write."""


def at_line(name: str, number: int, what: str) -> TraceError:
    """The error of one line, counted from 1."""
    return TraceError(f"{name}, line {number}: {what}")
