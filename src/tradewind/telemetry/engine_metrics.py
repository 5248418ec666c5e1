"""An engine's metrics page to an EngineReading, with the source of each signal and the reason for each unknown."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tradewind.model.telemetry import EngineReading, Histogram, UnknownSignal
from tradewind.telemetry.engine_names import (
    COMMON_RULES,
    TABLES,
    VLLM_SLEEP_NAME,
    EngineTable,
    Rule,
    Shape,
    full_names,
    wanted_names,
)
from tradewind.telemetry.exposition import CutWatch, PageParser, ParsedPage, Sample
from tradewind.telemetry.histograms import merge_histograms

MAX_REQUESTS = 1e7  # no engine queues more; beyond it the value is garbage
MAX_COUNTER = 1e18
MAX_TOKENS = 1 << 40
RATIO_SLACK = 0.01  # engines round: 1.003 is full, 37.5 is not a ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineScrape:
    """What one page says. `sources` maps a signal to the metric it came from."""

    kind: str | None  # None: no table knows this page
    reading: EngineReading
    unknown: tuple[UnknownSignal, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    kv_capacity_tokens: int | None = None
    block_size_tokens: int | None = None
    asleep: bool | None = None  # the sleep gauge as it stands: it stays up after a resume, so it is not the whole truth
    bad_lines: int = 0


_WANTED = wanted_names()


class _Unusable(Exception):
    """Why a signal cannot be read from this page."""


class EngineReader:
    """Reads the pages of one engine; remembers how many series they have, so that a cut page is known as one."""

    def __init__(self) -> None:
        self._parser = PageParser(_WANTED)
        self._cuts = CutWatch()
        self._last: tuple[ParsedPage, frozenset[str], EngineScrape] | None = None

    def read(self, page: bytes, *, served: Iterable[str] = (), whole: bool = True) -> EngineScrape:
        """`served` are the model names the engine lists: series of other models are left out. Never raises."""
        parsed = self._parser.parse(page, whole=whole)
        plan = _plan_of(parsed)
        if plan is None:
            return _nothing("no metric of a known engine is on the page", parsed)
        if self._cuts.is_cut(parsed, whole=whole):
            return _nothing("the page is cut off", parsed)
        models = frozenset(served)
        if self._last is not None and self._last[:2] == (parsed, models):
            return self._last[2]  # an idle engine's page says the same again
        last = EngineReading() if self._last is None else self._last[2].reading
        scrape = _Reading(plan, parsed, models).scrape(last)
        self._last = parsed, models, scrape
        return scrape


def _nothing(reason: str, parsed: ParsedPage) -> EngineScrape:
    unknown = (UnknownSignal(signal="engine", reason=reason),)
    return EngineScrape(kind=None, reading=EngineReading(), unknown=unknown, bad_lines=parsed.bad_lines)


class _Plan:
    """A table with its names spelled out once."""

    def __init__(self, table: EngineTable) -> None:
        self.table = table
        self.rules = tuple((rule, full_names(table, rule.names)) for rule in table.rules)
        self.on_page = frozenset(name for rule, names in self.rules for name in _on_page(rule, names))


def _on_page(rule: Rule, names: tuple[str, ...]) -> tuple[str, ...]:
    suffix = "_count" if rule.shape in (Shape.HISTOGRAM, Shape.HISTOGRAM_COUNT) else ""
    return tuple(name + suffix for name in names)


_PLANS = tuple(_Plan(table) for table in TABLES)
_COMMON = _Plan(EngineTable(kind="common", prefixes=("",), rules=COMMON_RULES, rank_label=""))


def _plan_of(parsed: ParsedPage) -> _Plan | None:
    """The engine kind of whose names most are on the page."""
    hits = [len(plan.on_page & parsed.samples.keys()) for plan in _PLANS]
    best = max(hits)
    return _PLANS[hits.index(best)] if best else None


class _Reading:
    """One page being read."""

    def __init__(self, plan: _Plan, parsed: ParsedPage, served: frozenset[str]) -> None:
        self._plan = plan
        self._table = plan.table
        self._bad_lines, self._broken = parsed.bad_lines, parsed.broken
        self._samples = _of_models(parsed, served)
        self._own_alone = self._samples is parsed.samples
        self._ranks = self._all_ranks()

    def scrape(self, last: EngineReading) -> EngineScrape:
        values: dict[str, float | Histogram] = {}
        sources: list[tuple[str, str]] = []
        unknown: list[UnknownSignal] = []
        for plan in (self._plan, _COMMON):
            for rule, names in plan.rules:
                try:
                    values[rule.signal], source = self._value(plan.table, rule, names)
                    sources.append((rule.signal, source))
                except _Unusable as error:
                    unknown.append(UnknownSignal(signal=rule.signal, reason=str(error)))
        reading = EngineReading(**values)  # type: ignore[arg-type]  # rules name fields of EngineReading, a test holds it
        computed = _computed_prompt_tokens(reading, last)
        if computed is not None:
            reading = replace(reading, prompt_computed_tokens_total=computed)
            unknown = [entry for entry in unknown if entry.signal != "prompt_computed_tokens_total"]
            sources.append(("prompt_computed_tokens_total", "prompt tokens less prefix hits"))
        asleep = self._asleep()
        if asleep is not None:
            reading = replace(reading, sleeping=asleep and not reading.running_requests)
            sources.append(("sleeping", VLLM_SLEEP_NAME))
        capacity, block_size = self._kv_capacity()
        return EngineScrape(
            kind=self._table.kind,
            reading=reading,
            unknown=tuple(unknown),
            sources=tuple(sources),
            kv_capacity_tokens=capacity,
            block_size_tokens=block_size,
            asleep=asleep,
            bad_lines=self._bad_lines,
        )

    def _value(self, table: EngineTable, rule: Rule, names: tuple[str, ...]) -> tuple[float | Histogram, str]:
        """Value and source by the first usable alias. Raises _Unusable with the reason of the first that is present."""
        reason = None
        for name in names:
            try:
                value = self._by_name(table, rule, name)
            except _Unusable as error:
                reason = reason or str(error)
                continue
            if value is not None:
                return value, name
        where = "on the page" if self._own_alone else "there for the engine's own models"
        raise _Unusable(reason or f"{' or '.join(names)} is not {where}")

    def _by_name(self, table: EngineTable, rule: Rule, name: str) -> float | Histogram | None:
        """None if the name is not on the page."""
        if rule.shape is Shape.HISTOGRAM:
            return self._histogram(name)
        full = name + "_count" if rule.shape is Shape.HISTOGRAM_COUNT else name
        self._check_whole(full)
        present = _without_parts(self._of(full), table.part_label)
        if not present:
            return None
        series = [sample for sample in present if _passes(sample, rule.where)] if rule.where else present
        if not series:
            absent = next((label for label, _ in rule.where if all(s.label(label) is None for s in present)), "")
            if absent:
                raise _Unusable(f"{full} has no label {absent}")
            if rule.zero_if_filtered:
                return 0.0
            raise _Unusable(f"{full} has no series with {rule.where[0][0]}={rule.where[0][1]}")
        self._check_ranks(table, rule, series, full)
        by_rank = self._by_rank(table, rule, series, full)
        return _combine(rule.shape, by_rank)

    def _by_rank(self, table: EngineTable, rule: Rule, series: Sequence[Sample], name: str) -> list[float]:
        """One value per group of series: replicas (tensor-parallel ranks) say the same thing, the largest counts."""
        groups: dict[tuple[tuple[str, str], ...], float] = {}
        for sample in series:
            value = _checked(sample.value, rule.shape, name)
            key = tuple(item for item in sample.series.labels if item[0] not in table.replica_labels)
            groups[key] = max(groups.get(key, value), value)
        return list(groups.values())

    def _check_ranks(self, table: EngineTable, rule: Rule, series: Sequence[Sample], name: str) -> None:
        """A gauge that lacks a rank which other series have is not the engine's load."""
        if not table.rank_label:
            return
        ranks = {sample.label(table.rank_label) for sample in series}
        if len(ranks) > 1 and None in ranks:
            raise _Unusable(f"{name} has series with and without {table.rank_label}")
        lazily_made = rule.shape in (Shape.COUNTER, Shape.HISTOGRAM_COUNT)  # appear with their first event
        if not lazily_made and None not in ranks and len(ranks) < len(self._ranks):
            raise _Unusable(f"{name} has {len(ranks)} of {len(self._ranks)} engine ranks")

    def _all_ranks(self) -> frozenset[str]:
        label = self._table.rank_label
        ranks = (sample.label(label) for name in self._plan.on_page for sample in self._of(name))
        return frozenset(rank for rank in ranks if rank is not None)

    def _check_whole(self, name: str) -> None:
        """A sum without one of its lines is less than before, as after a restart."""
        if name in self._broken:
            raise _Unusable(f"a line of {name} cannot be read")

    def _of(self, name: str) -> tuple[Sample, ...]:
        return self._samples.get(name, ())

    def _histogram(self, name: str) -> Histogram | None:
        for suffix in ("_bucket", "_count", "_sum"):
            self._check_whole(name + suffix)
        buckets, counts, sums = (self._of(name + suffix) for suffix in ("_bucket", "_count", "_sum"))
        if not buckets and not counts:
            return None
        try:
            merged = merge_histograms(buckets, counts, sums, replica_labels=self._table.replica_labels)
        except ValueError as error:
            raise _Unusable(f"{name}: {error}") from None
        return merged

    def _asleep(self) -> bool | None:
        """vLLM's sleep gauge: True if every rank says it is not awake."""
        awake = [sample.value for sample in self._of(VLLM_SLEEP_NAME) if sample.label("sleep_state") == "awake"]
        return all(value == 0 for value in awake) if awake else None

    def _kv_capacity(self) -> tuple[int | None, int | None]:
        if self._table.kind == "vllm":
            return _vllm_kv_capacity(self._of("vllm:cache_config_info"))
        capacity = self._plain(self._table.kv_capacity_names, Shape.COUNTER)
        block_size = self._plain(self._table.block_size_names, Shape.LARGEST)
        return capacity, block_size

    def _plain(self, names: tuple[str, ...], shape: Shape) -> int | None:
        if not names:
            return None
        rule = Rule(signal="capacity", names=names, shape=shape)
        try:
            value, _ = self._value(self._table, rule, full_names(self._table, names))
        except _Unusable:
            return None
        assert isinstance(value, float)
        return _tokens(value)


def _of_models(parsed: ParsedPage, served: frozenset[str]) -> Mapping[str, tuple[Sample, ...]]:
    """The samples without those of other models; vLLM books aliases and LoRA under the first served name. Of a page
    with several models and none that is served, only the series without a model are left."""
    labels = {sample.label("model_name") for samples in parsed.samples.values() for sample in samples} - {None}
    if len(labels) <= 1:
        return parsed.samples
    own = (labels & served) | {None}
    kept = (
        (name, tuple(sample for sample in samples if sample.label("model_name") in own))
        for name, samples in parsed.samples.items()
    )
    return {name: samples for name, samples in kept if samples}


def _without_parts(series: tuple[Sample, ...], label: str) -> tuple[Sample, ...]:
    """The totals alone, where they are on the page beside their parts."""
    return tuple(sample for sample in series if not sample.label(label)) or series if label else series


def _passes(sample: Sample, where: tuple[tuple[str, str], ...]) -> bool:
    for name, wanted in where:
        value = sample.label(name) or ""
        if not (value.startswith(wanted[:-1]) if wanted.endswith("*") else value == wanted):
            return False
    return True


def _checked(value: float, shape: Shape, name: str) -> float:
    """The value, clipped where engines round. Raises _Unusable for what cannot be true."""
    if math.isnan(value):
        raise _Unusable(f"{name} is NaN")
    if shape in (Shape.RATIO, Shape.RATIO_MAX):
        if not 0 <= value <= 1 + RATIO_SLACK:
            raise _Unusable(f"{name} is {value:g}, outside 0..1")
        return min(1.0, value)
    limit = MAX_REQUESTS if shape is Shape.GAUGE else MAX_COUNTER
    if not 0 <= value <= limit:
        raise _Unusable(f"{name} is {value:g}, outside 0..{limit:g}")
    return value


def _combine(shape: Shape, by_rank: list[float]) -> float:
    match shape:
        case Shape.GAUGE | Shape.COUNTER | Shape.HISTOGRAM_COUNT:
            return math.fsum(by_rank)
        case Shape.RATIO:
            return math.fsum(by_rank) / len(by_rank)
        case Shape.RATIO_MAX | Shape.LARGEST:
            return max(by_rank)
        case Shape.HISTOGRAM:
            raise AssertionError("histograms are merged, not combined")


def _computed_prompt_tokens(reading: EngineReading, last: EngineReading) -> float | None:
    """Versions without a by-source counter: prompt tokens less those the prefix cache served. Hits are counted earlier
    than their prompts, so the difference dips; a counter that falls would be a restart."""
    prompt, hits = reading.prompt_tokens_total, reading.prefix_hit_tokens_total
    if reading.prompt_computed_tokens_total is not None or prompt is None or hits is None:
        return None
    before, computed_before = last.prompt_tokens_total, last.prompt_computed_tokens_total
    same_process = before is not None and prompt >= before and reading.start_time_s == last.start_time_s
    return max(0.0, prompt - hits, computed_before or 0.0 if same_process else 0.0)


def _vllm_kv_capacity(samples: Sequence[Sample]) -> tuple[int | None, int | None]:
    """(tokens, block size) from the labels of cache_config_info; ranks add up."""
    labels: list[Mapping[str, str]] = [dict(sample.series.labels) for sample in samples]
    sizes = [size for entry in labels if (size := _whole_number(entry.get("block_size"))) is not None]
    block_size = sizes[0] if sizes and len(set(sizes)) == 1 else None
    capacities = [_rank_capacity(entry) for entry in labels]
    known = [capacity for capacity in capacities if capacity is not None]
    return (_tokens(sum(known)) if len(known) == len(capacities) else None), block_size


def _rank_capacity(labels: Mapping[str, str]) -> int | None:
    tokens = _whole_number(labels.get("kv_cache_size_tokens"))
    if tokens is not None:
        return tokens
    blocks, size = _whole_number(labels.get("num_gpu_blocks")), _whole_number(labels.get("block_size"))
    return _tokens(blocks * size) if blocks is not None and size is not None else None


def _whole_number(text: str | None) -> int | None:
    """A positive whole number, else None: the labels also hold "None" and "auto"."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 18:
        return None
    return _tokens(int(text))


def _tokens(count: float) -> int | None:
    """A size that a cache can have, else None: a heartbeat could not even carry a larger one."""
    return int(count) if 1 <= count <= MAX_TOKENS else None
