"""Counts of like requests and their errors, per cell and size, and what they prove against one cell (lines 13-14)."""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from tradewind.core.settings import VerdictSettings


def size_bin(request_bytes: int) -> int:
    """Half-octave bin of a request size: floor(2 log2 n) = floor(log2 n^2), exactly and without a logarithm."""
    return (request_bytes * request_bytes).bit_length() - 1 if request_bytes > 1 else 0


def concentration(errors: int, own: int, cells: int) -> float:
    """P(Bin(errors - 1, 1 / cells) >= own - 1): how likely chance gathers so many of the errors at one cell."""
    trials, need, share = errors - 1, own - 1, 1.0 / max(1, cells)
    if need <= 0:
        return 1.0
    if need > trials:
        return 0.0
    if trials > 200:  # far beyond any bound of interest: the normal tail is near enough, and cheap
        spread = math.sqrt(trials * share * (1.0 - share)) or 1e-9
        return 0.5 * math.erfc((need - 0.5 - trials * share) / spread / math.sqrt(2.0))
    below = sum(math.comb(trials, i) * share**i * (1.0 - share) ** (trials - i) for i in range(need))
    return max(0.0, 1.0 - below)


def likelihood(errors: int, requests: int, rate: float, expected: float) -> float:
    """Log-likelihood ratio of `rate` against `expected` for `errors` of `requests`; rates strictly inside 0..1."""
    rate, expected = (min(1.0 - 1e-9, max(1e-9, value)) for value in (rate, expected))
    good = requests - errors
    return errors * math.log(rate / expected) + good * math.log((1.0 - rate) / (1.0 - expected))


class Record(NamedTuple):
    """One request that counts. A tuple, since two are made per request."""

    at_s: float
    cell_id: str
    bin: int
    error: bool


@dataclass(frozen=True, slots=True)
class Case:
    """The evidence against one cell at one moment."""

    errors: int
    likelihood: float
    concentration: float
    noisy: bool  # the fleet's own error rate asks for the higher bound


@dataclass(slots=True)
class _Rate:
    """Errors and requests of one cell, forgotten exponentially."""

    errors: float = 0.0
    requests: float = 0.0
    at_s: float = 0.0

    def add(self, *, error: bool, now_s: float, span_s: float) -> None:
        keep = math.exp(-max(0.0, now_s - self.at_s) / span_s)
        self.errors = self.errors * keep + error
        self.requests = self.requests * keep + 1.0
        self.at_s = now_s


@dataclass(slots=True)
class Evidence:
    """One kind of error in one pool over the last minute, with the fleet's rate over the last hour."""

    settings: VerdictSettings
    by_size: bool  # refusals depend on the size of the request, failures do not
    records: deque[Record] = field(default_factory=deque)
    requests: dict[str, dict[int, int]] = field(default_factory=dict)  # cell -> bin -> count
    errors: dict[str, dict[int, int]] = field(default_factory=dict)
    rates: dict[str, _Rate] = field(default_factory=dict)

    def add(self, cell_id: str, request_bytes: int, *, error: bool, now_s: float) -> None:
        """Counts one request; beyond `max_records` the oldest is forgotten early."""
        record = Record(now_s, cell_id, size_bin(request_bytes) if self.by_size else 0, error)
        self.records.append(record)
        self._count(record, 1)
        rate = self.rates.get(cell_id)
        if rate is None:
            rate = self.rates[cell_id] = _Rate()
        rate.add(error=error, now_s=now_s, span_s=self.settings.fleet_rate_s)
        self.expire(now_s)

    def expire(self, now_s: float) -> None:
        """Forgets what is older than the window."""
        records, most = self.records, self.settings.max_records
        floor_s = now_s - self.settings.window_s
        while records and (records[0].at_s < floor_s or len(records) > most):
            self._count(records.popleft(), -1)

    def clear(self, cell_id: str) -> None:
        """Forgets everything of one cell."""
        self.records = deque(record for record in self.records if record.cell_id != cell_id)
        for table in (self.requests, self.errors):
            table.pop(cell_id, None)
        self.rates.pop(cell_id, None)

    def errors_of(self, cell_id: str) -> int:
        """Errors of one cell in the window."""
        return sum(self.errors.get(cell_id, {}).values())

    def _count(self, record: Record, step: int) -> None:
        _step(self.requests, record.cell_id, record.bin, step)
        if record.error:
            _step(self.errors, record.cell_id, record.bin, step)

    def case(self, cell_id: str, *, cells: int, held: frozenset[str]) -> Case | None:
        """The case against `cell_id` among `cells` cells; those `held` already are nobody's peers. None: no errors."""
        own = self.errors.get(cell_id)
        if not own:
            return None
        smallest = min(own)
        errors, requests = _from(own, smallest), _from(self.requests.get(cell_id, {}), smallest)
        peer_errors, peer_requests = self._peers(cell_id, smallest, held)
        q0 = self._fleet_rate(cell_id, held)
        settings = self.settings
        expected = (peer_errors + settings.prior_requests * q0) / (peer_requests + settings.prior_requests)
        rate = max(settings.min_rate, errors / requests)
        score = likelihood(errors, requests, rate, expected) if rate >= settings.min_ratio * expected else 0.0
        like = self._like_errors_since_first(cell_id, smallest, held)
        peers = cells - len(held - {cell_id})
        return Case(errors, score, concentration(like, errors, peers), q0 > settings.noisy_rate)

    def _peers(self, cell_id: str, smallest: int, held: frozenset[str]) -> tuple[int, int]:
        errors = requests = 0
        for peer, bins in self.requests.items():
            if peer != cell_id and peer not in held:
                requests += _from(bins, smallest)
                errors += _from(self.errors.get(peer, {}), smallest)
        return errors, requests

    def _fleet_rate(self, cell_id: str, held: frozenset[str]) -> float:
        """Error rate of the others over the last hour; a few errors among the first requests do not raise it much."""
        errors = requests = 0.0
        for peer, rate in self.rates.items():
            if peer != cell_id and peer not in held:
                errors += rate.errors
                requests += rate.requests
        return max(self.settings.floor_rate, errors / max(self.settings.fleet_requests, requests))

    def _like_errors_since_first(self, cell_id: str, smallest: int, held: frozenset[str]) -> int:
        count, begun = 0, False
        for record in self.records:
            if record.error and record.bin >= smallest and (record.cell_id == cell_id or record.cell_id not in held):
                begun = begun or record.cell_id == cell_id
                count += begun
        return count


def _step(table: dict[str, dict[int, int]], cell_id: str, size: int, step: int) -> None:
    bins = table.get(cell_id)
    if bins is None:
        bins = table[cell_id] = {}
    count = bins.get(size, 0) + step
    if count:
        bins[size] = count
    else:
        del bins[size]


def _from(bins: dict[int, int], smallest: int) -> int:
    return sum(count for size, count in bins.items() if size >= smallest)
