"""Runs of a real engine, request by request, that ship with the project; MIT, CASYS Lab at KAIST, see data/."""

import csv
import gzip
import io
from dataclasses import dataclass
from importlib import resources

RUNS = "rtx_pro_6000_vllm_0.19_runs.csv.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRequest:
    """One request to a real engine. Times in seconds from the first arrival of its run."""

    arrival_s: float  # at the API
    prompt_tokens: int
    output_tokens: int
    queued_s: float  # the scheduler has it; the fastest hand-over of a run counts as 0 s
    scheduled_s: float
    first_token_s: float
    last_token_s: float

    @property
    def waited_s(self) -> float:
        """In the scheduler's queue."""
        return self.scheduled_s - self.queued_s


def measured_runs() -> dict[str, tuple[MeasuredRequest, ...]]:
    """Run name -> its requests in order of arrival."""
    packed = resources.files("tradewind.workload").joinpath("data", RUNS).read_bytes()
    found: dict[str, list[MeasuredRequest]] = {}
    for row in csv.DictReader(io.StringIO(gzip.decompress(packed).decode("ascii"))):
        found.setdefault(row["run"], []).append(
            MeasuredRequest(
                arrival_s=float(row["arrival_s"]),
                prompt_tokens=int(row["prompt_tokens"]),
                output_tokens=int(row["output_tokens"]),
                queued_s=float(row["queued_s"]),
                scheduled_s=float(row["scheduled_s"]),
                first_token_s=float(row["first_token_s"]),
                last_token_s=float(row["last_token_s"]),
            )
        )
    return {run: tuple(requests) for run, requests in found.items()}
