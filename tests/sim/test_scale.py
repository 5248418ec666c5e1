"""Fleets of any size, a policy with its CPU counted, and the rows of `scale`."""

from tradewind.lab.experiments import scale
from tradewind.lab.harness.experiment import Options
from tradewind.lab.harness.row import measured
from tradewind.lab.simulated.metered import Metered
from tradewind.lab.simulated.policies import maker
from tradewind.sim.fleets import fleet
from tradewind.sim.grid import SimGrid
from tradewind.sim.policy import Policy
from tradewind.sim.scenario import Scenario


def test_load_and_documents_grow_with_the_fleet() -> None:
    small, large = (fleet(cells, rate_per_cell=0.5, for_s=20.0, disturbance="clean") for cells in (10, 100))
    traces = [SimGrid(of, maker("envoy_round_robin"), seed=1).journal.entries for of in (small, large)]
    assert len({cell.cell_id for cell in large.cells}) == 100
    assert [cell.site for cell in small.cells] == ["a-near"] * 4 + ["b-middle"] * 3 + ["c-far"] * 3
    assert 8 < len(traces[1]) / len(traces[0]) < 12
    documents = [len({entry.traced.block_ids[0] for entry in trace}) for trace in traces]
    assert documents[0] <= 40 < documents[1] <= 400


def test_a_metered_policy_decides_as_the_one_inside_and_counts() -> None:
    scenario = fleet(9, rate_per_cell=0.5, for_s=12.0, disturbance="D")
    meters: list[Metered] = []

    def make(of: Scenario) -> Policy:
        meters.append(Metered(maker("weights")(of)))
        return meters[-1]

    plain, metered = (SimGrid(scenario, by, seed=4).run() for by in (maker("weights"), make))
    assert plain.trace_hash == metered.trace_hash
    assert meters[0].decisions == len(plain.records)
    assert min(meters[0].deciding_s, meters[0].learning_s, meters[0].hearing_s) > 0.0


def test_the_quick_form_gives_each_metric_for_each_size_and_policy() -> None:
    options = Options(quick=True, policies=("envoy_round_robin", "cost"))
    done = [(trial, scale.run(trial)) for trial in scale.plan(options)]
    rows = list(scale.rows(done))
    for cells in scale.QUICK_SIZES:
        over = measured(rows, profile=scale.profile_of(cells), policy="cost", metric=f"{scale.TTFT} {scale.OVER}")
        assert over is not None
        assert over.value is not None
        assert over.value > 0.8
    assert len(scale.claims(rows)) == 4
    assert [len(figure.series) for figure in scale.figures(rows)] == [2, 2, 2, 2]
