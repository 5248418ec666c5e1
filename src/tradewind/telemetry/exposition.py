"""Prometheus text to samples, only the wanted names and one line at a time: a broken line costs itself, not the page.

The whole page is never parsed: at 70 KB a full parse costs more than the agent's budget of 1 % of a core.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Labels = tuple[tuple[str, str], ...]

MAX_LINE_BYTES = 16 * 1024
MAX_SERIES = 4096  # per page, of wanted names; more is counted as bad lines
MAX_REMEMBERED_HEADS = 8192

_LABEL = re.compile(rb'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)')
_HEAD = re.compile(rb'([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?')
_ESCAPES = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of a page. `value` may be NaN or infinite: the reader decides."""

    name: str
    labels: Labels  # sorted by name
    value: float

    def label(self, name: str) -> str | None:
        for key, value in self.labels:
            if key == name:
                return value
        return None


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """The wanted samples by metric name, each series once, whatever the order of lines."""

    samples: Mapping[str, tuple[Sample, ...]]
    bad_lines: int


class PageParser:
    """Parses pages of one peer again and again; remembers what its series look like."""

    def __init__(self, wanted: Iterable[str]) -> None:
        self._wanted = frozenset(name.encode() for name in wanted)
        self._heads: dict[bytes, tuple[str, Labels] | None] = {}

    def parse(self, page: bytes, *, whole: bool = True) -> ParsedPage:
        """Never raises for what a page holds. Of a page that may be cut, the last line counts only if it is ended."""
        lines = page.splitlines()
        if not whole and lines and not page.endswith(b"\n"):
            lines.pop()
        series: dict[tuple[str, Labels], float] = {}
        bad = 0
        wanted = self._wanted
        for line in [line for line in lines if line[: line.find(b"{")] in wanted or line[: line.find(b" ")] in wanted]:
            sample = self._parse_line(line)
            if sample is None or len(series) >= MAX_SERIES:
                bad += 1
            else:
                key = sample.name, sample.labels
                series[key] = _merge(series.get(key), sample.value)
        by_name: dict[str, list[Sample]] = {}
        for (name, labels), value in series.items():
            by_name.setdefault(name, []).append(Sample(name, labels, value))
        return ParsedPage({name: tuple(samples) for name, samples in by_name.items()}, bad)

    def _parse_line(self, line: bytes) -> Sample | None:
        """One sample line, or None if it is not one."""
        if len(line) > MAX_LINE_BYTES:
            return None
        head, brace, tail = line.rpartition(b"}")
        known = self._heads.get(head) if brace else None
        if known is None:
            match = _HEAD.match(line)
            if match is None:
                return None
            known = _parse_head(match[1], match[2])
            if known is None:
                return None
            tail = line[match.end() :]
            if match.end() == len(head) + 1:
                self._remember(head, known)
        value = _parse_value(tail)
        return None if value is None else Sample(known[0], known[1], value)

    def _remember(self, head: bytes, parsed: tuple[str, Labels]) -> None:
        if len(self._heads) >= MAX_REMEMBERED_HEADS:
            self._heads.clear()
        self._heads[head] = parsed


def _parse_head(name: bytes, labels: bytes | None) -> tuple[str, Labels] | None:
    found: list[tuple[str, str]] = []
    position = 0
    text = (labels or b"").strip()
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None:
            return None
        found.append((match[1].decode(), _unescape(match[2].decode("utf-8", "replace"))))
        position = match.end()
    return name.decode(), tuple(sorted(found))


def _unescape(text: str) -> str:
    return _ESCAPES.sub(lambda match: "\n" if match[1] == "n" else match[1], text) if "\\" in text else text


def _parse_value(tail: bytes) -> float | None:
    """The first word after the name; a timestamp or an exemplar may follow. Python's own 1_000 is not a number here."""
    words = tail.split(None, 1)
    if not words or b"_" in words[0]:
        return None
    try:
        return float(words[0])
    except ValueError:
        return None


def _merge(old: float | None, new: float) -> float:
    """The same series twice: the larger finite value, so that the order of lines does not matter."""
    if old is None or not math.isfinite(old):
        return new
    return max(old, new) if math.isfinite(new) else old
