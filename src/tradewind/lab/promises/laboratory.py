"""Issue 5: every claim can be run again. The experiments judge themselves; here they are run in full."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from tradewind.lab.checks import Check, at_least, at_most
from tradewind.lab.experiments.registry import NAMES, experiment_named
from tradewind.lab.harness.experiment import Options
from tradewind.lab.harness.runner import Report, Watch, run_experiment
from tradewind.lab.promises.bench import Bench, Item, bench_rows

RESULTS = Path("build/lab")  # as `tradewind lab run`: what was run before is not run again
PAGES = Path("docs/lab")
PEERS = ("vllm-router", "smg", "envoy round_robin", "envoy least_request", "envoy ring_hash")  # how names begin


class _Told(Watch):
    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def began(self, name: str, trials: int, reused: int) -> None:
        self._bench.say(f"{name}: {trials} trials, {reused} of them there from a run before")

    def said(self, line: str) -> None:
        self._bench.say(line)


def _run(bench: Bench, name: str, *, live: bool = False) -> Report:
    jobs = os.cpu_count() or 1
    return run_experiment(experiment_named(name), Options(), live=live, folder=RESULTS, jobs=jobs, watch=_Told(bench))


def claims_of(*names: str, live: bool = False) -> Callable[[Bench], list[Check]]:
    """Runs experiments; their claims, and that no trial failed."""

    def run(bench: Bench) -> list[Check]:
        checks: list[Check] = []
        for name in names:
            report = _run(bench, name, live=live)
            checks += [replace(claim, name=f"{name}: {claim.name}") for claim in report.claims]
            checks.append(at_most(f"{name}: failed trials", len(report.failures), 0, unit="trials"))
        return checks

    return run


def _pages(_bench: Bench) -> list[Check]:
    """Every experiment has a page with a command and a figure that is there; README shows three figures."""
    missing = [name for name in NAMES if not _has_page(PAGES / f"{name}.md", name)]
    shown = Path("README.md").read_text(encoding="utf-8").count("docs/lab/figures/")
    return [
        at_most("experiments without a page, its command and its figure", len(missing), 0, note=" ".join(missing)),
        at_least("figures of the laboratory in README.md", shown, 3),
    ]


def _has_page(page: Path, name: str) -> bool:
    if not page.is_file():
        return False
    text = page.read_text(encoding="utf-8")
    figures = [page.parent / part.partition(")")[0] for part in text.split("](")[1:] if part.startswith("figures/")]
    return f"tradewind lab run {name}" in text and all(figure.is_file() for figure in figures)


def _peers(bench: Bench) -> list[Check]:
    report = _run(bench, "peers", live=True)
    there = {row.policy for row in report.rows if row.value is not None}
    missing = [peer for peer in PEERS if not any(name.startswith(peer) for name in there)]
    return [*report.claims, at_most("peers without figures", len(missing), 0, note=" ".join(missing))]


def _speed(bench: Bench) -> list[Check]:
    return bench_rows(bench, "simulator")


ITEMS: Sequence[Item] = (
    Item(item="5/1", title="the SLO matrix, simulated", run=claims_of("slo-matrix")),
    Item(item="5/2", title="validation", run=claims_of("validate-engine", "validate-grid", "validate-replay")),
    Item(item="5/3", title="picks against every baseline, simulated", run=claims_of("pick", "gorgo")),
    Item(item="5/4", title="lead time of hardware alerts, simulated", run=claims_of("lead-time")),
    Item(item="5/5", title="what the network signals gain, simulated", run=claims_of("network")),
    Item(item="5/6", title="real peers, live", run=_peers),
    Item(item="5/7", title="a page for every experiment", run=_pages),
    Item(item="5/8", title="speed of the simulator", run=_speed),
)
