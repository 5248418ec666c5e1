"""A DCGM exporter's page to the GpuReading of one cell."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

from tradewind.model.telemetry import GpuReading, UnknownSignal
from tradewind.telemetry import dcgm_names as names
from tradewind.telemetry.dcgm_names import Across, GpuSignal, Source
from tradewind.telemetry.exposition import CutWatch, Labels, PageParser, ParsedPage, Sample
from tradewind.telemetry.gpu_faults import MAX_GPUS, FaultCounter, XidWatch

# What DCGM prints for BLANK, NOT_FOUND, NOT_SUPPORTED and NOT_PERMISSIONED. Exporters drop them now; old ones did not.
INT32_BLANKS = range(2147483632, 2147483636)
DOUBLE_BLANKS = range(140737488355328, 140737488355332)
INT64_BLANK = 9.2e18  # as floats the four 64-bit ones round to one value

SURE_PERCENT = (2.0, 102.0)  # a ratio is never so large, and percent never larger

GpuKey = tuple[str, str]  # (UUID, GPU_I_ID or "")
Row = dict[str, float]  # exported name -> raw value


_WANTED = names.wanted_names()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuScrape:
    """What one page says of one cell's GPUs. reading is None when the page has none of them."""

    reading: GpuReading | None
    unknown: tuple[UnknownSignal, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()  # GPUs of this cell that are not on the page
    fingerprint: int = 0  # changes when any value of these GPUs does
    energies: tuple[tuple[str, float], ...] = ()  # by GPU: what moves always, on an idle one as well
    bad_lines: int = 0


@dataclass(slots=True)
class _Found:
    """What is being collected for one scrape."""

    parsed: ParsedPage
    values: dict[str, float] = field(default_factory=dict)
    sources: list[tuple[str, str]] = field(default_factory=list)
    unknown: list[UnknownSignal] = field(default_factory=list)

    def take(self, signal: str, result: tuple[float, str] | None, *needed: tuple[Source, ...]) -> None:
        """A value with its source, or None; `needed` are groups of sources of each of which one must have a value."""
        if result is None:
            self.lacks(signal, *needed)
        else:
            self.values[signal], source = result
            self.sources.append((signal, source))

    def lacks(self, signal: str, *needed: tuple[Source, ...]) -> None:
        self.unknown.append(UnknownSignal(signal=signal, reason=_why(self.parsed, *needed)))


class DcgmReader:
    """Reads page after page of one exporter for one cell; remembers units, fault counters and XIDs it has seen."""

    def __init__(self, gpu_uuids: Sequence[str] = ()) -> None:
        """gpu_uuids: the cell's GPUs, "GPU-..." or "GPU-.../3" for MIG instance 3; empty = all GPUs of the page."""
        self._wanted_gpus = tuple(gpu_uuids)
        self._parser = PageParser(_WANTED)
        self._cuts = CutWatch()
        self._percent: set[str] = set()  # names that were above 1 once, so are percent
        self._ecc = FaultCounter()
        self._replay = FaultCounter()
        self._xid = XidWatch()
        self._seen: dict[str, None] = {}  # UUIDs of GPUs that were on a page

    def read(self, page: bytes, *, whole: bool = True) -> GpuScrape:
        """Never raises. An empty page, as an exporter gives while it rebuilds, is no data and not zero load."""
        parsed = self._parser.parse(page, whole=whole)
        if self._cuts.is_cut(parsed, whole=whole):
            return _nothing("the page is cut off", parsed)
        all_rows = _rows(parsed)
        rows, missing = self._select(all_rows)
        if not rows:
            reason = "none of the cell's GPUs is on the page" if all_rows else _why_no_gpu(parsed)
            return _nothing(reason, parsed, missing)
        self._learn_units(all_rows)
        found = _Found(parsed)
        for signal in names.SIGNALS:
            found.take(signal.signal, self._combined(signal, rows), signal.sources)
        found.take("vram_ratio", self._vram(rows), (names.FB_USED,), (names.FB_TOTAL, names.FB_FREE))
        found.take("pcie_bytes_per_s", self._pcie(rows), (names.PCIE_TX,), (names.PCIE_RX,))
        found.take("ecc_uncorrected_total", self._ecc_total(rows), names.ECC_UNCORRECTED)
        found.take("pcie_replay_total", self._replay_total(rows), (names.PCIE_REPLAY,))
        reading = _build(found, rows, self._xid.update(_xids(parsed, rows)))
        return GpuScrape(
            reading=reading,
            unknown=tuple(found.unknown),
            sources=tuple(found.sources),
            missing=missing,
            fingerprint=hash(tuple(sorted((key, tuple(sorted(row.items()))) for key, row in rows.items()))),
            energies=self._energies(rows),
            bad_lines=parsed.bad_lines,
        )

    def _energies(self, rows: dict[GpuKey, Row]) -> tuple[tuple[str, float], ...]:
        found = ((key, self._value(names.ENERGY, row)) for key, row in rows.items())
        return tuple(("/".join(filter(None, key)), energy[0]) for key, energy in found if energy is not None)

    def _select(self, rows: dict[GpuKey, Row]) -> tuple[dict[GpuKey, Row], tuple[str, ...]]:
        """The rows of the cell's GPUs, and which of these are not on the page: those named, else those seen before."""
        if not self._wanted_gpus:
            present = {uuid: None for uuid, _ in rows}
            missing = tuple(uuid for uuid in self._seen if uuid not in present)
            if len(self._seen) + len(present) <= MAX_GPUS:
                self._seen.update(present)
            return _without_parts(rows), missing
        chosen = {key: row for key, row in rows.items() if any(_is_gpu(key, gpu) for gpu in self._wanted_gpus)}
        missing = tuple(gpu for gpu in self._wanted_gpus if not any(_is_gpu(key, gpu) for key in chosen))
        return _without_parts(chosen), missing

    def _learn_units(self, rows: dict[GpuKey, Row]) -> None:
        """Percent once, percent always; unless the exporter is replaced by a newer one, as a fraction shows: percent
        under a name of DCGM_FI_DEV are whole numbers."""
        least, most = SURE_PERCENT
        for row in rows.values():
            for name, value in row.items():
                if names.may_be_percent(name) and least < value <= most:
                    self._percent.add(name)
                elif name in self._percent and name.startswith("DCGM_FI_DEV_") and 0 < value < 1:
                    self._percent.discard(name)

    def _combined(self, signal: GpuSignal, rows: dict[GpuKey, Row]) -> tuple[float, str] | None:
        best: tuple[list[float], str] | None = None
        for source in signal.sources:
            usable = partial(names.is_sane, signal.signal)
            readings = [reading for row in rows.values() if (reading := self._value(source, row, usable)) is not None]
            values = [_rounded(signal, value) for value, _ in readings]
            if values and (best is None or len(values) > len(best[0])):
                best = values, readings[0][1]
        return None if best is None else (_across(signal.across, best[0]), best[1])

    def _value(
        self, source: Source, row: Row, usable: Callable[[float], bool] = lambda _: True
    ) -> tuple[float, str] | None:
        """(value in our unit, name) by the first name of which the row has a usable one."""
        for name, factor in source.names:
            if name in row:
                value = row[name] * (names.PERCENT if name in self._percent else factor)
                if usable(value):
                    return value, name
        return None

    def _vram(self, rows: dict[GpuKey, Row]) -> tuple[float, str] | None:
        ratios = []
        for row in rows.values():
            used, free = self._value(names.FB_USED, row), self._value(names.FB_FREE, row)
            total, reserved = self._value(names.FB_TOTAL, row), self._value(names.FB_RESERVED, row)
            size = total[0] if total else used[0] + free[0] + (reserved[0] if reserved else 0.0) if used and free else 0
            if used and size > 0 and used[0] <= size:
                ratios.append((used[0] / size, used[1]))
        return (sum(ratio for ratio, _ in ratios) / len(ratios), ratios[0][1]) if ratios else None

    def _pcie(self, rows: dict[GpuKey, Row]) -> tuple[float, str] | None:
        """The busiest GPU's link: a mean would hide one crowded link among eight."""
        totals = []
        for row in rows.values():
            sent, received = self._value(names.PCIE_TX, row), self._value(names.PCIE_RX, row)
            if sent and received:
                totals.append((sent[0] + received[0], f"{sent[1]} + {received[1].rpartition('PCIE_')[2]}"))
        return max(totals, default=None)

    def _ecc_total(self, rows: dict[GpuKey, Row]) -> tuple[float, str] | None:
        for source in names.ECC_UNCORRECTED:
            readings = {key: reading for key, row in rows.items() if (reading := self._value(source, row)) is not None}
            if readings:
                kind = source.names[-1][0]  # each kind of count grows from where it was
                total = self._ecc.update({(*key, kind): value for key, (value, _) in readings.items()})
                return total, next(iter(readings.values()))[1]
        return None

    def _replay_total(self, rows: dict[GpuKey, Row]) -> tuple[float, str] | None:
        readings = {
            key: value for key, row in rows.items() if (value := self._value(names.PCIE_REPLAY, row)) is not None
        }
        if not readings:
            return None
        total = self._replay.update({key: value for key, (value, _) in readings.items()})
        return total, next(iter(readings.values()))[1]


def _nothing(reason: str, parsed: ParsedPage, missing: tuple[str, ...] = ()) -> GpuScrape:
    unknown = (UnknownSignal(signal="gpu", reason=reason),)
    return GpuScrape(reading=None, unknown=unknown, missing=missing, bad_lines=parsed.bad_lines)


def _why(parsed: ParsedPage, *needed: tuple[Source, ...]) -> str:
    """Why there is no value of each of these groups of sources. "Not exported" is said only of what is not there."""
    usual = ""
    for sources in needed:
        group = [name for source in sources for name, _ in source.names]
        if broken := next((name for name in group if name in parsed.broken), ""):
            return f"a line of {broken} cannot be read"
        present = next((name for name in group if name in parsed.samples), "")
        if not present:
            return f"{' or '.join(source.usual_name for source in sources)} is not exported"
        usual = usual or present
    return f"{usual} has no usable value"


def _why_no_gpu(parsed: ParsedPage) -> str:
    if parsed.samples:
        return "no GPU on the page has a value"
    return "no line of a GPU can be read" if parsed.bad_lines else "no GPU on the page"


def is_blank(value: float) -> bool:
    """True for NaN, infinities, negative values and DCGM's codes for "no value"."""
    if not 0 <= value < INT64_BLANK:
        return True
    whole = int(value)
    return whole == value and (whole in INT32_BLANKS or whole in DOUBLE_BLANKS)


def _rows(parsed: ParsedPage) -> dict[GpuKey, Row]:
    """Values by GPU and name. A series repeated for several pods of one GPU counts once."""
    rows: dict[GpuKey, Row] = {}
    for name, samples in parsed.samples.items():
        if name == names.XID_COUNT.names[0][0]:
            continue
        for sample in samples:
            row = rows.setdefault(_key(sample), {})
            if not is_blank(sample.value):
                row[name] = max(row.get(name, 0.0), sample.value)
    return {key: row for key, row in rows.items() if row}


def _key(sample: Sample) -> GpuKey:
    return _key_of(sample.series.labels)


@lru_cache(maxsize=4096)
def _key_of(series_labels: Labels) -> GpuKey:
    """By UUID and MIG instance; labels change their case between releases. Never by host or pod: those lie."""
    labels = {name.lower(): value for name, value in series_labels}
    uuid = labels.get("uuid") or labels.get("gpu_uuid")
    instance = labels.get("gpu_i_id", "")
    return (uuid, instance) if uuid else (f"gpu {labels.get('gpu') or labels.get('device', '?')}", instance)


def _without_parts(rows: dict[GpuKey, Row]) -> dict[GpuKey, Row]:
    """A card that is shown whole and by its MIG instances: what it says itself its instances do not say again."""
    found: dict[GpuKey, Row] = {}
    for key, row in rows.items():
        card = rows.get((key[0], ""), {}) if key[1] else {}
        own = {name: value for name, value in row.items() if name not in card} if card else row
        if own:
            found[key] = own
    return found


def _is_gpu(key: GpuKey, wanted: str) -> bool:
    return wanted in (key[0], f"{key[0]}/{key[1]}")


def _rounded(signal: GpuSignal, value: float) -> float:
    return min(1.0, value) if signal.unit == "ratio" else value


def _across(across: Across, values: list[float]) -> float:
    match across:
        case Across.MEAN:
            return sum(values) / len(values)
        case Across.MAX:
            return max(values)
        case Across.MIN:
            return min(values)
        case Across.OR:
            bits = 0
            for value in values:
                bits |= int(value)
            return bits


def _xids(parsed: ParsedPage, rows: dict[GpuKey, Row]) -> dict[GpuKey, tuple[int | None, float | None]]:
    """Per GPU of the cell: the last XID code, and how many XIDs the exporter counted in its window. None: not told."""
    counts: dict[GpuKey, float] = {}
    for sample in parsed.samples.get(names.XID_COUNT.names[0][0], ()):
        if not is_blank(sample.value):
            counts[_key(sample)] = counts.get(_key(sample), 0.0) + sample.value
    codes = {
        key: next((int(row[name]) for name, _ in names.XID.names if name in row), None) for key, row in rows.items()
    }
    return {key: (code, counts.get(key)) for key, code in codes.items()}


def _has(rows: dict[GpuKey, Row], name: str) -> bool:
    return any(name in row for row in rows.values())


def _build(found: _Found, rows: dict[GpuKey, Row], xid: tuple[int | None, float | None]) -> GpuReading:
    values = found.values
    code, count = xid
    if count is None:
        found.lacks("xid", (names.XID, names.XID_COUNT))
    else:
        present = next((name for name, _ in (*names.XID.names, *names.XID_COUNT.names) if _has(rows, name)), "")
        found.sources.extend((signal, present) for signal in ("xid", "xid_count"))
    bits = values.get("throttle_bits")
    return GpuReading(
        gpus=sum(1 for uuid, instance in rows if not instance or (uuid, "") not in rows),
        util_ratio=values.get("util_ratio"),
        vram_ratio=values.get("vram_ratio"),
        sm_active_ratio=values.get("sm_active_ratio"),
        tensor_active_ratio=values.get("tensor_active_ratio"),
        dram_active_ratio=values.get("dram_active_ratio"),
        temperature_c=values.get("temperature_c"),
        memory_temperature_c=values.get("memory_temperature_c"),
        sm_clock_hz=values.get("sm_clock_hz"),
        power_w=values.get("power_w"),
        throttle_bits=None if bits is None else int(bits),
        xid=code,
        xid_count=count,
        ecc_uncorrected_total=values.get("ecc_uncorrected_total"),
        pcie_replay_total=values.get("pcie_replay_total"),
        pcie_bytes_per_s=values.get("pcie_bytes_per_s"),
    )
