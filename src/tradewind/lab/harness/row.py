"""What an experiment yields: rows of figures, the authors' figures beside them, and what was demanded of both."""

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of ours. The schema of `--json`: docs/reference/lab-json.md."""

    experiment: str
    profile: str  # what was simulated: grid, load, disturbance, e.g. "S2-D" or "clean, 10 RPS"
    policy: str  # "" where no policy is involved
    metric: str
    value: float | None  # None: it could not be had
    unit: str = ""
    lo: float | None = None  # 95 % interval; None: none was taken
    hi: float | None = None
    n: int | None = None  # seeds, or samples, that the value and its interval rest on
    seed: int | None = None  # the first of the seeds
    commit: str = ""  # added by the runner


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the authors, put beside our row of the same profile, policy and metric."""

    profile: str
    policy: str
    metric: str
    value: float
    unit: str = ""
    source: str  # which publication, which table
    note: str = ""  # why it cannot be reproduced, or what differs; "" = comparable


def measured(rows: "list[Row] | tuple[Row, ...]", *, profile: str, policy: str, metric: str) -> Row | None:
    """The row with these names; None without one."""
    wanted = (profile, policy, metric)
    return next((row for row in rows if (row.profile, row.policy, row.metric) == wanted), None)


def signed_interval(row: Row) -> str:
    """Of a difference, beside its value; "" where it has none."""
    return "" if row.lo is None or row.hi is None else f"{row.lo:+.1f} .. {row.hi:+.1f}"
