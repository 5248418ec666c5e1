"""Prometheus text to samples, only the wanted names and one line at a time: a broken line costs itself, not the page.

The whole page is never parsed: at 70 KB a full parse costs more than the agent's budget of 1 % of a core.
"""

import codecs
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]

MAX_LINE_BYTES = 16 * 1024
MAX_SERIES = 4096  # per page, of wanted names; more is counted as bad lines
MAX_REMEMBERED_HEADS = 8192
MAX_REMEMBERED_BYTES = 2048  # of one head; vLLM's longest has 1 KB
SHORTER_PAGES_TO_BELIEVE = 3
LAYOUT_PAGES = 30  # a page's layout is trusted for so many pages, then looked at in full again

_LABEL = re.compile(rb'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)')
_HEAD = re.compile(rb'([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?')
_ESCAPES = re.compile(r"\\(.)")


class Series:
    """What a sample's name and labels say; parsed once and shared by every page that has the series."""

    __slots__ = ("_by_name", "bound", "labels", "name", "without_le")

    def __init__(self, name: str, labels: Labels) -> None:
        self.name = name
        self.labels = labels  # sorted by name
        self.without_le = tuple(item for item in labels if item[0] != "le")
        self._by_name = dict(labels)
        self.bound = _bound(
            self._by_name.get("le")
        )  # of a histogram's bucket; None if there is none or it is senseless

    def label(self, name: str) -> str | None:
        return self._by_name.get(name)


class Sample(NamedTuple):
    """One series of a page. `value` may be NaN or infinite: the reader decides."""

    series: Series
    value: float

    def label(self, name: str) -> str | None:
        return self.series.label(name)


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """The wanted samples by metric name, each series once, whatever the order of lines."""

    samples: Mapping[str, tuple[Sample, ...]]
    bad_lines: int
    broken: frozenset[str] = frozenset()  # names of which a line could not be read, or was beyond the bound


class CutWatch:
    """Remembers how many series the pages of one peer have, so that a cut page is known as one."""

    def __init__(self) -> None:
        self._series = 0
        self._shorter_pages = 0

    def is_cut(self, parsed: ParsedPage, *, whole: bool) -> bool:
        """A page whose end is not known and that has fewer series than before, unless that has come to stay."""
        series = sum(len(samples) for samples in parsed.samples.values())
        shorter = not whole and series < self._series
        self._shorter_pages = self._shorter_pages + 1 if shorter else 0
        if shorter and self._shorter_pages < SHORTER_PAGES_TO_BELIEVE:
            return True
        self._series = series
        return False


class _Layout(NamedTuple):
    """Where the wanted series stand on a page. The next page nearly always looks the same but for its values."""

    newlines: int
    places: tuple[tuple[bytes, Series], ...]  # a newline and everything before the value; what that says


class PageParser:
    """Parses pages of one peer again and again; remembers what its series look like and where they stand."""

    def __init__(self, wanted: Iterable[str]) -> None:
        self._wanted = frozenset(name.encode() for name in wanted)
        self._heads: dict[bytes, Series] = {}
        self._layout: _Layout | None = None
        self._layout_uses = 0

    def parse(self, page: bytes, *, whole: bool = True) -> ParsedPage:
        """Never raises for what a page holds. Of a page that may be cut, the last line counts only if it is ended."""
        page = page.removeprefix(codecs.BOM_UTF8)
        if whole and self._layout is not None and self._layout_uses < LAYOUT_PAGES:
            self._layout_uses += 1
            known = _by_layout(page, self._layout)
            if known is not None:
                return known
        return self._parse_fully(page, whole=whole)

    def _parse_fully(self, page: bytes, *, whole: bool) -> ParsedPage:
        lines = _lines(page)
        if not whole and lines and not page.endswith(b"\n"):
            lines.pop()
        wanted = self._wanted
        by_name: dict[str, dict[Labels, Sample]] = {}
        places: list[tuple[bytes, Series]] = []
        broken: set[str] = set()
        bad, count = 0, 0
        numbers = [
            number
            for number, line in enumerate(lines)
            if line[: line.find(b"{")] in wanted or line[: line.find(b" ")] in wanted
        ]
        for number in numbers:
            sample = self._parse_line(lines[number]) if count < MAX_SERIES else None
            if sample is None:
                bad += 1
                broken.add(self._name(lines[number]))
                continue
            count += 1
            family = by_name.setdefault(sample.series.name, {})
            labels = sample.series.labels
            if labels in family:
                family[labels] = _larger(family[labels], sample)
            else:
                family[labels] = sample
                head = self._plain_head(lines[number], sample.series)
                if head is not None:
                    places.append((b"\n" + head, sample.series))
        self._layout = _Layout(page.count(b"\n"), tuple(places)) if len(places) == len(numbers) else None
        self._layout_uses = 0
        samples = {name: tuple(family.values()) for name, family in by_name.items()}
        return ParsedPage(samples, bad, frozenset(broken))

    def _name(self, line: bytes) -> str:
        """The wanted name that a line begins with."""
        name = line[: line.find(b"{")]
        return (name if name in self._wanted else line[: line.find(b" ")]).decode()

    def _parse_line(self, line: bytes) -> Sample | None:
        """One sample line, or None if it is not one."""
        if len(line) > MAX_LINE_BYTES:
            return None
        head, brace, tail = line.rpartition(b"}")
        series = self._heads.get(head) if brace else None
        if series is None:
            match = _HEAD.match(line)
            if match is None:
                return None
            series = _parse_head(match[1], match[2])
            if series is None:
                return None
            tail = line[match.end() :]
            if match.end() == len(head) + 1:
                self._remember(head, series)
        value = _parse_value(tail)
        return None if value is None else Sample(series, value)

    def _plain_head(self, line: bytes, series: Series) -> bytes | None:
        """Everything before the value, if nothing follows it: no timestamp, no exemplar."""
        key, brace, _ = line.rpartition(b"}")
        if brace and self._heads.get(key) is not series:
            return None
        head = key + b"} " if brace else series.name.encode() + b" "
        return head if line.startswith(head) and b" " not in line[len(head) :] else None

    def _remember(self, head: bytes, series: Series) -> None:
        if len(head) > MAX_REMEMBERED_BYTES:
            return
        if len(self._heads) >= MAX_REMEMBERED_HEADS:
            self._heads.clear()
        self._heads[head] = series


def _lines(page: bytes) -> list[bytes]:
    """Tabs are blanks, and blanks before a name are nothing; hardly any exporter writes either."""
    text = page.replace(b"\t", b" ") if b"\t" in page else page
    lines = text.splitlines()
    return [line.lstrip(b" ") for line in lines] if b"\n " in text or text.startswith(b" ") else lines


def _by_layout(page: bytes, layout: _Layout) -> ParsedPage | None:
    """The page read at the places of an earlier one, without making a line of each line; None if any is not there."""
    if page.count(b"\n") != layout.newlines:
        return None
    text = b"\n" + page
    by_name: dict[str, list[Sample]] = {}
    position = 0
    for head, series in layout.places:
        found = text.find(head, position)
        if found < 0:
            return None
        start = found + len(head)
        position = text.find(b"\n", start)
        if position < 0:
            position = len(text)
        value = _parse_number(text[start:position])
        if value is None:
            return None
        by_name.setdefault(series.name, []).append(Sample(series, value))
    return ParsedPage({name: tuple(samples) for name, samples in by_name.items()}, 0)


def _bound(text: str | None) -> float | None:
    try:
        bound = float(text or "")
    except ValueError:
        return None
    return None if math.isnan(bound) or bound == -math.inf else bound


def _parse_head(name: bytes, labels: bytes | None) -> Series | None:
    found: list[tuple[str, str]] = []
    position = 0
    text = (labels or b"").strip()
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None:
            return None
        found.append((match[1].decode(), _unescape(match[2].decode("utf-8", "replace"))))
        position = match.end()
    return Series(name.decode(), tuple(sorted(found)))


def _unescape(text: str) -> str:
    return _ESCAPES.sub(lambda match: "\n" if match[1] == "n" else match[1], text) if "\\" in text else text


def _parse_value(tail: bytes) -> float | None:
    """The first word after the name; a timestamp or an exemplar may follow."""
    words = tail.split(None, 1)
    return _parse_number(words[0]) if words else None


def _parse_number(word: bytes) -> float | None:
    """Python's own 1_000 is not a number here."""
    if b"_" in word:
        return None
    try:
        return float(word)
    except ValueError:
        return None


def _larger(one: Sample, other: Sample) -> Sample:
    """The same series twice: the larger finite value, so that the order of lines does not matter."""
    if not math.isfinite(one.value):
        return other
    return max(one, other, key=lambda sample: sample.value) if math.isfinite(other.value) else one
