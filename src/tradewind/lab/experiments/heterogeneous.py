"""`heterogeneous`: two H200, two H100, two H100 that refuse long requests, one H100 killed, as published in table 9."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from tradewind.lab.checks import Check, at_least, at_most
from tradewind.lab.experiments.homogeneous import (
    AS_PUBLISHED,
    LEAST_REQUEST,
    OUTPUT_TOKENS,
    PROMPT_DEVIATION,
    PROMPT_TOKENS,
    ROUND_ROBIN,
    RTTS_S,
    cells_of,
)
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial
from tradewind.lab.harness.figure import Figure, Series
from tradewind.lab.harness.row import Published, Row, measured
from tradewind.lab.simulated.nine import SOURCE, Ran, between, e2e_ms, mean_row, number, ran, text
from tradewind.measure.record import Record
from tradewind.sim.faults import Change, Engine, Limit
from tradewind.sim.scenario import Load, Scenario
from tradewind.sim.status import HTTP_BAD_REQUEST
from tradewind.sim.steered import WeightsPolicy
from tradewind.workload.arrivals import CONSTANT
from tradewind.workload.classes import BLOCK_TOKENS
from tradewind.workload.lengths import normal
from tradewind.workload.mooncake import Trace, TracedRequest

NAME = "heterogeneous"
POLICIES = (ROUND_ROBIN, LEAST_REQUEST, "envoy_least_request:N", AS_PUBLISHED, "weights", "cost")
# Profile -> requests/s, and whether one cell is killed. Table 9 is from the first, the successes are from the second.
KILLED_AT_12, WHOLE_AT_20 = "12 RPS, one killed", "20 RPS"
LOADS = {KILLED_AT_12: (12.0, True), WHOLE_AT_20: (20.0, False)}
KILLED_S, COUNTED_FROM_S, FOR_S = 20.0, 40.0, 100.0
QUICK_KILLED_S, QUICK_FROM_S, QUICK_FOR_S = 5.0, 8.0, 16.0
SEEDS, FIRST_SEED = 3, 650
LIMIT_TOKENS = 1_024
LONG_RATIO, LONG_TOKENS = 0.1, (1_100, 1_500)
KILLED = 2
KINDS = ("H200", "H200", "killed H100", "free H100", "constrained H100", "constrained H100")
NOT_REFUSED, LONG_NOT_REFUSED = "not refused", "long prompts not refused"
CONCENTRATION = "weight of free cells over constrained ones"


def mixed(*, rate: float, for_s: float) -> Load:
    """Short prompts, and one in ten that a cell of 1,024 tokens must refuse."""

    def load(rng: random.Random) -> Trace:
        requests = []
        for at_s in CONSTANT.times(rng, rate_per_s=rate, for_s=for_s):
            is_long = rng.random() < LONG_RATIO
            prompt = normal(rng, mean=PROMPT_TOKENS, deviation=PROMPT_DEVIATION, least=16, most=512)
            if is_long:
                prompt = rng.randint(*LONG_TOKENS)
            requests.append(
                TracedRequest(
                    at_s=at_s, prompt_tokens=prompt, output_tokens=OUTPUT_TOKENS, kind="long" if is_long else "short"
                )
            )
        return Trace(requests=tuple(requests), block_tokens=BLOCK_TOKENS)

    return load


def scenario_of(rate: float, *, killed_s: float | None, for_s: float) -> Scenario:
    """Site A: H200, B: H100, C: H100 with the limit that nobody is told of; one of B is killed, if a time is given."""
    kill = () if killed_s is None else (Change(at_s=killed_s, cell=KILLED, effect=Engine(up=False)),)
    limit = Limit(tokens=LIMIT_TOKENS)
    return Scenario(
        name=NAME,
        title=f"2 x H200, 2 x H100, 2 x H100 limited to {LIMIT_TOKENS}, RTT 8/22/38 ms, {rate:g}/s",
        cells=cells_of(["h200", "h200", *["h100"] * 4]),
        rtts_s=(RTTS_S,),
        load=mixed(rate=rate, for_s=for_s),
        for_s=for_s,
        changes=(*(Change(at_s=0.0, cell=cell, effect=limit) for cell in (4, 5)), *kill),
    )


def plan(options: Options) -> Sequence[Trial]:
    """Seeds outermost, so that a run that was cut has whole seeds."""
    quick = options.quick
    killed_s, from_s, for_s = (
        (QUICK_KILLED_S, QUICK_FROM_S, QUICK_FOR_S) if quick else (KILLED_S, COUNTED_FROM_S, FOR_S)
    )
    return [
        Trial(
            experiment=NAME,
            args={
                "profile": profile,
                "policy": policy,
                "seed": seed,
                "killed_s": killed_s if killed else None,
                "from_s": from_s,
                "for_s": for_s,
            },
        )
        for seed in options.seed_range(seeds=SEEDS, first=FIRST_SEED)
        for profile, (_, killed) in LOADS.items()
        for policy in (options.policies or POLICIES)
    ]


def run(trial: Trial) -> Result:
    """One policy on one seed."""
    from_s, for_s = number(trial, "from_s"), number(trial, "for_s")
    killed_s = None if trial.args["killed_s"] is None else number(trial, "killed_s")
    scenario = scenario_of(LOADS[text(trial, "profile")][0], killed_s=killed_s, for_s=for_s)
    done = ran(scenario, text(trial, "policy"), seed=int(number(trial, "seed")))
    records = between(done.records, from_s, for_s)
    return {
        "E2E p50": e2e_ms(records, 0.50),
        "E2E p99": e2e_ms(records, 0.99),
        NOT_REFUSED: _not_refused(done.records),
        LONG_NOT_REFUSED: _not_refused([record for record in done.records if record.kind == "long"]),
        **_shares(done, from_s),
        **_weights(done),
    }


def _not_refused(records: Sequence[Record]) -> float | None:
    """Percent; what the kill cut in the middle of its answer is no refusal."""
    return 1e2 * fmean(record.status != HTTP_BAD_REQUEST for record in records) if records else None


def _shares(done: Ran, from_s: float) -> dict[str, float | None]:
    """Percent of the counted requests by kind of cell, for one cell of the kind."""
    ids = [cell.cell_id for cell in done.grid.scenario.cells]
    sent = Counter(record.cell for record in done.records if record.intended_s >= from_s and record.cell)
    total = sum(sent.values()) or 1
    return {
        f"share of one {kind}": 1e2 * sum(sent[ids[place]] for place in _of(kind)) / total / len(_of(kind))
        for kind in dict.fromkeys(KINDS)
    }


def _weights(done: Ran) -> dict[str, float | None]:
    """The weights in force at the end, of one cell of each kind; 0: it is left out. Nothing without weights."""
    policy = done.policy
    if not isinstance(policy, WeightsPolicy) or policy.name.startswith("envoy") or not policy.pushes:
        return {}
    ids = [cell.cell_id for cell in done.grid.scenario.cells]
    last = policy.pushes[-1][1]
    found: dict[str, float | None] = {
        f"weight of one {kind}": sum(last.get(ids[place], 0) for place in _of(kind)) / len(_of(kind))
        for kind in dict.fromkeys(KINDS)
    }
    free, least = found["weight of one free H100"], found["weight of one constrained H100"]
    # A cell that is left out gets less than the least weight, which is 1.
    found[CONCENTRATION] = None if free is None or least is None else free / max(1.0, least)
    return found


def _of(kind: str) -> list[int]:
    return [place for place, of in enumerate(KINDS) if of == kind]


def rows(done: Done) -> Sequence[Row]:
    """By profile and policy, every metric that its runs have."""
    found: list[Row] = []
    groups: dict[tuple[str, str], dict[int, Mapping[str, float | None]]] = {}
    for trial, result in done:
        key = (text(trial, "profile"), text(trial, "policy"))
        groups.setdefault(key, {})[int(number(trial, "seed"))] = result
    for (profile, policy), by_seed in groups.items():
        for metric in next(iter(by_seed.values())):
            values = {seed: result.get(metric) for seed, result in by_seed.items()}
            unit = _unit(metric)
            found.append(mean_row(NAME, profile=profile, policy=policy, metric=metric, values=values, unit=unit))
    return found


def _unit(metric: str) -> str:
    if metric.startswith("E2E"):
        return "ms"
    return "x" if metric == CONCENTRATION else "" if metric.startswith("weight") else "%"


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """134:1 without configuration, and next to nothing refused."""
    checks: list[Check] = []
    for profile in dict.fromkeys(row.profile for row in found):
        ratio = measured(list(found), profile=profile, policy="weights", metric=CONCENTRATION)
        refused = measured(list(found), profile=profile, policy="weights", metric=NOT_REFUSED)
        if ratio is not None and refused is not None:
            checks += [
                at_least(f"{NAME}, {profile}: {CONCENTRATION}", ratio.value, 80.0, unit="x"),
                at_least(f"{NAME}, {profile}: {NOT_REFUSED} with weights", refused.value, 99.5, unit="%"),
            ]
    killed = measured(list(found), profile=KILLED_AT_12, policy="weights", metric="share of one killed H100")
    if killed is not None:
        name = f"{NAME}, {KILLED_AT_12}: share of the killed cell with weights"
        checks.append(at_most(name, killed.value, 0.0, unit="%"))
    return checks


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """Where requests went."""
    policies = list(dict.fromkeys(row.policy for row in found))
    series = []
    for kind in dict.fromkeys(KINDS):
        picked = [
            measured(list(found), profile=KILLED_AT_12, policy=policy, metric=f"share of one {kind}")
            for policy in policies
        ]
        series.append(Series(name=kind, x=policies, y=[None if row is None else row.value for row in picked]))
    return [
        Figure(
            name="shares",
            title=f"Share of the requests that one cell of each kind gets, {KILLED_AT_12}",
            kind="bars",
            x_label="policy",
            y_label="%",
            series=series,
            caption="From 20 s after the kill on; one request in ten is too long for the constrained cells.",
        )
    ]


_LENGTHS = "lengths and the share of long prompts are not published; here three cells carry what six did"
_OUT = "ours leaves out what takes no traffic: a share of 0, not of 1 in 539"
_LONG = (
    "30 % refused by two cells of six means that nine of ten prompts were too long for them; at 20 RPS the prefill of "
    "so many exceeds the other four, so ours has one in ten"
)


def _weight(kind: str, value: float, note: str) -> list[Published]:
    return [
        Published(
            profile=KILLED_AT_12,
            policy=policy,
            metric=f"weight of one {kind}",
            value=value,
            source=f"{SOURCE}, table 9",
            note=note,
        )
        for policy in (AS_PUBLISHED, "weights")
    ]


def _figure(profile: str, policy: str, metric: str, value: float, unit: str, note: str) -> Published:
    source = f"{SOURCE}, 6.9"
    return Published(profile=profile, policy=policy, metric=metric, value=value, unit=unit, source=source, note=note)


PUBLISHED = (
    *_weight("H200", 134, ""),
    *_weight("free H100", 134, ""),
    *_weight("killed H100", 1, _OUT),
    *_weight("constrained H100", 1, _OUT),
    _figure(KILLED_AT_12, ROUND_ROBIN, "E2E p50", 6_730, "ms", _LENGTHS),
    _figure(KILLED_AT_12, AS_PUBLISHED, "E2E p50", 5_970, "ms", _LENGTHS),
    _figure(KILLED_AT_12, ROUND_ROBIN, "E2E p99", 7_791, "ms", _LENGTHS),
    _figure(KILLED_AT_12, AS_PUBLISHED, "E2E p99", 7_042, "ms", _LENGTHS),
    _figure(WHOLE_AT_20, ROUND_ROBIN, NOT_REFUSED, 69.9, "%", _LONG),
    _figure(WHOLE_AT_20, AS_PUBLISHED, NOT_REFUSED, 99.9, "%", _LONG),
)

EXPERIMENT = Experiment(
    name=NAME,
    title="Six unequal cells, two of them constrained and one killed",
    question="Do weights find by themselves which cells are fast, which refuse and which are gone?",
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    published=PUBLISHED,
    notes=(
        f"{LONG_RATIO:.0%} of the requests have {LONG_TOKENS[0]:,} to {LONG_TOKENS[1]:,} prompt tokens, which the "
        f"constrained cells refuse with 400. Latencies and shares from {COUNTED_FROM_S:g} s on, refusals from the "
        "first request on: what is learned of a cell is learned from them."
    ),
)
