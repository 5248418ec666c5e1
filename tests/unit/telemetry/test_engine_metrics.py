"""Engine pages of all kinds and versions, good and bad."""

import random
from dataclasses import fields
from pathlib import Path

import pytest

from tradewind.model.telemetry import EngineReading
from tradewind.telemetry.engine_metrics import EngineReader, EngineScrape
from tradewind.telemetry.engine_names import COMMON_RULES, SGLANG, TABLES, VLLM, full_names

DATA = Path(__file__).parents[2] / "golden" / "data"
CAPTURE = (DATA / "vllm_versions" / "vllm_0.32.0_metrics_under_load.txt").read_bytes()

TTFT_BOUNDS = (0.05, 0.1, 0.5, 1.0)


def read(page: str | bytes, *, served: tuple[str, ...] = ("m",), whole: bool = True) -> EngineScrape:
    raw = page.encode() if isinstance(page, str) else page
    return EngineReader().read(raw, served=served, whole=whole)


def reason(scrape: EngineScrape, signal: str) -> str:
    return next(entry.reason for entry in scrape.unknown if entry.signal == signal)


def histogram(name: str, counts: tuple[float, ...], labels: str = 'engine="0",model_name="m"') -> str:
    bounds = (*(str(bound) for bound in TTFT_BOUNDS), "+Inf")
    lines = [f'{name}_bucket{{{labels},le="{bound}"}} {count}' for bound, count in zip(bounds, counts, strict=True)]
    return "\n".join([*lines, f"{name}_count{{{labels}}} {counts[-1]}", f"{name}_sum{{{labels}}} {counts[-1] / 2}", ""])


def dp_page(*, swapped: bool = False) -> str:
    lines = [
        'vllm:num_requests_waiting{engine="0",model_name="m"} 40',
        'vllm:num_requests_waiting{engine="1",model_name="m"} 1',
        'vllm:num_requests_running{engine="0",model_name="m"} 3',
        'vllm:num_requests_running{engine="1",model_name="m"} 2',
        'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.95',
        'vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.05',
        'vllm:generation_tokens_total{engine="0",model_name="m"} 100',
        'vllm:generation_tokens_total{engine="1",model_name="m"} 1',
        'vllm:num_requests_waiting{engine="0",model_name="other"} 1000',
        'vllm:kv_cache_usage_perc{engine="0",model_name="other"} 1',
    ]
    for engine, counts in (("0", (0, 1, 1, 2, 2)), ("1", (5, 5, 6, 6, 9))):
        labels = f'engine="{engine}",model_name="m"'
        lines += histogram("vllm:time_to_first_token_seconds", counts, labels).splitlines()
    return "\n".join(reversed(lines) if swapped else lines) + "\n"


# FC-31: names across versions


def version_pages() -> list[tuple[str, str]]:
    """A page per vLLM version, made of the names that version really has."""
    header, *rows = (DATA / "vllm_versions" / "vllm_metric_names_by_version.tsv").read_text().splitlines()
    versions = header.split("\t")[1:]
    wanted = {
        "vllm:num_requests_waiting": "7",
        "vllm:num_requests_running": "3",
        "vllm:gpu_cache_usage_perc": "0.9",
        "vllm:kv_cache_usage_perc": "0.9",
        "vllm:prompt_tokens": "1000",
        "vllm:generation_tokens": "500",
        "vllm:gpu_prefix_cache_queries": "1000",
        "vllm:gpu_prefix_cache_hits": "400",
        "vllm:prefix_cache_queries": "1000",
        "vllm:prefix_cache_hits": "400",
    }
    pages = []
    for column, version in enumerate(versions, start=1):
        names = {cells[0] for row in rows if len(cells := row.split("\t")) > column and cells[column] == "x"}
        label = 'model_name="m"' if "V0" in version else 'engine="0",model_name="m"'
        lines = []
        for name in sorted(names):
            value = wanted.get(name.removesuffix("_total"), "")
            total = name if name.endswith("_total") or "requests" in name or "perc" in name else name + "_total"
            if value:
                lines.append(f"{total}{{{label}}} {value}")
            if name in ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"):
                lines += histogram(name, (1, 2, 3, 4, 5), label).splitlines()
        pages.append((version, "\n".join(lines) + "\n"))
    return pages


@pytest.mark.parametrize(("version", "page"), version_pages())
def test_fc_31_the_same_state_reads_the_same_in_every_vllm_version(version: str, page: str) -> None:
    scrape = read(page)
    reading = scrape.reading
    assert scrape.kind == "vllm", version
    assert (reading.queue_requests, reading.running_requests) == (7.0, 3.0)
    assert (reading.kv_fill_ratio, reading.kv_fill_max_ratio) == (0.9, 0.9)
    assert (reading.prompt_tokens_total, reading.generation_tokens_total) == (1000.0, 500.0)
    assert reading.itl_s is not None
    assert list(reading.itl_s.counts) == [1, 2, 3, 4, 5]
    if "V1" in version:
        assert reading.prefix_hit_tokens_total == 400.0
        assert reading.prompt_computed_tokens_total == 600.0
    else:
        assert reading.prefix_hit_tokens_total is None, "V0 has a rate gauge only"


@pytest.mark.parametrize("prefix", ["sglang:", "sglang_"])
def test_fc_31_sglang_reads_the_same_with_both_prefixes(prefix: str) -> None:
    page = f'{prefix}token_usage{{model_name="m"}} 0.9\n{prefix}num_queue_reqs{{model_name="m"}} 7\n'
    scrape = read(page + f'{prefix}num_running_reqs{{model_name="m"}} 3\n')
    assert scrape.kind == "sglang"
    assert scrape.reading.kv_fill_ratio == 0.9
    assert (scrape.reading.queue_requests, scrape.reading.running_requests) == (7.0, 3.0)


def test_fc_31_no_alias_is_unknown_and_never_zero() -> None:
    scrape = read('vllm:num_requests_running{model_name="m"} 3\nvllm:some_new_cache_name{model_name="m"} 0.9\n')
    assert scrape.reading.kv_fill_ratio is None
    assert scrape.reading.queue_requests is None
    assert "vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc" in reason(scrape, "kv_fill_ratio")
    stranger = read("other:metric 1\n")
    assert stranger.kind is None
    assert stranger.reading == EngineReading()


def test_fc_31_both_names_on_a_page_are_read_once() -> None:
    page = 'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.4\nvllm:gpu_cache_usage_perc{model_name="m"} 0.9\n'
    scrape = read(page)
    assert scrape.reading.kv_fill_ratio == 0.4
    assert dict(scrape.sources)["kv_fill_ratio"] == "vllm:kv_cache_usage_perc"
    broken = read(page.replace("0.4", "NaN"))
    assert broken.reading.kv_fill_ratio == 0.9, "an unusable alias does not hide a usable one"


# FC-32: several engine ranks


@pytest.mark.parametrize("swapped", [False, True])
def test_fc_32_ranks_are_summed_and_other_models_left_out(swapped: bool) -> None:
    reading = read(dp_page(swapped=swapped)).reading
    assert (reading.queue_requests, reading.running_requests) == (41.0, 5.0)
    assert reading.kv_fill_ratio == pytest.approx(0.5)
    assert reading.kv_fill_max_ratio == 0.95
    assert reading.generation_tokens_total == 101.0
    assert reading.ttft_s is not None
    assert reading.ttft_s.bounds == TTFT_BOUNDS
    assert list(reading.ttft_s.counts) == [5, 6, 7, 8, 11]
    assert reading.ttft_s.total == 5.5


def test_fc_32_a_gauge_that_lacks_a_rank_is_unknown() -> None:
    page = dp_page().replace('vllm:num_requests_waiting{engine="1",model_name="m"} 1\n', "")
    scrape = read(page)
    assert scrape.reading.queue_requests is None
    assert "1 of 2 engine ranks" in reason(scrape, "queue_requests")
    assert scrape.reading.running_requests == 5.0


def test_fc_32_of_several_models_none_is_taken_without_knowing_which_is_served() -> None:
    assert read(dp_page(), served=()).reading.queue_requests is None
    assert read(dp_page(), served=("third",)).reading.queue_requests is None
    assert read(dp_page(), served=("alias", "other")).reading.queue_requests == 1000.0


def test_one_model_on_the_page_is_the_engines_own_whatever_it_is_called() -> None:
    assert read('vllm:num_requests_waiting{model_name="/path/to/m"} 2\n').reading.queue_requests == 2.0


def test_fc_32_tensor_parallel_ranks_of_sglang_are_not_summed() -> None:
    ranks = [(dp, tp) for dp in "01" for tp in "0123"]
    lines = [
        f'sglang:num_queue_reqs{{dp_rank="{dp}",engine_type="unified",model_name="m",tp_rank="{tp}"}} {4 + int(dp)}'
        for dp, tp in ranks
    ]
    lines += [f'sglang:token_usage{{dp_rank="{dp}",model_name="m",tp_rank="{tp}"}} 0.{2 + int(dp)}' for dp, tp in ranks]
    lines += [f'sglang:max_total_num_tokens{{dp_rank="{dp}",model_name="m",tp_rank="{tp}"}} 1000' for dp, tp in ranks]
    lines.append('sglang:page_size{model_name="m"} 16')
    scrape = read("\n".join(lines))
    assert scrape.reading.queue_requests == 9.0
    assert scrape.reading.kv_fill_ratio == pytest.approx(0.25)
    assert scrape.reading.kv_fill_max_ratio == 0.3
    assert (scrape.kv_capacity_tokens, scrape.block_size_tokens) == (2000, 16)


def test_sglangs_requests_by_priority_are_not_added_to_their_total() -> None:
    page = "".join(
        f'sglang:{name}{{dp_rank="{dp}",model_name="m",priority="{priority}",tp_rank="0"}} {count}\n'
        for name in ("num_queue_reqs", "num_running_reqs")
        for dp in "01"
        for priority, count in (("", 7), ("1", 5), ("None", 2))
    )
    reading = read(page).reading
    assert (reading.queue_requests, reading.running_requests) == (14.0, 14.0)
    without_total = read(page.replace('priority=""', 'priority="9"')).reading
    assert without_total.queue_requests == 28.0, "no total on the page: the parts are all there is"


def test_series_with_and_without_a_rank_are_not_added_up() -> None:
    page = 'vllm:num_requests_waiting{model_name="m"} 3\nvllm:num_requests_waiting{engine="0",model_name="m"} 3\n'
    scrape = read(page + 'vllm:num_requests_running{engine="0",model_name="m"} 1\n')
    assert scrape.reading.queue_requests is None
    assert reason(scrape, "queue_requests") == "vllm:num_requests_waiting has series with and without engine"
    assert scrape.reading.running_requests == 1.0


def test_tokens_computed_never_fall_while_the_engine_lives() -> None:
    """Hits are counted when a request is scheduled, its prompt when it is through: the difference dips."""
    reader = EngineReader()

    def computed(prompt: float, hits: float) -> float | None:
        page = f"vllm:prompt_tokens_total {prompt}\nvllm:prefix_cache_hits_total {hits}\n"
        return reader.read(page.encode()).reading.prompt_computed_tokens_total

    assert [computed(1000, 200), computed(1000, 900), computed(1000, 900), computed(2500, 900)] == [800, 800, 800, 1600]
    assert computed(50, 10) == 40, "another process"


def test_sglang_histograms_of_replicas_count_once_and_of_both_streaming_kinds_add_up() -> None:
    name = "sglang:time_to_first_token_seconds"
    page = ""
    for tp in "01":
        for streaming, counts in (("true", (1, 2, 3, 4, 5)), ("false", (0, 0, 1, 1, 1))):
            page += histogram(name, counts, f'is_streaming="{streaming}",model_name="m",tp_rank="{tp}"')
    merged = read(page).reading.ttft_s
    assert merged is not None
    assert merged.counts == (1, 2, 4, 5, 6)


# FC-33: what pages may hold


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("NaN", "is NaN"),
        ("+Inf", "outside 0..1"),
        ("-Inf", "outside 0..1"),
        ("-1", "outside 0..1"),
        ("1e308", "outside 0..1"),
        ("37.5", "is 37.5, outside 0..1"),
    ],
)
def test_fc_33_impossible_ratios_are_unknown(value: str, why: str) -> None:
    scrape = read(f'vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {value}\nvllm:num_requests_waiting 3\n')
    assert scrape.reading.kv_fill_ratio is None
    assert scrape.reading.kv_fill_max_ratio is None
    assert why in reason(scrape, "kv_fill_ratio")
    assert scrape.reading.queue_requests == 3.0


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e308"])
def test_fc_33_impossible_counts_are_unknown(value: str) -> None:
    page = f"vllm:num_requests_waiting {value}\nvllm:generation_tokens_total {value}\nvllm:num_requests_running 2\n"
    reading = read(page).reading
    assert reading.queue_requests is None
    assert reading.generation_tokens_total is None
    assert reading.running_requests == 2.0


def test_a_rounded_ratio_is_clipped() -> None:
    assert read('vllm:kv_cache_usage_perc{engine="0"} 1.003\n').reading.kv_fill_ratio == 1.0


@pytest.mark.parametrize("page", ["", "\n\n", "<html>502 Bad Gateway</html>", "{}", "\x00" * 100, "# EOF\n"])
def test_fc_33_pages_that_are_none(page: str) -> None:
    scrape = read(page)
    assert scrape.kind is None
    assert scrape.reading == EngineReading()
    assert scrape.unknown[0].signal == "engine"


@pytest.mark.parametrize("swapped", [False, True])
def test_fc_33_a_page_cut_at_any_byte_gives_true_values_or_unknown(*, swapped: bool) -> None:
    page = dp_page(swapped=swapped).encode()
    assert len(page) > 1500
    reader = EngineReader()
    for end in range(len(page)):
        true = reader.read(page, served=("m",)).reading
        cut = reader.read(page[:end], served=("m",), whole=False).reading
        for field in fields(EngineReading):
            assert getattr(cut, field.name) in (None, getattr(true, field.name)), (end, field.name)


def test_an_engine_whose_page_has_become_shorter_is_believed_the_third_time() -> None:
    reader = EngineReader()
    reader.read(dp_page().encode(), served=("m",))
    short = b'vllm:num_requests_waiting{engine="0",model_name="m"} 4\n'
    queues = [reader.read(short, whole=False).reading.queue_requests for _ in range(4)]
    assert queues == [None, None, 4.0, 4.0]


def test_fc_33_a_cut_line_in_the_middle_costs_one_signal() -> None:
    cut = dp_page().replace(
        'vllm:num_requests_waiting{engine="1",model_name="m"} 1', 'vllm:num_requests_waiting{engine="1",mod'
    )
    reading = read(cut).reading
    assert reading.queue_requests is None
    assert reading.kv_fill_max_ratio == 0.95
    assert reading.ttft_s is not None


@pytest.mark.parametrize(
    ("line", "signal"),
    [
        ('vllm:request_success_total{finished_reason="stop",model_name="m"} 900', "finished_total"),
        ('vllm:num_requests_waiting{engine="1",model_name="m"} 1', "queue_requests"),
        ('vllm:time_to_first_token_seconds_bucket{engine="1",model_name="m",le="0.5"} 6', "ttft_s"),
    ],
)
def test_fc_33_a_sum_that_lacks_a_broken_line_is_unknown(line: str, signal: str) -> None:
    page = dp_page() + "".join(
        f'vllm:request_success_total{{finished_reason="{why}",model_name="m"}} {count}\n'
        for why, count in (("stop", 900), ("length", 7))
    )
    assert line in page
    assert getattr(read(page).reading, signal) is not None
    broken = read(page.replace(line, line.replace('="m"', '="m')))
    assert getattr(broken.reading, signal) is None, "less than before would look like a restart"
    assert reason(broken, signal) == f"a line of {line.partition('{')[0]} cannot be read"
    assert broken.reading.running_requests == 5.0


def test_fc_33_openmetrics_text_and_hostile_labels() -> None:
    page = (
        "# TYPE vllm:generation_tokens counter\n"
        'vllm:generation_tokens_total{model_name="a\\"b,c}d"} 5 # {t="1"} 1 1.0\n'
        'vllm:num_requests_waiting{model_name="a\\"b,c}d"} 2\n# EOF\n'
    )
    scrape = read(page, served=('a"b,c}d',))
    assert scrape.reading.generation_tokens_total == 5.0
    assert scrape.reading.queue_requests == 2.0


# FC-35: buckets


def ttft_of(lines: str) -> tuple[tuple[float, ...], tuple[float, ...]] | str:
    scrape = read('vllm:num_requests_waiting{model_name="m"} 0\n' + lines)
    merged = scrape.reading.ttft_s
    return reason(scrape, "ttft_s") if merged is None else (merged.bounds, merged.counts)


NAME = "vllm:time_to_first_token_seconds"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (f'{NAME}_bucket{{le="1"}} 2\n{NAME}_bucket{{le="+Inf"}} 3\n', ((1.0,), (2.0, 3.0))),
        (
            f'{NAME}_bucket{{le="+Inf"}} 3\n{NAME}_bucket{{le="5"}} 2\n{NAME}_bucket{{le="1.0"}} 1\n',
            ((1.0, 5.0), (1, 2, 3)),
        ),
        (
            f'{NAME}_bucket{{le="1"}} 2\n{NAME}_bucket{{le="1.0"}} 2\n{NAME}_bucket{{le="+Inf"}} 3\n',
            ((1.0,), (2.0, 3.0)),
        ),
        (f'{NAME}_bucket{{le="1"}} 2\n{NAME}_count 3\n', ((1.0,), (2.0, 3.0))),
        (f'{NAME}_bucket{{le="1"}} 0\n{NAME}_bucket{{le="+Inf"}} 9\n', ((1.0,), (0.0, 9.0))),
        (f'{NAME}_bucket{{le="1"}} 2\n', "the +Inf bucket is missing"),
        (f'{NAME}_bucket{{le="1"}} 4\n{NAME}_bucket{{le="+Inf"}} 3\n', "not cumulative"),
        (f'{NAME}_bucket{{le="1"}} -1\n{NAME}_bucket{{le="+Inf"}} 3\n', "a bucket holds -1"),
        (f'{NAME}_bucket{{le="1"}} NaN\n{NAME}_bucket{{le="+Inf"}} 3\n', "a bucket holds nan"),
        (f'{NAME}_bucket{{le="soon"}} 1\n{NAME}_bucket{{le="+Inf"}} 3\n', "without a bound"),
        (f"{NAME}_bucket 1\n", "without a bound"),
        (f'{NAME}_bucket{{le="+Inf"}} 3\n', "no bucket bound in common"),
        (
            "".join(
                f'{NAME}_bucket{{engine="{engine}",le="{low}"}} {engine}\n'
                f'{NAME}_bucket{{engine="{engine}",le="2.0"}} 2\n'
                f'{NAME}_count{{engine="{engine}"}} 3\n'
                for engine, low in ((0, 1), (1, 0.5))
            ),
            ((2.0,), (4.0, 6.0)),
        ),
    ],
)
def test_fc_35_bucket_pages(lines: str, expected: tuple[tuple[float, ...], tuple[float, ...]] | str) -> None:
    found = ttft_of(lines)
    if isinstance(expected, str):
        assert isinstance(found, str)
        assert expected in found
    else:
        assert found == expected


def test_the_order_of_lines_never_matters() -> None:
    lines = CAPTURE.decode().splitlines()
    expected = read(CAPTURE, served=("tiny",))
    for seed in range(5):
        random.Random(seed).shuffle(lines)
        shuffled = read("\n".join(lines), served=("tiny",))
        assert shuffled.reading == expected.reading


# The real page


def test_the_captured_page_is_read_in_full() -> None:
    scrape = read(CAPTURE, served=("tiny", "tiny-alias"))
    reading = scrape.reading
    assert scrape.unknown == ()
    assert scrape.bad_lines == 0
    assert (reading.queue_requests, reading.running_requests) == (8.0, 4.0)
    assert reading.kv_fill_ratio == pytest.approx(0.015655577)
    assert (reading.prompt_tokens_total, reading.prompt_computed_tokens_total) == (40605.0, 40477.0)
    assert (reading.generation_tokens_total, reading.steps_total) == (17036.0, 5789.0)
    assert (reading.prefix_query_tokens_total, reading.prefix_hit_tokens_total) == (40605.0, 128.0)
    assert (reading.preemptions_total, reading.finished_total, reading.server_errors_total) == (0.0, 1234.0, 0.0)
    assert reading.ttft_s is not None
    assert len(reading.ttft_s.bounds) == 22
    assert reading.ttft_s.counts[-1] == 1238.0
    assert reading.itl_s is not None
    assert reading.itl_s.counts[-1] == 15798.0
    assert (scrape.kv_capacity_tokens, scrape.block_size_tokens) == (16384, 32)
    assert scrape.asleep is True, "the gauge is left over from a /resume"
    assert reading.sleeping is False, "four requests are running"


def test_5xx_responses_are_counted_and_their_absence_is_a_true_zero() -> None:
    base = 'vllm:num_requests_waiting{model_name="m"} 0\n'
    assert read(base).reading.server_errors_total is None
    ok = base + 'http_requests_total{handler="/v1",method="POST",status="2xx"} 5\n'
    assert read(ok).reading.server_errors_total == 0.0
    bad = ok + 'http_requests_total{handler="/v1",method="POST",status="5xx"} 2\nhttp_requests_total{status="503"} 1\n'
    assert read(bad).reading.server_errors_total == 3.0


def test_responses_by_another_label_are_not_a_zero() -> None:
    page = 'vllm:num_requests_waiting 0\nhttp_requests_total{code="200",method="post"} 5\n'
    scrape = read(page + 'http_requests_total{code="500",method="post"} 4\n')
    assert scrape.reading.server_errors_total is None
    assert reason(scrape, "server_errors_total") == "http_requests_total has no label status"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ('block_size="16",num_gpu_blocks="100"', (1600, 16)),
        ('block_size="16",num_gpu_blocks="None"', (None, 16)),
        ('block_size="16",kv_cache_size_tokens="2048",num_gpu_blocks="100"', (2048, 16)),
        ('block_size="auto"', (None, None)),
    ],
)
def test_kv_capacity_from_labels(labels: str, expected: tuple[int | None, int | None]) -> None:
    page = f'vllm:cache_config_info{{{labels},engine="0"}} 1\nvllm:num_requests_waiting{{engine="0"}} 0\n'
    scrape = read(page)
    assert (scrape.kv_capacity_tokens, scrape.block_size_tokens) == expected


@pytest.mark.parametrize("ranks", [1, 20])
@pytest.mark.parametrize("size", ["9" * 18, "9" * 15, "9" * 30])
@pytest.mark.parametrize(
    "line",
    [
        'vllm:cache_config_info{{block_size="{size}",num_gpu_blocks="{size}",engine="{rank}"}} 1',
        'vllm:cache_config_info{{kv_cache_size_tokens="{size}",block_size="{size}",engine="{rank}"}} 1',
        'sglang:max_total_num_tokens{{dp_rank="{rank}"}} {size}',
        'sglang:page_size{{dp_rank="{rank}"}} {size}',
    ],
)
def test_a_senseless_capacity_is_unknown_and_can_be_told(line: str, size: str, ranks: int) -> None:
    kind = line.partition(":")[0]
    page = "".join(line.format(size=size, rank=rank) + "\n" for rank in range(ranks))
    scrape = read(page + f"{kind}:num_requests_running 1\n{kind}:num_running_reqs 1\n")
    assert scrape.reading.running_requests == 1.0
    assert (scrape.kv_capacity_tokens, scrape.block_size_tokens) == (None, None)


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        ("trtllm_num_requests_waiting 2\ntrtllm_num_requests_running 1\ntrtllm_kv_cache_utilization 0.5\n", "trtllm"),
        ("tgi_queue_size 2\ntgi_batch_current_size 1\n", "tgi"),
        ("llamacpp:requests_deferred 2\nllamacpp:requests_processing 1\n", "llama.cpp"),
    ],
)
def test_other_engines_basics(page: str, kind: str) -> None:
    scrape = read(page)
    assert scrape.kind == kind
    assert (scrape.reading.queue_requests, scrape.reading.running_requests) == (2.0, 1.0)


def test_rules_name_fields_of_the_reading() -> None:
    known = {field.name for field in fields(EngineReading)}
    for table in TABLES:
        assert {rule.signal for rule in (*table.rules, *COMMON_RULES)} <= known


def test_every_sglang_name_is_in_the_captured_list_or_is_an_old_one() -> None:
    listed = {line.split("\t")[0] for line in (DATA / "sglang" / "sglang_0.5.23_metrics.tsv").read_text().splitlines()}
    old = {"sglang:time_per_output_token_seconds"}
    for rule in SGLANG.rules:
        names = {name for name in full_names(SGLANG, rule.names) if name.startswith("sglang:")}
        assert names <= listed | old, rule.signal


def test_every_vllm_rule_has_a_name_in_some_captured_version() -> None:
    rows = (DATA / "vllm_versions" / "vllm_metric_names_by_version.tsv").read_text().splitlines()[1:]
    known = {row.split("\t")[0] for row in rows}
    for rule in VLLM.rules:
        for name in full_names(VLLM, rule.names):
            assert {name, name.removesuffix("_total")} & known, name


def test_a_page_read_again_says_the_same_and_a_changed_one_does_not() -> None:
    reader = EngineReader()
    page = 'vllm:num_requests_running{engine="0",model_name="m"} 3\n'
    first = reader.read(page.encode(), served=("m",))
    assert reader.read(page.encode(), served=("m",)) == first
    assert reader.read(page.replace(" 3", " 4").encode(), served=("m",)).reading.running_requests == 4
    assert reader.read(page.encode(), served=("m",)).reading.running_requests == 3


def test_the_same_page_of_an_engine_that_lists_other_models_is_read_anew() -> None:
    reader = EngineReader()
    page = "".join(f'vllm:num_requests_running{{engine="0",model_name="{m}"}} {n}\n' for m, n in (("a", 1), ("b", 2)))
    seen = [reader.read(page.encode(), served=(model,)).reading.running_requests for model in ("a", "b", "a")]
    assert seen == [1, 2, 1]
