"""Prometheus text, line by line."""

import math
import tracemalloc

import pytest

from tradewind.telemetry.exposition import LAYOUT_PAGES, MAX_LINE_BYTES, MAX_SERIES, PageParser, ParsedPage, Sample

PARSER_NAMES = ("up", "load", "kv:usage")


def values(page: str | bytes, *, whole: bool = True) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    raw = page.encode() if isinstance(page, str) else page
    parsed = PageParser(PARSER_NAMES).parse(raw, whole=whole)
    return {
        (name, sample.series.labels): sample.value for name, samples in parsed.samples.items() for sample in samples
    }


def bad_lines(page: str) -> int:
    return PageParser(PARSER_NAMES).parse(page.encode()).bad_lines


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ("up 3", (), 3.0),
        ("up 3 1712345678901", (), 3.0),
        ("up\t3\t1712345678901", (), 3.0),
        ('up{a="b"}\t3', (("a", "b"),), 3.0),
        ("\tup 3", (), 3.0),
        ("  up 3", (), 3.0),
        ("up   3.5  ", (), 3.5),
        ("up 3\r", (), 3.0),
        ("up +Inf", (), math.inf),
        ('up{a="b"} 1e3', (("a", "b"),), 1000.0),
        ('up{ a = "b" , c="d",} 2', (("a", "b"), ("c", "d")), 2.0),
        ('up{c="d",a="b"} 2', (("a", "b"), ("c", "d")), 2.0),
        ('up {a="b"} 2', (("a", "b"),), 2.0),
        ('up{a="b"} 2 # {trace_id="x}y"} 0.5 1.2', (("a", "b"),), 2.0),
        ('up{a="x\\"b,c}d"} 4', (("a", 'x"b,c}d'),), 4.0),
        ('up{a="line\\nbreak \\\\ end"} 4', (("a", "line\nbreak \\ end"),), 4.0),
        ('up{a=""} 4', (("a", ""),), 4.0),
        ("up{} 4", (), 4.0),
    ],
)
def test_good_lines(line: str, labels: tuple[tuple[str, str], ...], value: float) -> None:
    parser = PageParser(PARSER_NAMES)
    for _ in range(2):
        parsed = parser.parse(f"{line}\nload 1\n".encode())
        assert _plain(parsed) == {"up": [(labels, value)], "load": [((), 1.0)]}
        assert parsed.bad_lines == 0


@pytest.mark.parametrize(
    "line",
    [
        "up 1_000",
        "up 0x10",
        "up",
        "up ",
        "up{",
        'up{a="b} 3',
        'up{a="b"',
        'up{a="b"}',
        'up{a="b",c} 3',
        'up{a="a"b,c}d"} 3',
        "up{a=b} 3",
        "up NaNa",
        'up{a="' + "x" * MAX_LINE_BYTES + '"} 1',
    ],
)
def test_a_broken_line_costs_only_itself(line: str) -> None:
    page = f'load 1\n{line}\nload{{x="y"}} 2\n'
    assert values(page) == {("load", ()): 1.0, ("load", (("x", "y"),)): 2.0}


def test_broken_lines_are_counted_and_unwanted_ones_are_not_even_read() -> None:
    assert bad_lines('up 1_000\nload{ 3\nother{" 1\n<html>\n') == 2


def test_duplicates_give_the_larger_finite_value_whatever_the_order() -> None:
    lines = ['up{a="b"} 1', 'up{a="b"} 7', 'up{a="b"} NaN', 'up{a="b"} +Inf']
    for order in (lines, lines[::-1], [lines[3], lines[0], lines[2], lines[1]]):
        assert values("\n".join(order)) == {("up", (("a", "b"),)): 7.0}


def test_a_last_line_without_its_end_counts_only_on_a_page_known_to_be_whole() -> None:
    assert values("load 1\nup 12") == {("load", ()): 1.0, ("up", ()): 12.0}
    assert values("load 1\nup 12", whole=False) == {("load", ()): 1.0}
    assert values("load 1\nup 12\n", whole=False) == {("load", ()): 1.0, ("up", ()): 12.0}


def test_the_number_of_series_is_bounded() -> None:
    page = "".join(f'up{{n="{number}"}} 1\n' for number in range(MAX_SERIES + 5))
    parsed = PageParser(PARSER_NAMES).parse(page.encode())
    assert len(parsed.samples["up"]) == MAX_SERIES
    assert parsed.bad_lines == 5


def test_bytes_that_are_not_text_do_no_harm() -> None:
    assert values(b'\xff\xfe\x00up 1\nup{a="\xff"} 2\nload 3\n') == {
        ("up", (("a", "\ufffd"),)): 2.0,
        ("load", ()): 3.0,
    }


def test_a_byte_order_mark_costs_no_line() -> None:
    parser = PageParser(PARSER_NAMES)
    for value in (1.0, 2.0):
        parsed = parser.parse(b"\xef\xbb\xbfup %.0f\nload 3\n" % value)
        assert _plain(parsed) == {"up": [((), value)], "load": [((), 3.0)]}
        assert parsed.bad_lines == 0


def test_names_with_a_line_that_cannot_be_read_are_told() -> None:
    parser = PageParser(PARSER_NAMES)
    page = b'up{a="b"} 1\nup{a="c} 2\nload 1_0\nkv:usage 1\nother{ 2\n'
    for _ in range(2):
        assert parser.parse(page).broken == {"up", "load"}
    assert parser.parse(page.replace(b'"c}', b'"c"}').replace(b"1_0", b"10")).broken == frozenset()
    many = "".join(f'up{{n="{number}"}} 1\n' for number in range(MAX_SERIES + 1)) + "load 3\n"
    assert parser.parse(many.encode()).broken == {"up", "load"}, "what is beyond the bound is missing"


def test_a_page_of_nothing_but_series_takes_no_longer_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = [0]
    real = PageParser._parse_line

    def counting(parser: PageParser, line: bytes) -> Sample | None:
        parsed[0] += 1
        return real(parser, line)

    monkeypatch.setattr(PageParser, "_parse_line", counting)
    page = "".join(f'up{{n="{number}"}} 1\n' for number in range(10 * MAX_SERIES))
    assert PageParser(PARSER_NAMES).parse(page.encode()).bad_lines == 9 * MAX_SERIES
    assert parsed[0] == MAX_SERIES


def test_a_peer_whose_labels_are_long_and_never_the_same_fills_no_memory() -> None:
    parser = PageParser(PARSER_NAMES)
    tracemalloc.start()
    for number in range(40):
        page = "".join(f'up{{a="{number}-{line}-{"x" * 15_000}"}} 1\n' for line in range(50))
        assert len(parser.parse(page.encode()).samples["up"]) == 50
    held_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held_bytes < 8 * 2**20, "of 30 MB of labels"


def test_a_page_read_twice_gives_the_same_values_again() -> None:
    parser = PageParser(PARSER_NAMES)
    first = parser.parse(b'up{a="b"} 1\n').samples["up"][0]
    second = parser.parse(b'up{a="b"} 2 # {x="}"} 9\n').samples["up"][0]
    third = parser.parse(b'up{a="b"} 3\n').samples["up"][0]
    assert (first.value, second.value, third.value) == (1.0, 2.0, 3.0)
    assert first.series is third.series


def test_a_page_of_the_same_layout_is_read_as_if_it_were_new() -> None:
    lines = [
        'up{a="b"} 1',
        "load 2 1700000000",
        "# HELP x",
        'up{a="c"} 3 # {t="}"} 9',
        "other 5",
        'kv:usage{d="e"} 0.5',
    ]
    parser = PageParser(PARSER_NAMES)
    pages = [
        lines,
        [line.replace(" 0.5", " 0.75") for line in lines],
        ['up{a="b"} 1_0', *lines[1:]],
        ['up{a="b"} 8 1700000000', *lines[1:]],
        ['up{a="b"} 8 # {t="x"} 7', *lines[1:]],
        ["load 4", "up 7", *lines[2:]],
        lines[:-1],
        [*lines[:4], "load 6", lines[5]],
        *[lines] * 40,
    ]
    for page in pages:
        text = "\n".join(page).encode()
        again, fresh = parser.parse(text), PageParser(PARSER_NAMES).parse(text)
        assert again.bad_lines == fresh.bad_lines
        assert _plain(again) == _plain(fresh), page


def test_a_wanted_line_in_the_place_of_an_unwanted_one_is_found_within_some_pages() -> None:
    parser = PageParser(PARSER_NAMES)
    parser.parse(b"up 1\nother 2\n")
    found = [parser.parse(b"up 1\nload 2\n").samples.keys() for _ in range(LAYOUT_PAGES + 1)]
    assert found[-1] == {"up", "load"}


def _plain(parsed: ParsedPage) -> dict[str, list[tuple[object, float]]]:
    return {
        name: sorted((sample.series.labels, sample.value) for sample in samples)
        for name, samples in parsed.samples.items()
    }
