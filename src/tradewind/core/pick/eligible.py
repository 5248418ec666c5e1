"""Who may serve a request: state, model, residency, subset, modality, length, cool-down; or why nobody may.

Nothing is dropped here for want of knowledge: a silent cell that is READY stays, a limit that nobody stated rules out
nobody, and if every cell of a pool is drained by alerts or verdicts at once the observer is doubted and all stay. Cells
that are not READY are out, and those whose address the proxy does not take; to hold the last pools when all look dead
at once is for the shell that feeds the views.
"""

from collections.abc import Callable, Sequence
from math import ceil, inf
from typing import NamedTuple

from tradewind.core.pick.cell import PickCell
from tradewind.core.pick.refusals import Size
from tradewind.core.pick.settings import PickSettings
from tradewind.model.decision import RefusalKind
from tradewind.model.request import Request

Why = tuple[tuple[str, str], ...]


class Pool(NamedTuple):
    """The cells of one model, sorted by id."""

    ready: tuple[PickCell, ...]
    others: tuple[PickCell, ...]  # serve the model, but take no traffic now
    excluded: Why  # the same, with reasons; bounded
    tightest: float  # tokens that fit every ready cell


class Narrowed(NamedTuple):
    """What is left of a pool for one request: cells, or a refusal."""

    cells: Sequence[PickCell]
    excluded: Why = ()
    kind: RefusalKind | None = None
    message: str = ""
    retry_after_s: float | None = None


def build_pools(cells: Sequence[PickCell], settings: PickSettings) -> dict[str, Pool]:
    """By served name; "" is the pool of all, for requests that name no model. `cells` must be sorted by id."""
    members: dict[str, list[PickCell]] = {"": list(cells)}
    for model in settings.known_models:
        members[model] = []
    for cell in cells:
        for model in cell.models:
            members.setdefault(model, []).append(cell)
    return {model: _pool(members[model], settings) for model in sorted(members)}


def _pool(cells: list[PickCell], settings: PickSettings) -> Pool:
    able = [cell for cell in cells if cell.ready and not cell.unroutable]
    ready = [cell for cell in able if not cell.drained] or able
    serving = {cell.cell_id for cell in ready}
    others = [cell for cell in cells if cell.cell_id not in serving]
    tightest = min((cell.limit if cell.learned.quiet and not cell.refuses else 0.0 for cell in ready), default=inf)
    excluded = tuple((cell.cell_id, _why(cell)) for cell in others[: settings.max_excluded])
    return Pool(tuple(ready), tuple(others), excluded, tightest)


def _why(cell: PickCell) -> str:
    return "its address is not usable" if cell.ready and cell.unroutable else cell.why or "drained"


class Lengths(NamedTuple):
    """Tokens of a request that a context limit is about: prompt and allowed output."""

    likely: int
    low: int  # if the prompt's estimate is too high
    high: int  # ... too low
    size: Size

    @classmethod
    def of(cls, request: Request, margin: float) -> "Lengths":
        """Engines refuse prompt + max_tokens over the limit; without max_tokens they need room for one token."""
        output = request.max_output_tokens or 1
        prompt = request.prompt_tokens
        low, high = int(prompt * (1.0 - margin)) + output, ceil(prompt * (1.0 + margin)) + output
        return cls(prompt + output, low, high, Size(prompt, output))


class Eligibility:
    """Narrows a pool to the cells that may serve a request."""

    def __init__(self, settings: PickSettings) -> None:
        self._settings = settings
        self.troubled_until_s = -inf  # no cell is cooling down or doubted after this

    def trouble(self, until_s: float) -> None:
        """Some cell is cooling down or doubted until then."""
        self.troubled_until_s = max(self.troubled_until_s, until_s)

    def narrow(self, pool: Pool, request: Request, now_s: float) -> Narrowed:
        """The way of almost every request takes no look at single cells."""
        if not pool.ready:
            return Narrowed((), pool.excluded, RefusalKind.NO_CELL, "no cell is ready for this model")
        margin = 0.0 if request.exact_tokens else self._settings.estimate_margin
        longest = ceil(request.prompt_tokens * (1.0 + margin)) + (request.max_output_tokens or 1)
        if (
            request.allowed_sites is None
            and request.allowed_addresses is None
            and not request.modalities
            and longest <= pool.tightest
            and now_s >= self.troubled_until_s
        ):
            return Narrowed(pool.ready, pool.excluded)
        return self._look(pool, request, Lengths.of(request, margin), now_s)

    def _look(self, pool: Pool, request: Request, lengths: Lengths, now_s: float) -> Narrowed:
        sieve = _Sieve(pool.ready, list(pool.excluded), self._settings.max_excluded)
        sites = request.allowed_sites
        if sites is not None and not sieve.keep(lambda cell: "" if cell.site in sites else "residency"):
            where = ", ".join(sorted(sites)) or "no site"
            return sieve.refuse(RefusalKind.NO_CELL, f"residency allows only {where}, and no cell is ready there")
        addresses = request.allowed_addresses
        if addresses is not None:
            allowed = frozenset(addresses)
            if not sieve.keep(lambda cell: "" if cell.within(allowed) else "subset hint"):
                return sieve.refuse(RefusalKind.NO_CELL, "no ready cell among the addresses that were allowed")
        if request.modalities and not sieve.keep(lambda cell: _unserved(cell, request.modalities)):
            kinds = ", ".join(request.modalities)
            return sieve.refuse(RefusalKind.UNSUPPORTED, f"no cell serves {kinds} for this model")
        if not self._fit(sieve, lengths, now_s):
            return self._too_long(pool, request, lengths, sieve)
        sieve.prefer(lambda cell: "refuses the like" if cell.refuses_like(request.model, request.body_bytes) else "")
        if now_s < self.troubled_until_s:
            soonest_s = min(cell.cooling_s for cell in sieve.cells) - now_s
            if not sieve.keep(lambda cell: "cooling down" if cell.cooling_s > now_s else ""):
                return sieve.refuse(RefusalKind.BUSY, "all cells are busy", retry_after_s=soonest_s)
            sieve.prefer(lambda cell: "failed just now" if cell.doubtful_s > now_s else "")
        return Narrowed(sieve.cells, sieve.excluded)

    @staticmethod
    def _fit(sieve: "_Sieve", lengths: Lengths, now_s: float) -> bool:
        """Cells that take the request even if it is longer than estimated; else the largest, if it may fit them.

        What refusals have taught leaves one cell out, and never all: then the lesson is doubted.
        """
        before = sieve.cells
        size, high = lengths.size, lengths.high
        if not sieve.keep(lambda cell: f"serves {cell.limit:.0f} tokens" if high > cell.limit else ""):
            perhaps = [cell for cell in before if lengths.low <= cell.limit]
            if not perhaps:
                return False
            largest = max(cell.limit for cell in perhaps)
            sieve.cells = [cell for cell in perhaps if cell.limit == largest]

        def seen_s(cell: PickCell) -> float:
            return -inf if cell.refuses else now_s  # under a verdict probes try, not clients

        sieve.prefer(lambda c: "" if c.learned.allows(size, seen_s(c)) else f"refused {c.learned.bound:.0f} tokens")
        sieve.prefer(lambda c: "refused the like just now" if c.learned.doubts(size, seen_s(c)) else "")
        return True

    @staticmethod
    def _too_long(pool: Pool, request: Request, lengths: Lengths, sieve: "_Sieve") -> Narrowed:
        sites = request.allowed_sites
        for cell in pool.others:
            if lengths.low <= cell.limit and (sites is None or cell.site in sites):
                return sieve.refuse(RefusalKind.NO_CELL, "no ready cell takes so long a prompt now")
        message = f"the prompt and max_tokens need about {lengths.likely} tokens, more than any cell serves"
        return sieve.refuse(RefusalKind.TOO_LONG, message)


class _Sieve:
    """Cells that are left, and why the others are not; reasons are bounded."""

    def __init__(self, cells: Sequence[PickCell], reasons: list[tuple[str, str]], most: int) -> None:
        self.cells = cells
        self._reasons = reasons
        self._most = most

    @property
    def excluded(self) -> Why:
        return tuple(self._reasons)

    def keep(self, why: Callable[[PickCell], str]) -> bool:
        """Leaves the cells without a reason against them; False if that is none."""
        kept = []
        for cell in self.cells:
            reason = why(cell)
            if not reason:
                kept.append(cell)
            elif len(self._reasons) < self._most:
                self._reasons.append((cell.cell_id, reason))
        self.cells = kept
        return bool(kept)

    def prefer(self, why: Callable[[PickCell], str]) -> None:
        """The same, unless it would leave none."""
        if any(not why(cell) for cell in self.cells):
            self.keep(why)

    def refuse(self, kind: RefusalKind, message: str, *, retry_after_s: float | None = None) -> Narrowed:
        return Narrowed((), self.excluded, kind, message, retry_after_s)


def _unserved(cell: PickCell, modalities: Sequence[str]) -> str:
    served = cell.modalities
    if served is None:
        return ""
    missing = [kind for kind in modalities if kind not in served]
    return f"does not take {', '.join(missing)}" if missing else ""
