"""A check of two settings for people: what it costs before it starts, how far it is, and what it has shown."""

from collections.abc import Mapping

from rich.table import Table

from tradewind.cli.tuner_orders import Json, weights
from tradewind.core.tuner.power import BLOCK, MOST, STUDY, Spread, requests_needed, smallest_change, whole_pairs

FIGURES = (("p95 TTFT", "p95_ttft"), ("typical TTFT", "log_ttft"), ("mean E2E", "mean_e2e"))


def spread_in(tuner: Json) -> tuple[Spread, str]:
    """What control saw of the requests before, else what the study had; and which."""
    row = tuner.get("spread")
    if isinstance(row, Mapping):
        return Spread(**{name: float(row[name]) for name in Spread._fields}), "as recent requests spread"
    return STUDY, "under an even load: control has heard too few requests to say"


def requests_for(change: float, tuner: Json) -> int:
    """To tell such a change of p95 TTFT. Raises ValueError where no check is long enough."""
    spread, _ = spread_in(tuner)
    needed = requests_needed(change, error=spread.p95_ttft)
    if needed > MOST:
        least = smallest_change(MOST, error=spread.p95_ttft)
        raise ValueError(
            f"{100 * change:g} % of p95 TTFT takes {needed:,} requests and a check may take {MOST:,}, which tell "
            f"{100 * least:.1f} %; ask for more, or let `tradewind tuner pretrain` compare them in the simulator"
        )
    return needed


def plan_lines(tuner: Json, other: Json, requests: int) -> list[str]:
    """What will be done, how long it takes, and the smallest changes that it can tell."""
    requests = whole_pairs(requests)
    spread, source = spread_in(tuner)
    told = ", ".join(
        f"{name} {100 * smallest_change(requests, error=getattr(spread, field)):.1f} %" for name, field in FIGURES
    )
    blocks = f"blocks of {BLOCK}, all by one setting, then all by the other"
    return [
        f"present {weights(tuner.get('weights'))}; other {weights(other)}",
        f"{requests:,} requests in {blocks}; {duration(tuner, requests)}",
        f"tells a change, in four of five checks, from: {told} ({source})",
    ]


def duration(tuner: Json, requests: int) -> str:
    """ "about 12 min at 11.3 requests/s"."""
    rate = tuner.get("requests_per_s")
    if not isinstance(rate, int | float) or rate <= 0.0:
        return "how long that takes is not known: control has heard no requests"
    minutes = requests / rate / 60.0
    length = f"{minutes:.0f} min" if minutes < 120.0 else f"{minutes / 60.0:.1f} h"
    return f"about {length} at {rate:.1f} requests/s"


def progress_line(check: Json) -> str:
    """ "2,400 of 8,400 requests"."""
    heard, requests = check.get("heard", 0), check.get("requests", 0)
    if isinstance(heard, int) and isinstance(requests, int) and heard >= requests > 0:
        return f"all {requests:,} requests; the last of them are awaited"
    return f"{heard:,} of {requests:,} requests"


def verdict(check: Json) -> str:
    """Who won, or that it cannot be told, or that there is no answer (yet)."""
    answer = check.get("answer")
    if isinstance(answer, Mapping):
        return str(answer.get("told"))
    state = "it runs" if check.get("running") else "it was given up and has no answer"
    return f"{state}: {progress_line(check)}"


def answer_table(check: Json) -> Table:
    """The figures under both settings."""
    answer = check.get("answer")
    table = Table(title=f"present {weights(check.get('present'))}; other {weights(check.get('other'))}")
    table.add_column("figure")
    for name in ("present", "other", "change", "interval", "pairs of blocks"):
        table.add_column(name, justify="right")
    for row in answer["estimates"] if isinstance(answer, Mapping) else []:
        table.add_row(
            row["figure"],
            f"{1e3 * row['present']:,.0f} ms",
            f"{1e3 * row['other']:,.0f} ms",
            f"{100 * row['change']:+.1f} %",
            f"{100 * row['low']:+.1f} .. {100 * row['high']:+.1f} %",
            str(row["pairs"]),
        )
    return table
