"""What must hold for any readings, orders and histories."""

import math
from dataclasses import fields, replace
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tradewind.core.lifecycle import Beat, Drain, Life, LifeEvent, Tick, Word, step
from tradewind.core.lowdisc import CreditPick
from tradewind.core.registry import Registry
from tradewind.core.scoring import ScoringSettings, WeightScorer, make_scorer, routing
from tradewind.core.windows import counter_delta, histogram_delta, quantile, ttft_quantile
from tradewind.model.cell import Capabilities, Cell, CellState
from tradewind.model.heartbeat import Evidence, Heartbeat
from tradewind.model.outcome import Outcome
from tradewind.model.telemetry import EngineReading, GpuReading, Histogram, Telemetry
from tradewind.model.view import CellView, GatewayReport, PathReading

ANY = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.sampled_from([0.0, 0.5, 1.0, 37.5, -1.0]))
AGE = st.one_of(st.none(), st.floats(0, 10), st.sampled_from([math.nan, math.inf, -3.0]))
BUCKETS = st.lists(ANY.map(lambda value: 0.0 if value is None else value), max_size=6).map(tuple)
HISTOGRAM = st.builds(Histogram, bounds=BUCKETS, counts=BUCKETS)
EASY = settings(deadline=None)  # a busy machine is no failure
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def numbers(kind: type, **given_fields: object) -> st.SearchStrategy[object]:
    names = [field.name for field in fields(kind) if field.name not in given_fields]
    return st.fixed_dictionaries(dict.fromkeys(names, ANY)).map(lambda values: kind(**values, **given_fields))


ENGINE = st.builds(
    lambda reading, ttft: replace(reading, ttft_s=ttft),
    numbers(EngineReading, ttft_s=None, itl_s=None, sleeping=None),
    st.one_of(st.none(), HISTOGRAM),
)
GPU = numbers(GpuReading, gpus=1, throttle_bits=0, xid=None)
TELEMETRY = st.builds(
    Telemetry,
    engine=st.one_of(st.none(), ENGINE),
    engine_age_s=AGE,
    gpu=st.one_of(st.none(), GPU),
    gpu_age_s=AGE,
    gpu_interval_s=AGE,
)


def view(cell_id: str, telemetry: Telemetry, *, state: CellState = CellState.READY, silent: bool = False) -> CellView:
    cell = Cell(cell_id=cell_id, site="s", address="a:1", capabilities=Capabilities(models=("m",), hardware="h100"))
    return CellView(cell=cell, state=state, incarnation="i", sequence=1, telemetry=telemetry, silent=silent)


PATH = st.builds(PathReading, cell_id=st.sampled_from(["c0", "c1", "c2"]), rtt_s=ANY, jitter_s=ANY)
OUTCOME = st.builds(
    Outcome,
    request_id=st.just("r"),
    cell_id=st.sampled_from(["c0", "c1", "c2", None, "nobody"]),
    model=st.sampled_from(["m", None, "other"]),
    status=st.sampled_from([0, 200, 400, 404, 429, 500, 503]),
    flags=st.sampled_from(["", "UF", "UC,URX", "UO", "DC"]),
    request_bytes=st.integers(0, 10**9),
    ttft_s=ANY,
    retry_after_s=ANY,
    prompt_tokens=st.one_of(st.none(), st.integers(-5, 10**9)),
    stream_error_code=st.sampled_from([None, 400, 500]),
)
SECOND = st.tuples(
    st.lists(TELEMETRY, min_size=3, max_size=3),
    st.lists(PATH, max_size=3),
    st.lists(OUTCOME, max_size=5),
    st.lists(st.booleans(), min_size=3, max_size=3),
)


@QUICK
@given(st.lists(SECOND, min_size=1, max_size=6), st.sampled_from(["recipe", "published", "published-v2"]))
def test_weights_are_integers_from_1_to_134_whatever_comes(seconds: list[object], scoring: str) -> None:
    scorer, rng = make_scorer(scoring, "", ScoringSettings()), Random(1)
    for index, (telemetries, paths, outcomes, silents) in enumerate(seconds):  # type: ignore[misc]
        now_s = float(index)
        views = tuple(view(f"c{i}", telemetries[i], silent=silents[i]) for i in range(3))  # type: ignore[has-type]
        scorer.observe_view(views, now_s)
        for path in paths:  # type: ignore[has-type]
            scorer.observe_path(path, now_s)
        for outcome in outcomes:  # type: ignore[has-type]
            scorer.observe_outcome(outcome, now_s)
        decision = scorer.tick(now_s, rng)
        assert [row.cell_id for row in decision.rows] == ["c0", "c1", "c2"]
        for row in decision.rows:
            assert isinstance(row.weight, int)
            assert 1 <= row.weight <= 134
            assert row.pressure is None or 0.0 <= row.pressure <= 1.0
            assert all(value is None or 0.0 <= value <= 1.0 for _, value in row.signals)
            assert all(math.isfinite(value) for value in (row.speed, row.ramp, row.backpressure, row.capacity))
        assert routing(decision, views, {}).pools[0].endpoints  # a pool with READY cells is never empty


@QUICK
@given(st.lists(TELEMETRY, min_size=4, max_size=4), st.permutations(range(4)))
def test_order_does_not_matter_and_the_best_has_134(telemetries: list[Telemetry], order: list[int]) -> None:
    views = [view(f"c{index}", telemetry) for index, telemetry in enumerate(telemetries)]
    results = []
    for arranged in (views, [views[index] for index in order]):
        scorer = WeightScorer(ScoringSettings())
        scorer.observe_view(tuple(arranged), 1.0)
        results.append(scorer.tick(1.0, Random(1)).rows)
    weights, others = ([(row.cell_id, row.weight, row.signals) for row in rows] for rows in results)
    assert weights == others
    seeing = [row.weight for row in results[0] if not row.blind and not row.drained and not row.reason]
    assert not seeing or max(seeing) == 134


@QUICK
@given(TELEMETRY, st.lists(TELEMETRY, min_size=2, max_size=2))
def test_one_cells_readings_change_no_other_cells_signals(good: Telemetry, bad: list[Telemetry]) -> None:
    results = []
    for other in bad:
        scorer = WeightScorer(ScoringSettings())
        scorer.observe_view((view("c0", good), view("c1", other)), 1.0)
        results.append(scorer.tick(1.0, Random(1)).rows[0].signals)
    assert repr(results[0]) == repr(results[1])


@EASY
@given(ANY, ANY)
def test_a_counters_growth_is_unknown_or_not_negative(old: float | None, new: float | None) -> None:
    growth = counter_delta(old, new)
    assert growth is None or (math.isfinite(growth) and growth >= 0)


@EASY
@given(HISTOGRAM, HISTOGRAM, st.floats(0.01, 0.99))
def test_a_quantile_is_unknown_or_within_the_bounds(old: Histogram, new: Histogram, q: float) -> None:
    growth = histogram_delta(old, new)
    found = quantile(growth, q)
    if growth is not None:
        assert list(growth.counts) == sorted(growth.counts)
        assert growth.counts[0] >= 0
    assert found is None or found.value <= max(bound for bound in new.bounds if math.isfinite(bound))
    quick = ttft_quantile(old, new, q)
    assert (quick is None) == (found is None) or quick is not None


# --- life cycle -------------------------------------------------------------------------------------------------

EVIDENCE = st.builds(
    Evidence,
    reachable=st.sampled_from([None, True, False]),
    model_listed=st.sampled_from([None, True, False]),
    warmed_up=st.sampled_from([None, True, False]),
    draining=st.booleans(),
)
BEAT = st.builds(
    Heartbeat,
    cell=st.sampled_from(["x:1", "y:1"]).map(lambda address: Cell(cell_id="c", site="s", address=address)),
    incarnation=st.sampled_from(["b1", "b2", "b3"]),
    sequence=st.integers(0, 20),
    evidence=EVIDENCE,
    telemetry=st.just(Telemetry()),
)
WORD = st.builds(
    Word,
    gateway_id=st.sampled_from(["g", "h"]),
    reading=st.builds(
        PathReading,
        cell_id=st.just("c"),
        reachable=st.sampled_from([None, True, False]),
        succeeded=st.integers(0, 5),
        failed=st.integers(0, 5),
    ),
)
EVENT: st.SearchStrategy[LifeEvent] = st.one_of(
    st.builds(Beat, heartbeat=BEAT), WORD, st.just(Tick()), st.builds(Drain, on=st.booleans())
)
HISTORY = st.lists(st.tuples(st.floats(0, 2), EVENT), max_size=40)


@EASY
@given(HISTORY)
def test_a_life_keeps_its_promises_over_any_history(history: list[tuple[float, LifeEvent]]) -> None:
    life, now_s = Life(cell=Cell(cell_id="c", site="s", address="x:1")), 0.0
    for gap_s, event in history:
        now_s += gap_s
        before = life
        life, events = step(life, event, now_s)
        again, _ = step(life, event, now_s)
        assert (again.state, again.incarnation, again.sequence) == (life.state, life.incarnation, life.sequence)
        if life.incarnation == before.incarnation:
            assert life.sequence >= before.sequence
            assert not isinstance(event, Beat) or life.cell == before.cell or life.sequence > before.sequence
        if life.state is CellState.READY:
            assert life.evidence is not None
            assert life.evidence.reachable
            assert life.evidence.model_listed
            assert life.evidence.warmed_up
            assert not life.drained
        if life.state is not before.state:
            assert f"cell.{life.state.value}" in [item.name for item in events]
        assert len(life.old) <= 16


@QUICK
@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from("abc"), st.booleans()), max_size=30))
def test_silence_and_failing_paths_of_all_cells_never_empty_the_grid(words: list[tuple[float, str, bool]]) -> None:
    registry, now_s = Registry(), 0.0
    serving = Evidence(reachable=True, model_listed=True, warmed_up=True)
    for name in "abc":
        cell = Cell(cell_id=name, site="s", address="x:1")
        beat = Heartbeat(cell=cell, incarnation="i", sequence=1, evidence=serving, telemetry=Telemetry())
        registry.on_heartbeat(beat, now_s)
    for sequence, (gap_s, _, reachable) in enumerate(words):
        now_s += gap_s
        paths = tuple(PathReading(cell_id=name, reachable=reachable) for name in "abc")
        registry.on_report(GatewayReport(gateway_id="g", site="s", sequence=100 + sequence, paths=paths), now_s)
        assert [item.state for item in registry.view(now_s)] == [CellState.READY] * 3


@QUICK
@given(st.lists(st.integers(1, 134), min_size=2, max_size=8), st.integers(0, 1000))
def test_no_run_of_a_hundred_exceeds_a_share_by_two(weights: list[int], seed: int) -> None:
    pick = CreditPick(Random(seed))
    pick.update({str(index): weight for index, weight in enumerate(weights)})
    picks = [pick.pick() for _ in range(400)]
    for key, share in pick.shares.items():
        for start in range(300):
            assert picks[start : start + 100].count(key) < 100 * share + 2.0
