"""Whatever a page holds, a reader never raises and never makes a number up."""

import itertools
import math
from dataclasses import fields
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.model.telemetry import EngineReading, GpuReading, Histogram
from tradewind.telemetry.dcgm import DcgmReader
from tradewind.telemetry.engine_metrics import EngineReader
from tradewind.telemetry.exposition import PageParser

DATA = Path(__file__).parents[2] / "golden" / "data"
ENGINE_LINES = (DATA / "vllm_versions" / "vllm_0.32.0_metrics_under_load.txt").read_bytes().splitlines()
ENGINE_LINES = [
    line for line in ENGINE_LINES if b"num_requests" in line or b"kv_cache" in line or b"time_to_first" in line
]
GPU_LINES = (DATA / "dcgm" / "SYNTHETIC_dcgm_exporter_le_4.8.2.prom").read_bytes().splitlines()

numbers = st.one_of(
    st.floats().map(lambda value: repr(value).encode()),
    st.sampled_from(
        [b"NaN", b"+Inf", b"-Inf", b"1e308", b"-1", b"37.5", b"9223372036854775794", b"1_000", b"0x10", b""]
    ),
)


@st.composite
def pages(draw: st.DrawFn, lines: list[bytes]) -> bytes:
    """Lines of a real page, some with another value, some cut, some doubled, in any order, with rubbish between."""
    chosen = draw(st.lists(st.sampled_from(lines), max_size=30))
    made = []
    for line in chosen:
        kind = draw(st.integers(0, 4))
        if kind == 0:
            line = line.rpartition(b" ")[0] + b" " + draw(numbers)
        elif kind == 1:
            line = line[: draw(st.integers(0, len(line)))]
        elif kind == 2:
            line = line.replace(b'="', draw(st.sampled_from([b'="x\\"', b"=", b'="\xff'])), 1)
        made.append(line)
    made += draw(st.lists(st.binary(max_size=40), max_size=3))
    return draw(st.sampled_from([b"\n", b"\r\n"])).join(draw(st.permutations(made)))


def is_sound(signal: str, value: object) -> bool:
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, Histogram):
        counts = value.counts
        return len(counts) == len(value.bounds) + 1 and all(a <= b for a, b in itertools.pairwise(counts))
    assert isinstance(value, int | float)
    return math.isfinite(value) and value >= 0 and (not signal.endswith("_ratio") or value <= 1)


@settings(max_examples=150, deadline=None)
@given(pages(ENGINE_LINES), st.booleans())
def test_any_engine_page_reads_as_sound_values_or_unknown(page: bytes, whole: bool) -> None:
    reader = EngineReader()
    for _ in range(2):
        reading = reader.read(page, served=("tiny",), whole=whole).reading
        for field in fields(EngineReading):
            assert is_sound(field.name, getattr(reading, field.name)), field.name


sizes = st.one_of(
    st.integers(1, 1 << 20).map(str),
    st.integers(10**14, 10**18).map(str),
    st.sampled_from(["None", "auto", "0", "-1", "1e9", "9" * 5000]),
)
labels = st.dictionaries(st.sampled_from(["block_size", "num_gpu_blocks", "kv_cache_size_tokens"]), sizes)


@settings(max_examples=150, deadline=None)
@given(st.lists(labels, max_size=4), numbers)
def test_any_size_that_a_page_tells_of_fits_into_a_heartbeat(ranks: list[dict[str, str]], number: bytes) -> None:
    vllm = ""
    for rank, sizes in enumerate(ranks):
        told = "".join(f',{name}="{size}"' for name, size in sizes.items())
        vllm += f'vllm:cache_config_info{{engine="{rank}"{told}}} 1\n'
    for page in (
        "vllm:num_requests_waiting 1\n" + vllm,
        f"sglang:num_queue_reqs 1\nsglang:page_size {number.decode()}\nsglang:max_total_num_tokens {number.decode()}\n",
    ):
        scrape = EngineReader().read(page.encode())
        for size in (scrape.kv_capacity_tokens, scrape.block_size_tokens):
            assert size is None or 0 < size <= 1 << 40


@settings(max_examples=150, deadline=None)
@given(st.lists(pages(GPU_LINES), min_size=1, max_size=3))
def test_any_gpu_page_reads_as_sound_values_or_unknown(several: list[bytes]) -> None:
    reader = DcgmReader()
    for page in several:
        reading = reader.read(page).reading
        if reading is not None:
            assert reading.gpus > 0
            for field in fields(GpuReading):
                assert is_sound(field.name, getattr(reading, field.name)), field.name


NAMES = {line.partition(b"{")[0].decode() for line in ENGINE_LINES if not line.startswith(b"#")}


def values_of(parser: PageParser, page: bytes) -> dict[object, str]:
    parsed = parser.parse(page)
    return {
        (*sample.series.labels, (name, "")): repr(sample.value)
        for name in parsed.samples
        for sample in parsed.samples[name]
    }


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(ENGINE_LINES), unique=True), st.data())
def test_the_same_series_with_other_values_are_read_as_by_a_new_parser(lines: list[bytes], data: st.DataObject) -> None:
    veteran = PageParser(NAMES)
    for _ in range(3):
        page = b"\n".join(line.rpartition(b" ")[0] + b" " + data.draw(numbers) for line in lines)
        assert values_of(veteran, page) == values_of(PageParser(NAMES), page)


@settings(max_examples=150, deadline=None)
@given(st.lists(pages(ENGINE_LINES), min_size=2, max_size=4))
def test_a_parser_that_knows_another_layout_finds_no_series_that_is_not_there(several: list[bytes]) -> None:
    veteran = PageParser(NAMES)
    for page in several:
        assert values_of(veteran, page).keys() <= values_of(PageParser(NAMES), page).keys()
