"""The Azure LLM inference traces (2023), and the slice of the conversations that ships with the project.

The slice is CC-BY 4.0, see data/.
"""

import csv
import gzip
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources

from tradewind.workload.errors import at_line
from tradewind.workload.mooncake import Trace, TracedRequest
from tradewind.workload.plan import Plan, Planned

SLICE = "azure_conv_2023_slice.csv.gz"
COLUMNS = "TIMESTAMP,ContextTokens,GeneratedTokens"
MAX_ROWS = 1_000_000  # a longer trace is cut here


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One request of a trace. `at_s` counts from the first row."""

    at_s: float
    prompt_tokens: int
    output_tokens: int


def shipped_slice() -> tuple[TraceRow, ...]:
    """The rows of the shipped slice, in order of arrival."""
    packed = resources.files("tradewind.workload").joinpath("data", SLICE).read_bytes()
    return tuple(parse_rows(io.StringIO(gzip.decompress(packed).decode("ascii"))))


def parse_rows(lines: Iterable[str], *, name: str = "the trace") -> Iterator[TraceRow]:
    """Rows of TIMESTAMP,ContextTokens,GeneratedTokens. Raises TraceError naming the line."""
    first: datetime | None = None
    for number, row in _numbered(lines, name):
        if number > MAX_ROWS:
            return
        try:
            # The trace has seven digits of a second; datetime takes six.
            at = datetime.fromisoformat(row["TIMESTAMP"][:26])
            first = first or at
            at_s = (at - first).total_seconds()
            prompt, output = int(row["ContextTokens"]), int(row["GeneratedTokens"])
        except (KeyError, TypeError, ValueError) as error:
            raise at_line(name, number, f"{dict(row)} is not a row of {COLUMNS}") from error
        if prompt < 0 or output < 0:
            raise at_line(name, number, f"{prompt} and {output} tokens; write numbers that are not negative")
        yield TraceRow(at_s=at_s, prompt_tokens=prompt, output_tokens=output)


def _numbered(lines: Iterable[str], name: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows with the numbers of their lines. Raises TraceError for what is no CSV at all."""
    reader = csv.DictReader(lines)
    try:
        yield from enumerate(reader, start=2)
    except csv.Error as error:
        raise at_line(name, max(1, reader.line_num), f"not CSV of {COLUMNS}: {error}") from error


def as_trace(rows: Iterable[TraceRow]) -> Trace:
    """The rows as requests that share nothing: the traces do not say what is in a prompt."""
    requests = (
        TracedRequest(at_s=row.at_s, prompt_tokens=max(1, row.prompt_tokens), output_tokens=max(1, row.output_tokens))
        for row in rows
    )
    return Trace(requests=tuple(requests))


def replay(rows: Sequence[TraceRow], *, rate_per_s: float, for_s: float, prefix: str, start: int = 0) -> Plan:
    """rate_per_s * for_s requests of a trace from row `start` on, within for_s: one factor scales every gap.

    Lengths stay as they are. When the trace ends early, it begins again.
    """
    count = round(rate_per_s * for_s)
    assert 0 < count <= MAX_ROWS, "a replay needs requests"
    begin = start % len(rows)
    taken = [rows[(begin + index) % len(rows)] for index in range(count)]
    # What lies between the last row and the first one again is taken for an average gap.
    lap_s = rows[-1].at_s * len(rows) / max(1, len(rows) - 1)
    at_s = [row.at_s + lap_s * ((begin + index) // len(rows)) - rows[begin].at_s for index, row in enumerate(taken)]
    scale = for_s / (at_s[-1] * count / max(1, count - 1) or for_s)
    return tuple(
        Planned(
            request_id=f"{prefix}-{index}",
            at_s=scale * at_s[index],
            prompt_tokens=row.prompt_tokens,
            output_tokens=max(1, row.output_tokens),
        )
        for index, row in enumerate(taken)
    )
