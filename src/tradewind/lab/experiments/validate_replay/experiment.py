"""validate-replay: does a captured decision log, given to a fresh picker, give the same decisions?"""

import gzip
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

import msgspec

from tradewind.core.pick.picker import Picker
from tradewind.core.pick.settings import PickSettings
from tradewind.core.prefix.index import PrefixIndex
from tradewind.gateway.pick.capture import parse_capture
from tradewind.lab.checks import Check, at_least, at_most
from tradewind.lab.experiments.validate_grid.live import live_run
from tradewind.lab.experiments.validate_replay.tampered import tampered
from tradewind.lab.experiments.validate_replay.taped import TapedPicker
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial, Work
from tradewind.lab.harness.row import Row
from tradewind.lab.replay import Replayed, replay
from tradewind.sim.grid import SimGrid
from tradewind.sim.scenario import Scenario
from tradewind.sim.scenarios import scenario_named
from tradewind.workload.art import art_trace

NAME = "validate-replay"
RECORDED = "picks.ndjson.gz"
POLICIES = ("cost", "gorgo:.5/.1", "cache_aware", "least_request:2", "session_affinity")
SCENARIO = "S5-250ms"  # two gateways that tell each other of their work
FOR_S, QUICK_FOR_S, LIVE_FOR_S = 120.0, 25.0, 20.0
_METRICS = ("decisions", "drawn", "refusals", "notes", "different")


def plan(options: Options) -> Sequence[Trial]:
    """The shipped capture of a live gateway, and captures of simulated ones; of what is no picker's there is none."""
    seeds = options.seed_range(seeds=3, first=1, quick=1)
    for_s = QUICK_FOR_S if options.quick else FOR_S
    trials = [Trial(experiment=NAME, args={"source": "recorded live"})]
    for policy in options.policies or (POLICIES[:1] if options.quick else POLICIES):
        for seed in seeds if is_pickers(policy) else ():
            trial = Trial(experiment=NAME, args={"source": "simulated", "policy": policy, "seed": seed, "for_s": for_s})
            trials.append(trial)
    return trials


def is_pickers(policy: str) -> bool:
    """Whether a picker can be made by this name alone, as a replay does."""
    try:
        Picker(PickSettings(), policy=policy, index=PrefixIndex())
    except ValueError:
        return False
    return True


def run(trial: Trial) -> Result:
    """Replays, and replays again with the log tampered with."""
    if trial.args["source"] == "recorded live":
        packed = resources.files(__package__).joinpath("data", RECORDED).read_bytes()
        return told([gzip.decompress(packed)])
    seed, for_s = trial.args["seed"], trial.args["for_s"]
    assert isinstance(seed, int)
    assert isinstance(for_s, float)
    return told(simulated_captures(str(trial.args["policy"]), seed=seed, for_s=for_s))


def plan_live(options: Options) -> Sequence[Trial]:
    """A short live run of each policy."""
    for_s = QUICK_FOR_S / 4 if options.quick else LIVE_FOR_S
    seeds = options.seed_range(seeds=1, first=1)
    policies = options.policies or ("cost", "cache_aware")
    return [
        Trial(experiment=NAME, args={"source": "live", "policy": policy, "seed": seed, "for_s": for_s})
        for policy in policies
        for seed in seeds
    ]


def run_live(trial: Trial) -> Result:
    """Captures a live gateway's picker, and replays it."""
    seed, for_s = trial.args["seed"], trial.args["for_s"]
    assert isinstance(seed, int)
    assert isinstance(for_s, float)
    with tempfile.TemporaryDirectory(prefix="tw-replay-") as folder:
        capture = Path(folder) / "picks.ndjson"
        live_run(str(trial.args["policy"]), seed=seed, for_s=for_s, capture=capture)
        return told([capture.read_bytes()])


def simulated_captures(policy: str, *, seed: int, for_s: float) -> list[bytes]:
    """What the picker of each gateway of a simulated grid heard and decided."""
    scenario = replace(scenario_named(SCENARIO), for_s=for_s, load=lambda rng: art_trace(rng, for_s=for_s))
    pickers: list[TapedPicker] = []

    def make(of: Scenario) -> TapedPicker:
        pickers.append(TapedPicker(of, policy, seed=1_000 * seed + len(pickers)))
        return pickers[-1]

    SimGrid(scenario, make, seed=seed).run()
    return [picker.lines.data for picker in pickers]


def told(captures: Sequence[bytes]) -> dict[str, object]:
    """What replays of these captures found, together, and how many ways of tampering with them went unnoticed."""
    found = [replay(*parse_capture(data)) for data in captures]
    forged = [forgery for data in captures for forgery in tampered(data)]
    missed = [name for name, data in forged if replay(*parse_capture(data)).equal]
    return {
        **{metric: sum(_number(one, metric) for one in found) for metric in _METRICS},
        "differences": [line for one in found for line in one.differences][:5],
        "bytes": sum(map(len, captures)),
        "forged": len(forged),
        "missed": missed,
    }


def _number(found: Replayed, metric: str) -> int:
    value = getattr(found, metric)
    assert isinstance(value, int)
    return value


# --- figures ---------------------------------------------------------------------------------------------------------


def rows(done: Done) -> Sequence[Row]:
    """Counts, summed over seeds."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for trial, result in done:
        groups.setdefault((str(trial.args["source"]), str(trial.args.get("policy", "cost"))), []).append(result)
    found = []
    for (source, policy), results in groups.items():
        row = Row(experiment=NAME, profile=source, policy=policy, metric="", value=None, n=len(results))
        for metric in (*_METRICS, "forged"):
            value = float(sum(result[metric] for result in results))
            found.append(msgspec.structs.replace(row, metric=metric, value=value))
        missed = float(sum(len(result["missed"]) for result in results))
        found.append(msgspec.structs.replace(row, metric="forged and not found", value=missed))
    return found


def claims(rows: Sequence[Row]) -> Sequence[Check]:
    """Every decision of every source equal, and every forgery found."""
    found: list[Check] = []
    for source in dict.fromkeys(row.profile for row in rows):
        found += [
            at_least(f"{source}: decisions compared", _sum(rows, source, "decisions"), 1),
            at_most(f"{source}: decisions and refusals that differ", _sum(rows, source, "different"), 0),
            at_most(
                f"{source}: forged logs that pass for true ones", _sum(rows, source, "forged and not found"), 0,
                note=f"of {_sum(rows, source, 'forged'):.0f}",
            ),
        ]  # fmt: skip
    return found


def _sum(rows: Sequence[Row], source: str, metric: str) -> float:
    return sum(row.value or 0.0 for row in rows if row.profile == source and row.metric == metric)


EXPERIMENT = Experiment(
    name=NAME,
    title="a captured decision log through the same code again",
    question="Is a decision a function of what the picker heard? Everything that enters a picker is captured, and a "
    "fresh one, driven with it, must decide the same: cell, cost, terms, alternatives, probability.",
    plan=plan,
    run=run,
    live=Work(plan=plan_live, run=run_live),
    rows=rows,
    claims=claims,
    notes="An operator's own capture: `pick.capture` in the grid file, then `tradewind replay FILE`.",
)
