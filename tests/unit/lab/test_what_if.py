"""A grid file as a fleet, and what a what-if does to it; whatever is not said is asked for."""

from pathlib import Path

import pytest

from tradewind.config.load import parse
from tradewind.config.schema import GridConfig
from tradewind.lab.experiments.what_if.changes import changed
from tradewind.lab.experiments.what_if.fleet import Fleet, fleet_of, profile_named
from tradewind.lab.experiments.what_if.load import load_of
from tradewind.lab.experiments.what_if.setup import Setup, SetupError, setup_of
from tradewind.workload.files import write_trace
from tradewind.workload.named import make_trace

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
TWO = """
sites: [north-1, south]
gateways: [{site: south%s}]
cells:
  - {id: n-0, site: north-1, url: "http://127.0.0.1:8000", hardware: NVIDIA H100 80GB HBM3}
  - {id: s-0, site: south, url: "http://127.0.0.1:8001"}
"""


def setup(**changes: object) -> Setup:
    return Setup(grid="grid.yaml", grid_hash="", **changes)  # type: ignore[arg-type]


def example() -> GridConfig:
    return parse((EXAMPLES / "three-sites.yaml").read_text())


def fleet() -> Fleet:
    return fleet_of(example(), setup()).fleet


def ids(of: Fleet) -> list[str]:
    return [cell.cell_id for cell in of.cells]


def test_an_emulated_grid_says_everything() -> None:
    described = fleet_of(example(), setup())
    found = described.fleet
    assert (len(found.cells), found.sites, found.policy) == (9, ["east", "south", "west"], "weights")
    assert found.gateways == ("east",)
    assert found.rtts_s[frozenset(("east", "west"))] == pytest.approx(0.022)
    assert found.jitter_s == pytest.approx((0.002 + 0.004 + 0.004) / 3)
    assert any(line.startswith("9 cells as profile rtx-pro-6000") for line in described.assumed)


def test_a_real_grid_is_asked_for_what_it_does_not_say_and_then_served() -> None:
    grid = parse(TWO % "")
    with pytest.raises(SetupError, match=r"does not say what s-0 runs on; write --hardware s-0=h100"):
        fleet_of(grid, setup(rtt="40ms"))
    with pytest.raises(SetupError, match=r"how far north-1-south is; write --rtt north-1-south=40ms"):
        fleet_of(grid, setup(hardware="h200"))
    described = fleet_of(grid, setup(hardware="south=h200", rtt="north-1-south=31.5ms"))
    assert [cell.profile.name for cell in described.fleet.cells] == ["h100", "h200"]
    assert described.fleet.rtts_s[frozenset(("south", "north-1"))] == pytest.approx(0.0315)
    assert "0.5 ms within a site" in described.assumed
    assert fleet_of(grid, setup(hardware="h200", rtt="0.05s")).fleet.rtts_s[frozenset(("south", "north-1"))] == 0.05


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"hardware": "east=h100"}, "there is no cell or site 'east'"),
        ({"hardware": "abacus"}, "no profile for 'abacus'; known: rtx-pro-6000"),
        ({"hardware": "h100", "rtt": "40"}, "'40' is no time; write 40ms or 0.04s"),
        (
            {"hardware": "h100", "rtt": "north-south=4ms"},
            "'north-south' does not name two sites; write e.g. north-1-south",
        ),
    ],
)
def test_options_that_make_no_sense_say_what_to_write(options: dict[str, str], told: str) -> None:
    with pytest.raises(SetupError, match=told):
        fleet_of(parse(TWO % ""), setup(**options))


@pytest.mark.parametrize(
    ("section", "policy"),
    [
        ("", "weights"),
        (", scoring: published", "published:10"),
        (", baseline: 'least-request:N'", "envoy_least_request:N"),
        (", baseline: round-robin", "envoy_round_robin"),
        (", routing: pick, pick: {policy: 'gorgo:.5/.1'}", "gorgo:.5/.1"),
    ],
)
def test_gateways_decide_as_the_file_says(section: str, policy: str) -> None:
    found = fleet_of(parse(TWO % section), setup(hardware="h100", rtt="9ms")).fleet
    assert found.policy == policy
    assert fleet_of(parse(TWO % section), setup(hardware="h100", rtt="9ms", policy="cost")).fleet.policy == "cost"


def test_gateways_that_differ_and_pools_that_differ_are_asked_about() -> None:
    two = (TWO % "").replace("[{site: south}]", "[{id: a, site: south}, {id: b, site: south, routing: pick}]")
    with pytest.raises(SetupError, match="decide by weights and cost; write --policy"):
        fleet_of(parse(two), setup(hardware="h100", rtt="9ms"))
    text = (EXAMPLES / "three-sites.yaml").read_text().replace("{cell: east-0}", "{cell: east-0, model: small}")
    with pytest.raises(SetupError, match="serves demo-70b, small, and one pool is simulated; write --model demo-70b"):
        fleet_of(parse(text), setup())
    assert ids(fleet_of(parse(text), setup(model="small")).fleet) == ["east-0"]


def test_boards_are_known_by_the_names_that_exporters_give_them() -> None:
    named = ("NVIDIA H100 80GB HBM3", "NVIDIA-L40S", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "fast", "TPU v5e")
    assert [found.name if (found := profile_named(name)) else None for name in named] == [
        "h100",
        "2xl40s",
        "rtx-pro-6000",
        "fast",
        None,
    ]


def test_each_what_if_does_what_it_says() -> None:
    base = fleet()
    assert ids(changed(base, "add:west:2"))[-2:] == ["west-added-0", "west-added-1"]
    assert ids(changed(base, "lose:west")) == [name for name in ids(base) if not name.startswith("west")]
    assert ids(changed(base, "lose:west-1")) == [name for name in ids(base) if name != "west-1"]
    assert changed(base, "policy:gorgo:.5/.1").policy == "gorgo:.5/.1"
    assert changed(base, "load:1.5,load:2").load == 3.0
    slow = {cell.cell_id: cell.profile for cell in changed(base, "slow:east-0:0.5").cells}
    assert (slow["east-0"].b_s, slow["east-0"].name) == (2 * slow["east-1"].b_s, slow["east-1"].name)
    assert changed(base, "rtt:west-east:100ms").rtts_s[frozenset(("east", "west"))] == 0.1
    both = changed(base, "lose:south, add:east:1:h200")
    assert ids(both)[3] == "east-added-0"
    assert both.cells[3].profile.name == "h200"


def test_cells_keep_their_numbers_and_new_ones_get_new_numbers() -> None:
    base = fleet()
    numbers = {cell.cell_id: cell.number for cell in base.cells}
    after = changed(base, "lose:east-0,add:east:1,add:east:1")
    assert {cell.cell_id: cell.number for cell in after.cells if cell.cell_id in numbers}.items() <= numbers.items()
    assert sorted(cell.number for cell in after.cells if cell.cell_id not in numbers) == [9, 10]


@pytest.mark.parametrize(
    ("what_if", "told"),
    [
        ("more", "write one of add:SITE:COUNT"),
        ("add:mars:1", "there is no site 'mars'; write one of east, south, west"),
        ("add:east:none", "write add:east:COUNT"),
        ("add:east:1:abacus", "no profile for 'abacus'"),
        ("lose:mars", "there is no site or cell 'mars'"),
        ("lose:east", "no gateway is left, since all are in east"),
        ("lose:west,lose:south,lose:east-0,lose:east-1,lose:east-2", "no cell is left"),
        ("load:0", "'0' is no factor above 0"),
        ("slow:east-0:fast", "'fast' is no factor"),
        ("slow:mars:0.5", "there is no site or cell 'mars'"),
        ("rtt:east-mars:5ms", "'east-mars' does not name two sites"),
        ("rtt:east-west:5", "'5' is no time"),
    ],
)
def test_a_what_if_that_makes_no_sense_says_what_to_write(what_if: str, told: str) -> None:
    with pytest.raises(SetupError, match=told):
        changed(fleet(), what_if)


def test_a_window_of_a_trace_is_the_seeds_own_and_load_takes_more_of_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    write_trace(path, make_trace("baseline_mixed", seed=1, rate_per_s=5.0, for_s=200.0))
    made = setup(trace=str(path), for_s=50.0)
    (one, for_s), (same, _), (other, _) = (load_of(made, seed=seed, factor=1.0) for seed in (1, 1, 2))
    assert for_s == pytest.approx(50.0)
    assert one == same != other
    assert all(0.0 <= item.at_s < 50.0 for item in one.requests)
    (more, more_s) = load_of(made, seed=1, factor=2.0)
    assert more_s <= 50.0
    assert len(more.requests) / more_s == pytest.approx(2 * len(one.requests) / for_s, rel=0.25)
    assert [item.prompt_tokens for item in more.requests[:20]] == [item.prompt_tokens for item in one.requests[:20]]


def test_loads_that_cannot_be_had_say_why(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{}\n")
    for made, told in (
        (setup(trace=str(tmp_path / "none.csv")), "cannot be read"),
        (setup(trace=str(broken)), "broken.jsonl"),
        (setup(workload="nobody", rate_per_s=1.0), "unknown workload 'nobody'"),
        (setup(workload="baseline_mixed", rate_per_s=0.001, for_s=1.0), "no request within 1 s"),
    ):
        with pytest.raises(SetupError, match=told):
            load_of(made, seed=1, factor=1.0)


def test_a_setup_survives_being_a_trials_arguments() -> None:
    made = setup(trace="a.csv", rtt="a-b=4ms", check=True)
    assert setup_of({**made.args(), "seed": 1, "what_if": "lose:west"}) == made
