"""Counts of like requests and their errors, per cell and size, and what they prove against one cell (lines 13-14)."""

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from tradewind.core.errors import ErrorOrder
from tradewind.core.memory import MAX_BIN, MAX_ROWS, ErrorRate, Recent
from tradewind.core.settings import VerdictSettings

LEAST_ERRORS = 0.01  # fewer, after an hour's forgetting, are none
LATELY = 4  # requests, at least, that tell what a cell makes of a size now
CLASS_RATE = 0.5  # of requests from some size on are refused: then the size is what they are refused for
BIN_RATE = 0.34  # ... of those in the bin where it begins, since a limit lies somewhere within

_Like: TypeAlias = tuple[str, int]  # requests of one cell and one size bin


def size_bin(request_bytes: int) -> int:
    """Half-octave bin of a request size: floor(2 log2 n) = floor(log2 n^2), exactly and without a logarithm."""
    return (request_bytes * request_bytes).bit_length() - 1 if request_bytes > 1 else 0


def bin_floor(size: int) -> int:
    """The fewest bytes of this bin."""
    return math.isqrt((1 << size) - 1) + 1 if size else 0


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

    def add(self, *, errors: int, requests: int, now_s: float, span_s: float) -> None:
        keep = math.exp(-max(0.0, now_s - self.at_s) / span_s)
        self.errors = self.errors * keep + errors
        self.requests = self.requests * keep + requests
        self.at_s = now_s


@dataclass(slots=True)
class _Span:
    """Consecutive requests that are forgotten together."""

    until_s: float  # a request at or after this opens another span
    newest_s: float
    count: int = 0
    requests: dict[_Like, int] = field(default_factory=dict)
    errors: list[_Like] = field(default_factory=list)  # in order


@dataclass(slots=True)
class Evidence:
    """One kind of error in one pool over the last minute, with the fleet's rate over the last hour.

    Requests are counted by spans of time, since one is counted per request and kind of error.
    """

    settings: VerdictSettings
    by_size: bool  # refusals depend on the size of the request, failures do not
    spans: deque[_Span] = field(default_factory=deque)  # closed ones, oldest first
    open: _Span = field(default_factory=lambda: _Span(-math.inf, -math.inf))
    count: int = 0  # requests in closed spans
    requests: dict[str, dict[int, int]] = field(default_factory=dict)  # cell -> bin -> count, of closed spans
    errors: dict[str, dict[int, int]] = field(default_factory=dict)  # of all spans
    order: ErrorOrder = field(default_factory=ErrorOrder)  # of all spans
    rates: dict[str, _Rate] = field(default_factory=dict)

    def add(self, cell_id: str, request_bytes: int, *, error: bool, now_s: float) -> None:
        """Counts one request; beyond `max_records` the oldest are forgotten early."""
        span = self.open
        if now_s >= span.until_s or span.count >= self.settings.span_records:
            self.close()
            self.expire(now_s)
            span = self.open = _Span(now_s + self.settings.span_s, now_s)
        like = (cell_id, size_bin(request_bytes) if self.by_size else 0)
        span.count += 1
        span.newest_s = now_s
        span.requests[like] = span.requests.get(like, 0) + 1
        if error:
            span.errors.append(like)
            self._count_error(like)
            self.expire(now_s)

    def close(self) -> None:
        """Lets the requests of the open span count."""
        span = self.open
        if not span.count:
            return
        self.open = _Span(-math.inf, -math.inf)
        self.spans.append(span)
        self.count += span.count
        by_cell: dict[str, int] = {}
        for like, count in span.requests.items():
            _step(self.requests, like, count)
            by_cell[like[0]] = by_cell.get(like[0], 0) + count
        errors = Counter(cell_id for cell_id, _ in span.errors)
        for cell_id, count in by_cell.items():
            rate = self.rates.setdefault(cell_id, _Rate())
            span_s = self.settings.fleet_rate_s
            rate.add(errors=errors[cell_id], requests=count, now_s=span.newest_s, span_s=span_s)

    def expire(self, now_s: float) -> None:
        """Forgets what is older than the window."""
        floor_s = now_s - self.settings.window_s
        if self.open.count and self.open.newest_s < floor_s:
            self.close()
        most = self.settings.max_records - self.settings.span_records  # the open span has room, too
        while self.spans and (self.spans[0].newest_s < floor_s or self.count > most):
            span = self.spans.popleft()
            self.count -= span.count
            for like, count in span.requests.items():
                _step(self.requests, like, -count)
            for like in span.errors:
                _step(self.errors, like, -1)
                self.order.drop(*like)

    def clear(self, cell_id: str) -> None:
        """Forgets everything of one cell."""
        self.close()
        for span in self.spans:
            span.requests = {like: count for like, count in span.requests.items() if like[0] != cell_id}
            span.errors = [like for like in span.errors if like[0] != cell_id]
            self.count -= span.count
            span.count = sum(span.requests.values())
            self.count += span.count
        for table in (self.requests, self.errors):
            table.pop(cell_id, None)
        self.order.clear(cell_id)
        self.rates.pop(cell_id, None)

    def _count_error(self, like: _Like) -> None:
        _step(self.errors, like, 1)
        self.order.add(*like)

    def remembered(self, now_s: float) -> tuple[tuple[ErrorRate, ...], Recent]:
        """Rates and the last minute, as ages; nothing where there was no error, since then both are at their floor."""
        self.close()
        rates = tuple(
            ErrorRate(cell_id=cell_id, errors=rate.errors, requests=rate.requests, age_s=max(0.0, now_s - rate.at_s))
            for cell_id, rate in sorted(self.rates.items())
        )
        if not any(rate.errors >= LEAST_ERRORS for rate in rates):
            return (), Recent()
        errors = tuple(like for span in self.spans for like in span.errors)
        requests = tuple(
            (cell_id, size, count)
            for cell_id, bins in sorted(self.requests.items())
            for size, count in sorted(bins.items())
        )
        newest_s = self.spans[-1].newest_s if self.spans else now_s
        recent = Recent(age_s=max(0.0, now_s - newest_s), requests=requests[:MAX_ROWS], errors=errors[-MAX_ROWS:])
        return rates[:MAX_ROWS], recent

    def recall(self, rates: Iterable[ErrorRate], recent: Recent, cells: Collection[str], now_s: float) -> None:
        """Goes on from what was remembered of `cells`; the last minute counts as one span."""
        for rate in rates:
            if rate.cell_id in cells:
                self.rates[rate.cell_id] = _Rate(rate.errors, rate.requests, now_s - rate.age_s)
        newest_s = now_s - recent.age_s
        span = _Span(newest_s, newest_s)
        span.requests = {
            (cell_id, size): count for cell_id, size, count in recent.requests if cell_id in cells and count
        }
        left = Counter(span.requests)
        for like in recent.errors:
            if left[like] > 0:  # no more errors than requests
                left[like] -= 1
                span.errors.append(like)
        span.count = sum(span.requests.values())
        if not span.count:
            return
        for like, count in span.requests.items():
            _step(self.requests, like, count)
        for like in span.errors:
            self._count_error(like)
        self.spans.append(span)
        self.count += span.count

    def errors_of(self, cell_id: str) -> int:
        """Errors of one cell in the window."""
        return sum(self.errors.get(cell_id, {}).values())

    def case(self, cell_id: str, *, cells: int, held: frozenset[str]) -> Case | None:
        """The case against `cell_id` among `cells` cells; those `held` already are nobody's peers. None: no errors."""
        own = self.errors.get(cell_id)
        if not own:
            return None
        self.close()
        smallest = min(own)
        errors, requests = _from(own, smallest), _from(self.requests.get(cell_id, {}), smallest)
        peer_errors, peer_requests = self._peers(cell_id, smallest, held)
        q0 = self._fleet_rate(cell_id, held)
        settings = self.settings
        expected = (peer_errors + settings.prior_requests * q0) / (peer_requests + settings.prior_requests)
        rate = max(settings.min_rate, errors / requests)
        score = likelihood(errors, requests, rate, expected) if rate >= settings.min_ratio * expected else 0.0
        like = self.order.since_first(cell_id, smallest, held)
        peers = cells - len(held - {cell_id})
        return Case(errors, score, concentration(like, errors, peers), q0 > settings.noisy_rate)

    def refused_from(self, cell_id: str, held: frozenset[str], *, proven_bytes: int = 0) -> int:
        """The bytes from which on the cell refuses most of what comes lately, if size explains its refusals; else 0.

        `proven_bytes`: a size that it surely refuses and a peer serves, where somebody has tried.
        """
        self.close()
        likes = [_of_cell(span, cell_id) for span in self.spans]
        floor = bin_floor(size_bin(proven_bytes)) if proven_bytes else 0
        for size in sorted(self.errors.get(cell_id, {})):
            if _lately(likes, size, MAX_BIN + 1) >= CLASS_RATE and _lately(likes, size, size + 1) >= BIN_RATE:
                floor = min(floor or bin_floor(size), bin_floor(size))
                break
        return 0 if floor and self.guilty_below(cell_id, floor, held) else floor

    def guilty_below(self, cell_id: str, request_bytes: int, held: frozenset[str]) -> bool:
        """Whether what the cell refuses below this size is enough for a verdict of its own."""
        self.close()
        settings, below = self.settings, size_bin(request_bytes)
        errors = _from(self.errors.get(cell_id, {}), 0, below)
        if errors < settings.min_errors:
            return False
        requests = _from(self.requests.get(cell_id, {}), 0, below)
        peer_errors, peer_requests = self._peers(cell_id, 0, held, below)
        prior = settings.prior_requests
        expected = (peer_errors + prior * self._fleet_rate(cell_id, held)) / (peer_requests + prior)
        rate = max(settings.min_rate, errors / requests)
        return (
            rate >= settings.min_ratio * expected
            and likelihood(errors, requests, rate, expected) >= settings.likelihood
        )

    def _peers(self, cell_id: str, smallest: int, held: frozenset[str], below: int = MAX_BIN + 1) -> tuple[int, int]:
        errors = requests = 0
        for peer, bins in self.requests.items():
            if peer != cell_id and peer not in held:
                requests += _from(bins, smallest, below)
                errors += _from(self.errors.get(peer, {}), smallest, below)
        return errors, requests

    def _fleet_rate(self, cell_id: str, held: frozenset[str]) -> float:
        """Error rate of the others over the last hour; a few errors among the first requests do not raise it much."""
        errors = requests = 0.0
        for peer, rate in self.rates.items():
            if peer != cell_id and peer not in held:
                errors += rate.errors
                requests += rate.requests
        return max(self.settings.floor_rate, errors / max(self.settings.fleet_requests, requests))


def _of_cell(span: _Span, cell_id: str) -> tuple[dict[int, int], list[int]]:
    """Requests by size, and the sizes of the refused, of one cell."""
    requests = {size: count for (cell, size), count in span.requests.items() if cell == cell_id}
    return requests, [size for cell, size in span.errors if cell == cell_id]


def _lately(likes: list[tuple[dict[int, int], list[int]]], smallest: int, below: int) -> float:
    """The share of errors among the newest requests of these sizes."""
    errors = requests = 0
    for counts, refused in reversed(likes):
        requests += _from(counts, smallest, below)
        errors += sum(smallest <= size < below for size in refused)
        if requests >= LATELY:
            break
    return errors / requests if requests else 0.0


def _step(table: dict[str, dict[int, int]], like: _Like, step: int) -> None:
    cell_id, size = like
    bins = table.get(cell_id)
    if bins is None:
        bins = table[cell_id] = {}
    count = bins.get(size, 0) + step
    if count:
        bins[size] = count
    else:
        del bins[size]


def _from(bins: dict[int, int], smallest: int, below: int = MAX_BIN + 1) -> int:
    return sum(count for size, count in bins.items() if smallest <= size < below)
