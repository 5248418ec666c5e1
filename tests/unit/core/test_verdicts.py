"""One cell's own errors against everybody's: verdicts, their release, and the way back."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from tests.unit.core.world import FakeCell, World, world
from tradewind.core.evidence import concentration, likelihood
from tradewind.core.outcomes import Kind, kind_of
from tradewind.core.recipe import WeightScorer
from tradewind.core.settings import ScoringSettings, VerdictSettings
from tradewind.core.verdicts import Judge, Phase
from tradewind.model.outcome import Outcome

LIMIT_BYTES = 4 * 1024


def refuses_long(size: int) -> int:
    return 400 if size > LIMIT_BYTES else 200


def serves(size: int) -> int:
    return 200


def mixed(rng: Random) -> int:
    """30 % of prompts between 1,500 and 4,000 tokens, the rest short."""
    return 4 * rng.randint(1500, 4000) if rng.random() < 0.3 else 4 * rng.randint(200, 700)


def verdicts(grid: World) -> list[str]:
    return [event.cell_id or "" for event in grid.events if event.name in ("verdict.refusal", "verdict.failure")]


def leak(grid: World, index: int, since_s: float, *, after: int = 20) -> float:
    longs = [(cell, status) for at_s, cell, size, status in grid.picked if at_s >= since_s and size > LIMIT_BYTES]
    late = longs[after:]
    return sum(cell == grid.cell(index).cell_id and status == 400 for cell, status in late) / len(late)


@pytest.mark.parametrize("seed", range(6))
def test_mismatch_leak_and_recovery(seed: int) -> None:
    grid = world(seed=seed, sizes=mixed).run(20.0)
    grid.cell(4).answer = refuses_long
    grid.run(140.0)
    assert leak(grid, 4, 20.0) <= 0.0043
    assert grid.cell(4).refused <= 3
    assert verdicts(grid) == ["c4"]
    grid.cell(4).answer = serves
    grid.run(170.0)
    assert grid.weight(4) >= 120


@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize("seed", range(3))
def test_a_verdict_on_long_requests_says_from_which_size_on(seed: int, noise: float) -> None:
    """Whatever clients do wrong everywhere."""
    rng = Random(seed)
    grid = world(seed=seed, sizes=mixed).run(20.0)
    for cell in grid.cells:
        cell.answer = lambda _size: 400 if rng.random() < noise else 200
    grid.cell(4).answer = lambda size: 400 if rng.random() < noise else refuses_long(size)
    grid.run(60.0)
    row = grid.row(4)
    assert row is not None
    assert row.drained
    ((model, least_bytes),) = row.refuses
    assert model == "m"
    assert 4 * 700 < least_bytes <= 4 * 4000
    assert verdicts(grid) == ["c4"]


def test_fc_01_a_cell_that_fails_fast_attracts_no_long_request() -> None:
    leaks = []
    for seed in range(4):
        grid = world(3, seed=seed, rate_per_s=20.0, sizes=lambda rng: 36_000 if rng.random() < 0.5 else 400)
        grid.cell(0).answer = refuses_long
        grid.run(16.0)
        leaks.append(leak(grid, 0, 0.0))
        assert {cell for _, cell, _, _ in grid.picked} == {"c0", "c1", "c2"}
    assert max(leaks) < 0.02


def client_errors(grid: World, *, count: int, size: int, spacing_s: float = 0.05) -> None:
    """Requests that every cell refuses, whatever it is."""

    def bad() -> None:
        cell_id = grid.pick.pick()
        cell = next(cell for cell in grid.cells if cell.cell_id == cell_id)
        grid._outcome(cell, size, status=400)

    for index in range(count):
        grid.at(grid.now_s + index * spacing_s, bad)


@pytest.mark.parametrize("cells", [3, 9])
@pytest.mark.parametrize("reproducible", [True, False])
def test_fc_02_errors_that_every_cell_gives_are_the_clients(cells: int, *, reproducible: bool) -> None:
    for seed in range(3):
        grid = world(cells, seed=seed).run(30.0)
        before = [grid.weight(index) for index in range(cells)]
        if reproducible:
            for cell in grid.cells:
                cell.answer = lambda size: 400 if size >= 9000 else 200
        client_errors(grid, count=50, size=9000 if reproducible else 2000)
        grid.run(60.0)
        assert verdicts(grid) == []
        for index in range(cells):
            assert abs(grid.weight(index) - before[index]) <= 0.1 * before[index]


def test_client_errors_that_drip_move_nothing() -> None:
    grid = world(9, seed=3).run(20.0)
    client_errors(grid, count=60, size=2000, spacing_s=0.5)
    grid.run(60.0)
    assert verdicts(grid) == []


def outcome(cell_id: str, **fields: object) -> Outcome:
    given: dict[str, object] = {"request_id": "r", "model": "m", "request_bytes": 2000, "response_bytes": 10}
    return Outcome(cell_id=cell_id, **{**given, **fields})  # type: ignore[arg-type]


def weight_after(fields: Callable[[], dict[str, object]]) -> int:
    grid = world(4, seed=1).run(20.0)
    for index in range(30):
        peer = outcome(f"c{1 + index % 3}", status=200, ttft_s=0.2)
        grid.scorer.observe_outcome(peer, grid.now_s)
        grid.scorer.observe_outcome(outcome("c0", **fields()), grid.now_s)
    grid.run(22.5)
    assert verdicts(grid) == ["c0"]
    return grid.weight(0)


def test_fc_15_an_error_inside_a_200_stream_counts_as_a_500() -> None:
    in_band = weight_after(lambda: {"status": 200, "stream_error_code": 500, "ttft_s": 0.1})
    assert in_band == weight_after(lambda: {"status": 500})
    assert in_band <= 1


def test_fc_15_a_200_without_a_body_is_a_failure() -> None:
    assert kind_of(outcome("c", status=200, response_bytes=0)) is Kind.FAILURE
    assert kind_of(outcome("c", status=200, stream_error_code=400, ttft_s=0.1)) is Kind.REFUSAL


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"status": 200}, Kind.SERVED),
        ({"status": 404}, Kind.REFUSAL),
        ({"status": 413}, Kind.REFUSAL),
        ({"status": 401}, Kind.IGNORED),
        ({"status": 500}, Kind.FAILURE),
        ({"status": 429}, Kind.BACKPRESSURE),
        ({"status": 503}, Kind.BACKPRESSURE),
        ({"status": 503, "flags": "UF,URX"}, Kind.UNREACHED),
        ({"status": 503, "flags": "UO"}, Kind.IGNORED),  # our own limit, not the cell's
        ({"status": 504, "flags": "UT"}, Kind.FAILURE),
        ({"status": 0, "flags": "DC", "client_cancelled": True}, Kind.IGNORED),
        ({"status": 400, "synthetic": True}, Kind.IGNORED),
    ],
)
def test_what_an_outcome_says_of_its_cell(fields: dict[str, object], kind: Kind) -> None:
    assert kind_of(outcome("c", **fields)) is kind


def test_backpressure_is_never_evidence() -> None:
    grid = world(4, seed=1).run(10.0)
    for _ in range(50):
        grid.scorer.observe_outcome(outcome("c0", status=503), grid.now_s)
    grid.run(11.0)
    assert verdicts(grid) == []
    assert 1 <= grid.weight(0) <= 30
    grid.run(30.0)
    assert grid.weight(0) >= 120


def test_a_503_that_was_retried_elsewhere_is_backpressure_of_the_cell_that_gave_it() -> None:
    grid = world(4, seed=1).run(10.0)
    for _ in range(50):
        retried = outcome("c1", status=200, attempted_cells=("c0", "c1"), attempt_failures=("503",))
        grid.scorer.observe_outcome(retried, grid.now_s)
    grid.run(11.0)
    assert verdicts(grid) == []
    assert 1 <= grid.weight(0) <= 30
    assert grid.weight(1) >= 100


# --- the judge alone --------------------------------------------------------------------------------------------

CELLS = tuple(f"c{index}" for index in range(9))


def judge(*, probes: bool = False) -> Judge:
    return Judge("m", Kind.REFUSAL, VerdictSettings(), probes=probes)


def phase_of(case: Judge, cell: str = "c0") -> Phase:
    return case.holds[cell].phase


def feed(case: Judge, pattern: str, now_s: float, *, size: int = 8000) -> None:
    """One request each: a digit is a cell that serves, a letter a..i the same cell refusing."""
    for character in pattern:
        refused = character.isalpha()
        cell = f"c{ord(character) - ord('a')}" if refused else f"c{character}"
        case.on_outcome(cell, size, error=refused, cells=CELLS, now_s=now_s)


def test_without_probes_likelihood_and_concentration_convict() -> None:
    case = judge()
    feed(case, "12345678" * 3 + "aa", 0.0)
    assert case.holds["c0"].phase is Phase.PENDING  # two of two: once in nine by chance, so it waits
    assert case.tick(CELLS, 1.1)
    assert case.held() == {"c0"}


def test_a_case_that_is_no_longer_concentrated_falls() -> None:
    case = judge()
    feed(case, "12345678" * 3 + "aa", 0.0)
    feed(case, "bcde", 0.5)
    case.tick(CELLS, 1.1)
    assert case.held() == frozenset()


def test_a_young_verdict_is_released_when_peers_refuse_the_same() -> None:
    case = judge()
    feed(case, "12345678" * 3 + "aaa", 0.0)
    case.tick(CELLS, 1.1)
    assert case.held() == {"c0"}
    feed(case, "bcdefghibcdefghi", 3.0)
    assert case.held() == frozenset()
    assert case.events[-1].name == "verdict.refusal.released"


def test_a_shorter_request_is_no_peer_of_a_long_one() -> None:
    case = judge()
    feed(case, "0123456789"[:9] * 40, 0.0, size=400)
    feed(case, "12345678", 0.0)
    feed(case, "aaa", 0.1)
    case.tick(CELLS, 1.2)
    assert case.held() == {"c0"}  # forty short successes of its own do not absolve it


def test_a_verdict_that_size_does_not_explain_is_about_all() -> None:
    case = judge()
    for turn in range(4):
        for size in (400, 8000):
            feed(case, "0a12345678", 0.3 * turn, size=size)
    case.tick(CELLS, 3.0)
    assert case.held() == {"c0"}
    assert case.holds["c0"].refused_from <= 400


def test_a_verdict_outlives_a_restart_with_its_size() -> None:
    case, again = judge(), judge()
    feed(case, "12345678" * 3 + "aa", 0.0)
    case.tick(CELLS, 1.1)
    again.recall(case.remembered(2.0), CELLS, 50.0)
    assert again.holds["c0"].refused_from == case.holds["c0"].refused_from == 5793


def test_a_held_cell_that_refuses_shorter_requests_too_is_held_for_them() -> None:
    case = judge()
    feed(case, "012345678" * 3, 0.0, size=400)
    feed(case, "12345678" * 3 + "aa", 0.0)
    assert case.tick(CELLS, 1.1)
    assert case.holds["c0"].refused_from == 5793
    for turn in range(3):
        feed(case, "a12345678", 2.0 + turn, size=3000)
    assert case.holds["c0"].refused_from == 2897
    feed(case, "0" * 20 + "a" + "12345678" * 3, 5.0, size=400)
    assert case.holds["c0"].refused_from == 2897, "one error is nobody's"
    for turn in range(6):
        feed(case, "a12345678", 6.0 + turn, size=400)
    assert case.holds["c0"].refused_from in (0, 363)


def test_without_probes_a_canary_asks_for_the_way_back() -> None:
    case = judge()
    feed(case, "12345678" * 3 + "aaa", 0.0)
    case.tick(CELLS, 1.1)
    assert case.orders(CELLS, Random(1), 2.0) == []
    case.tick(CELLS, 130.0)
    assert phase_of(case) is Phase.CANARY
    feed(case, "a", 131.0)
    assert phase_of(case) is Phase.HELD
    case.tick(CELLS, 300.0)
    assert phase_of(case) is Phase.HELD  # the second hold is twice as long
    case.tick(CELLS, 372.0)
    feed(case, "000", 373.0)
    assert case.held() == frozenset()


def test_probes_that_prove_nothing_give_way_to_the_canary() -> None:
    case = judge(probes=True)

    def convict(now_s: float) -> None:
        feed(case, "12345678" * 3 + "aaa", now_s)
        case.tick(CELLS, now_s + 1.1)
        assert case.held() == {"c0"}

    convict(0.0)
    case.experiment = None
    for now_s in (7.0, 10.0):
        assert [order.cell_id for order in case.orders(CELLS, Random(1), now_s)] == ["c0"]
        case.on_probe("c0", 200, now_s=now_s)
    assert case.held() == frozenset()
    convict(20.0)
    assert case.holds["c0"].by_canary


def test_an_experiment_needs_two_refusals_and_a_peer_that_serves() -> None:
    case = judge(probes=True)
    feed(case, "12345678a", 0.0)
    rng = Random(1)
    for _ in range(2):
        assert [order.cell_id for order in case.orders(CELLS, rng, 0.1)] == ["c0"]
        assert case.orders(CELLS, rng, 0.1) == []
        case.on_probe("c0", 400, now_s=0.2)
    (order,) = case.orders(CELLS, rng, 0.3)
    assert order.cell_id != "c0"
    assert case.on_probe(order.cell_id, 200, now_s=0.8)
    assert case.held() == {"c0"}


@pytest.mark.parametrize("answers", [[200], [400, 200], [400, 400, 400], [0], [429], [400, 500]])
def test_an_experiment_that_finds_nothing_convicts_nobody_and_waits_longer(answers: list[int]) -> None:
    case = judge(probes=True)
    feed(case, "12345678a", 0.0)
    for answer in answers:
        for order in case.orders(CELLS, Random(1), 0.1):
            case.on_probe(order.cell_id, answer, now_s=0.2)
    assert case.held() == frozenset()
    assert case.experiment is None
    feed(case, "a", 1.0, size=100)
    assert case.experiment is None


def test_a_lost_probe_is_asked_again() -> None:
    case = judge(probes=True)
    feed(case, "12345678" * 3 + "aaa", 0.0)
    case.tick(CELLS, 1.1)
    case.experiment = None
    assert case.orders(CELLS, Random(1), 7.0)
    assert not case.orders(CELLS, Random(1), 8.0)
    case.tick(CELLS, 40.0)
    assert case.orders(CELLS, Random(1), 40.0)


def test_a_new_engine_starts_with_a_clean_record() -> None:
    grid = world(9, seed=2, sizes=mixed, probes_work=False)
    grid.cell(4).answer = refuses_long
    grid.run(60.0)
    assert verdicts(grid) == ["c4"]
    assert grid.weight(4) <= 1
    grid.cell(4).answer = serves
    grid.cell(4).incarnation = "i2"
    grid.run(62.0)
    assert grid.weight(4) >= 100


def test_the_only_cell_is_never_convicted() -> None:
    grid = world(1, seed=1)
    grid.cell(0).answer = lambda size: 400
    grid.run(30.0)
    assert grid.weight(0) == 134


def test_likelihood_and_concentration_by_hand() -> None:
    assert likelihood(2, 2, 1.0, 0.003) == pytest.approx(11.6, abs=0.1)
    assert concentration(3, 3, 9) == pytest.approx(1 / 81)
    assert concentration(1, 1, 9) == 1.0
    assert concentration(10, 1, 9) == 1.0
    assert concentration(2, 3, 9) == 0.0
    assert concentration(5, 5, 1) == 1.0
    assert concentration(1000, 400, 9) < 1e-6 < concentration(1000, 130, 9)


def test_evidence_is_bounded() -> None:
    case = judge()
    for index in range(3 * VerdictSettings().max_records):
        case.on_outcome(f"c{index % 9}", 1000, error=False, cells=CELLS, now_s=0.0)
    held = sum(sum(bins.values()) for bins in case.evidence.requests.values()) + case.evidence.open.count
    assert VerdictSettings().max_records - 2 * VerdictSettings().span_records <= held <= VerdictSettings().max_records
    assert sum(span.count for span in case.evidence.spans) + case.evidence.open.count == held


def test_a_stated_limit_keeps_every_long_prompt_away() -> None:
    cells = [FakeCell(f"c{index}", max_model_len=131_072) for index in range(9)]
    cells[4] = FakeCell("c4", max_model_len=1024, answer=refuses_long)
    grid = World(cells, scorer=WeightScorer(ScoringSettings()), seed=1, sizes=mixed).run(60.0)
    assert grid.cell(4).refused == 0
    assert grid.weight(4) == 0
    assert [event.name for event in grid.events if event.cell_id == "c4"] == ["capability.short"]


def test_a_limit_that_becomes_known_between_two_seconds_counts_at_once() -> None:
    cells = [FakeCell(f"c{index}", max_model_len=131_072) for index in range(9)]
    grid = World(cells, scorer=WeightScorer(ScoringSettings()), seed=1, sizes=mixed).run(30.0)
    views = [cell.view(grid.now_s) for cell in cells]
    capabilities = replace(views[4].cell.capabilities, max_model_len=1024)
    views[4] = replace(views[4], cell=replace(views[4].cell, capabilities=capabilities))
    assert grid.scorer.observe_view(tuple(views), grid.now_s + 0.1), "a tick should not wait"
    decision = grid.scorer.tick(grid.now_s + 0.1, Random(1))
    assert decision.push
    assert [row.cell_id for row in decision.rows if row.drained] == ["c4"]
