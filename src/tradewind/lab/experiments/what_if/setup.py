"""What is simulated, as it was written: flat and plain, so that it can be kept, sent and run again."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tradewind.lab.harness.experiment import Argument

AS_IT_IS = "as it is"


class SetupError(ValueError):
    """The grid cannot be simulated as it was asked for; the message says what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything but the what-if and the seed. "" and 0 leave a thing to the grid file, or to a stated default."""

    grid: str  # path of the grid file
    grid_hash: str
    trace: str = ""  # path of a trace, or
    trace_hash: str = ""
    workload: str = ""  # ... the name of a class with
    rate_per_s: float = 0.0
    for_s: float = 0.0
    policy: str = ""
    model: str = ""
    hardware: str = ""  # comma-separated: PROFILE, or SITE=PROFILE, CELL=PROFILE
    rtt: str = ""  # comma-separated: TIME, or SITE-SITE=TIME
    disturbance: str = "clean"
    slo_ttft_s: float = 1.5
    check: bool = False  # invariants, after every event

    def args(self) -> dict[str, Argument]:
        """As a trial's arguments."""
        return asdict(self)


def setup_of(args: Mapping[str, Argument]) -> Setup:
    """The setup in a trial's arguments."""
    named = {field.name: args[field.name] for field in fields(Setup)}
    return Setup(**named)  # type: ignore[arg-type]


def content_hash(path: str) -> str:
    """Of a file that a result depends on; "" where it cannot be read, which is told when it is used."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    except OSError:
        return ""


def parts(written: str) -> list[str]:
    """The parts of a comma-separated list."""
    return [part.strip() for part in written.split(",") if part.strip()]
