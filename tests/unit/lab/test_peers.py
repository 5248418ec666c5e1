"""Peers: who is named, what is planned where one is missing, what becomes of records and counters."""

from pathlib import Path

import pytest

from tradewind.lab.client import LoadClient, Target
from tradewind.lab.emulated import Counters, hit_ratio, largest_share
from tradewind.lab.experiments import peers as experiment
from tradewind.lab.harness.experiment import Argument, Options, Trial
from tradewind.lab.peers import install, places
from tradewind.lab.peers.overhead import Turn, best, instant_grid
from tradewind.lab.peers.phases import differences, kill_figures
from tradewind.lab.peers.specs import PEERS, Place, UnknownPeerError, peers_named
from tradewind.lab.peers.workers import Worker, workers_of
from tradewind.measure.record import Failure, Record
from tradewind.workload.plan import Planned


def installed(home: Path, name: str, version: str) -> None:
    (home / name / "lib/python3.11/site-packages" / f"{name.replace('-', '_')}-{version}.dist-info").mkdir(parents=True)


def test_a_version_is_that_of_the_peers_own_environment(tmp_path: Path) -> None:
    assert places.version("vllm-router", tmp_path) is None
    installed(tmp_path, "vllm-router", "0.1.17")
    assert places.version("vllm-router", tmp_path) == "0.1.17"
    assert places.version("envoy", tmp_path) is not None


@pytest.mark.parametrize("name", places.PACKAGES)
def test_what_is_installed_is_pinned_with_hashes(name: str, tmp_path: Path) -> None:
    pinned = places.requirements(name).read_text()
    lines = [line for line in pinned.splitlines() if line and not line.startswith((" ", "#"))]
    assert any(line.startswith(f"{name}==") for line in lines)
    assert all("==" in line and line.endswith("\\") for line in lines)
    version = next(line for line in lines if line.startswith(f"{name}==")).split("==")[1].split()[0]
    installed(tmp_path, name, version)
    assert install.install(name, tmp_path) == f"{name} {version}: is there"


def test_a_peer_that_cannot_be_installed_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = install.install("smg", tmp_path / "file")
    assert line.startswith("smg: skipped, ")
    assert install.main(["smgg"]) == 2


def test_a_package_stands_for_its_policies_and_an_unknown_name_is_told() -> None:
    assert peers_named(None) == PEERS
    assert [peer.name for peer in peers_named(["smg", "envoy:ring_hash"])] == [
        "smg:cache_aware",
        "smg:least_load",
        "envoy:ring_hash",
    ]
    with pytest.raises(UnknownPeerError, match=r"'envoyy'; known: tradewind:weights"):
        peers_named(["envoyy"])


def test_every_command_line_names_every_engine(tmp_path: Path) -> None:
    workers = [Worker(cell=f"c{number}", site="s", address=f"127.0.0.1:{9_000 + number}") for number in range(3)]
    place = Place(workers=workers, port=8_000, admin_port=8_001, folder=tmp_path)
    for peer in PEERS:
        if peer.argv is None:
            continue
        said = " ".join(peer.argv(place))
        said += (tmp_path / "envoy.json").read_text() if peer.package == "envoy" else ""
        assert all(worker.address.rpartition(":")[2] in said for worker in workers), peer.name
        assert "8000" in said


def test_workers_stand_behind_the_gateways_own_paths(tmp_path: Path) -> None:
    grid = instant_grid(PEERS[1], [7_001, 7_002], folder=tmp_path)
    assert grid.gateways[0].routing == "pick"
    assert [worker.url for worker in workers_of(grid)] == ["http://127.0.0.1:7001", "http://127.0.0.1:7002"]


def test_a_missing_peer_is_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "version", lambda name: None if name == "smg" else "1")
    trials = experiment.plan(Options(policies=("smg:cache_aware", "envoy:ring_hash"), seeds=2))
    absent, *others = trials
    assert absent.args["phase"] == "absent"
    # The router's own cost has no seed.
    assert [trial.args["phase"] for trial in others] == [
        "chat",
        "chat",
        "mismatch",
        "mismatch",
        "kill",
        "kill",
        "instant",
    ]
    (row,) = experiment.rows([(absent, experiment.run(absent))])
    assert (row.value, row.metric, row.policy) == (None, "not installed: make peers", "smg cache_aware (absent)")


def chat(peer: str, ttft_p95_s: float) -> tuple[Trial, dict[str, float | None]]:
    args: dict[str, Argument] = {"peer": peer, "version": "1", "phase": "chat", "seed": 3, "quick": False}
    return Trial(experiment="peers", args=args), {"ttft_p95_s": ttft_p95_s, "hit_ratio": None, "requests": 7}


def test_rows_have_the_unit_and_the_version_and_keep_what_is_unknown() -> None:
    rows = experiment.rows([chat("smg:cache_aware", 0.25)])
    by_metric = {row.metric: row for row in rows}
    assert (by_metric["TTFT p95"].value, by_metric["TTFT p95"].unit, by_metric["TTFT p95"].n) == (250.0, "ms", 7)
    assert by_metric["prefix hits of prompt tokens"].value is None
    assert {row.policy for row in rows} == {"smg cache_aware (1)"}


def test_the_table_is_wanted_with_both_routers_and_three_policies_of_envoy() -> None:
    names = ("vllm-router:cache_aware", "smg:cache_aware", "envoy:round_robin", "envoy:ring_hash")
    rows = experiment.rows([chat(name, 0.5) for name in names])
    held = {check.name.rpartition(" of ")[2]: check.holds for check in experiment.claims(rows)}
    assert held == {"vllm-router that ran": True, "smg that ran": True, "envoy that ran": False}
    more = [*rows, *experiment.rows([chat("envoy:least_request", 0.4), chat("tradewind:pick", 0.2)])]
    checks = experiment.claims(more)
    assert all(check.holds is not False for check in checks)
    (ours,) = [check for check in checks if "TTFT p95 of pick" in check.name]
    assert (ours.value, ours.note) == (0.5, "envoy least_request (1)")


def test_a_kill_tells_what_was_lost_from_what_was_cut_and_what_came_later() -> None:
    def record(sent_s: float, failure: Failure, content_s: float | None) -> Record:
        return Record(request_id="r", intended_s=sent_s, sent_s=sent_s, failure=failure, content_s=content_s)

    found = kill_figures(
        [
            record(1.0, Failure.NONE, 1.2),
            record(4.0, Failure.BYTES_DELIVERED, 4.5),
            record(4.9, Failure.HEADERS_ONLY, None),
            record(7.5, Failure.REFUSED, None),
        ],
        killed_s=5.0,
    )
    assert (found["lost"], found["cut"], found["sent_later_and_failed"], found["failing_for_s"]) == (2, 1, 1, 2.5)


def test_of_turns_the_least_disturbed_counts_and_failures_all_count() -> None:
    def turn(added_ms: float, rps: float, cpu_us: float, failures: int) -> Turn:
        return Turn(
            added_p50_ms=added_ms, added_p99_ms=2 * added_ms, answers=100, failures=failures, max_rps=rps, cpu_us=cpu_us
        )

    found = best([turn(5.0, 900.0, 70.0, 1), turn(0.3, 800.0, 60.0, 0), turn(9.0, 100.0, 90.0, 2)])
    assert (found["added_p50_ms"], found["added_p99_ms"]) == (0.3, 0.6)
    assert (found["max_rps"], found["router_cpu_us"]) == (900.0, 70.0)
    assert (found["failures"], found["turns"], found["requests"]) == (3, 3, 300)


def test_hits_and_shares_are_unknown_where_one_engine_is() -> None:
    def count(finished: float | None, prompt: float, hits: float) -> Counters:
        return Counters(finished=finished, prompt_tokens=prompt, hit_tokens=hits)

    known = differences({"a": count(1, 10, 5), "b": count(0, 0, 0)}, {"a": count(4, 30, 15), "b": count(1, 20, 0)})
    assert hit_ratio(known) == 0.25
    assert largest_share(known) == 0.75
    lost = differences({"a": count(1, 10, 5), "b": count(0, 0, 0)}, {"a": count(4, 30, 15)})
    assert hit_ratio(lost) is None
    assert largest_share(lost) is None


def test_a_request_may_have_headers_of_its_own() -> None:
    planned = Planned(request_id="r", at_s=0.0, prompt_tokens=16, output_tokens=1, kind="7")
    client = LoadClient(
        Target(address="127.0.0.1:1", model="m"), headers_of=lambda planned: (("x-session-id", planned.kind),)
    )
    assert b"\r\nx-session-id: 7\r\n" in client._request(planned)
