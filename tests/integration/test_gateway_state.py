"""A gateway process with real control streams and without Envoy: what it publishes, remembers, reports and survives."""

import subprocess
import threading
import time
from pathlib import Path

import grpc
import msgspec
from envoy.service.accesslog.v3 import als_pb2

from tests.fakes.engine import FakeEngine
from tests.fakes.views import ViewControl, ready_cell
from tests.support.envoy import free_port
from tests.support.gateway import gateway_rig
from tests.support.loglines import line, message
from tradewind.config.schema import GatewayConfig
from tradewind.gateway.files import socket_path
from tradewind.model.cell import CellState


def test_fc_40_nothing_is_published_before_a_view_and_an_empty_control_removes_nothing(tmp_path: Path) -> None:
    with FakeEngine() as engine, ViewControl() as control, gateway_rig(tmp_path, [control.address], envoy=False) as rig:
        rig.until(lambda: control.streams == 1)
        assert rig.status()["publishing"] is False
        control.show(ready_cell("east-0", engine.address))
        rig.until(lambda: rig.weights() == {"east-0": 134})
        control.kill()
        control.revive(empty=True)
        rig.until(lambda: control.streams == 1)
        rig.until(lambda: rig.status()["control_live"])
        assert rig.weights() == {"east-0": 134}
        control.show(ready_cell("east-0", engine.address))
        control.remove("east-0")
        rig.until(lambda: rig.weights() == {})


def test_fc_40_a_restart_with_control_dead_starts_from_disk(tmp_path: Path) -> None:
    with FakeEngine() as engine, ViewControl() as control, gateway_rig(tmp_path, [control.address], envoy=False) as rig:
        control.show(ready_cell("east-0", engine.address), ready_cell("east-1", "127.0.0.1:9"))
        saved = Path(rig.config.state_dir) / "gateway-gw" / "view.json"
        rig.until(lambda: saved.exists() and b"east-1" in saved.read_bytes())
        control.kill()
        rig.kill()
        rig.start()
        status = rig.status()
        assert status["from_disk"] is True
        assert status["publishing"] is True
        assert "view.restored" in [name for name, _ in rig.events()]
        rig.until(lambda: list(rig.weights()) == ["east-0"])  # its own evidence: nobody listens at the other


def test_fc_40_a_corrupt_saved_view_is_said_and_survived(tmp_path: Path) -> None:
    with FakeEngine() as engine, ViewControl() as control, gateway_rig(tmp_path, [control.address], envoy=False) as rig:
        assert rig.stop() == 0
        saved = Path(rig.config.state_dir) / "gateway-gw" / "view.json"
        saved.write_bytes(b'{"cells": [')
        control.show(ready_cell("east-0", engine.address))
        rig.start()
        rig.until(lambda: rig.weights() == {"east-0": 134})
        process = rig.status()["process"]
        assert isinstance(process, dict)
        assert process["saved_view_failures"] == 1
        rig.until(lambda: b"east-0" in saved.read_bytes())


def test_two_controls_are_merged_and_one_may_die(tmp_path: Path) -> None:
    with (
        FakeEngine() as engine,
        ViewControl("a") as a,
        ViewControl("b") as b,
        gateway_rig(tmp_path, [a.address, b.address], envoy=False) as rig,
    ):
        a.show(ready_cell("east-0", engine.address))
        b.show(ready_cell("east-0", engine.address))
        rig.until(lambda: rig.weights() == {"east-0": 134} and rig.status()["control_live"])
        a.kill()
        b.change("east-0", state=CellState.DRAINING, draining=True)
        rig.until(lambda: rig.weights() == {})


def test_reports_carry_paths_and_weights_and_follow_a_lost_path_at_once(tmp_path: Path) -> None:
    with (
        FakeEngine() as engine,
        FakeEngine() as other,
        ViewControl() as control,
        gateway_rig(tmp_path, [control.address], envoy=False) as rig,
    ):
        control.show(ready_cell("east-0", engine.address), ready_cell("east-1", other.address))

        def reported() -> dict[str, bool | None]:
            return {path.cell_id: path.reachable for path in control.reports[-1].paths} if control.reports else {}

        rig.until(lambda: reported() == {"east-0": True, "east-1": True})
        rig.until(lambda: control.reports[-1].paths[0].rtt_s is not None)
        assert dict(control.reports[-1].weights) == {"east-0": 134, "east-1": 134}
        before = control.reports[-1].sequence
        engine.kill()
        rig.until(lambda: reported().get("east-0") is False)
        assert control.reports[-1].sequence > before
        assert rig.stop() == 0


def test_fc_48_reload_valid_invalid_valid_and_removed_cells_leave_no_prober(tmp_path: Path) -> None:
    with (
        FakeEngine() as engine,
        FakeEngine() as other,
        ViewControl() as control,
        gateway_rig(tmp_path, [control.address], envoy=False) as rig,
    ):
        control.show(ready_cell("east-0", engine.address), ready_cell("east-1", other.address))
        rig.until(lambda: len(rig.weights()) == 2)

        def process() -> dict[str, object]:
            found = rig.status()["process"]
            assert isinstance(found, dict)
            return found

        tasks = process()["tasks"]
        assert isinstance(tasks, int)
        rig.grid_file.write_text('{"models": [')
        rig.until(lambda: process()["config_failures"] == 1)
        assert process()["config_error"]
        assert len(rig.weights()) == 2
        rig.grid_file.write_bytes(msgspec.json.encode(msgspec.structs.replace(rig.config, models=["later"])))
        rig.until(lambda: any(pool["model"] == "later" for pool in rig.status()["pools"]))  # type: ignore[attr-defined]
        assert not process()["config_error"]
        control.remove("east-1")
        rig.until(lambda: process()["tasks"] == tasks - 1)
        seen = len(other.requests())
        rig.until(lambda: len(engine.requests("/health")) >= 3)
        assert len(other.requests()) == seen


def test_a_bad_address_and_a_malformed_peer_cost_their_neighbours_nothing(tmp_path: Path) -> None:
    with FakeEngine() as engine, ViewControl() as control, gateway_rig(tmp_path, [control.address], envoy=False) as rig:
        control.show(
            ready_cell("east-0", engine.address),
            ready_cell("east-1", "not an address"),
            ready_cell("east-2", engine.address),
        )
        rig.until(lambda: "snapshot.refused" in [name for name, _ in rig.events()])
        push = rig.status()["push"]
        assert isinstance(push, dict)
        assert [text.partition(":")[0] for text in push["refused"]] == ["east-1", "east-2"]


def test_fc_64_metrics_of_removed_cells_disappear(tmp_path: Path) -> None:
    with FakeEngine() as engine, ViewControl() as control, gateway_rig(tmp_path, [control.address], envoy=False) as rig:
        control.show(*(ready_cell(f"east-{number}", engine.address) for number in range(3)))

        def page() -> bytes:
            return rig.page("/metrics")

        rig.until(lambda: b'tradewind_gateway_cell_ready{cell="east-2"} 1.0' in page())
        control.remove("east-2")
        rig.until(lambda: b"east-2" not in page())
        assert len(page()) < 2**20
        assert b"tradewind_gateway_loop_lag_seconds" in page()


def test_fc_65_a_flood_of_outcomes_and_a_hundred_cells_do_not_starve_the_loop(tmp_path: Path) -> None:
    with FakeEngine() as engine, ViewControl() as control, gateway_rig(tmp_path, [control.address], envoy=False) as rig:
        control.show(*(ready_cell(f"east-{number}", f"127.0.1.{number}:{engine.port}") for number in range(1, 101)))
        rig.until(lambda: len(rig.weights()) == 100)
        flood = threading.Thread(target=send_entries, args=(str(socket_path(rig.config, "gw")), 5_000, engine.port))
        flood.start()
        slowest_s = 0.0
        while flood.is_alive():
            begin_s = time.monotonic()
            assert rig.get_admin("/healthz") is not None
            slowest_s = max(slowest_s, time.monotonic() - begin_s)
        flood.join()

        def process() -> dict[str, float]:
            found = rig.status()["process"]
            assert isinstance(found, dict)
            return found

        rig.until(lambda: process()["outcomes"] == 5_000)
        assert process()["outcomes_unattributed"] == 0
        assert slowest_s < 5.0  # some ms on a machine that does nothing else
        assert rig.status()["control_live"] is True


def send_entries(socket: str, count: int, port: int) -> None:
    """Access log entries as Envoy sends them, a hundred a message."""
    data = message([line("r" * 36, host=f"127.0.1.7:{port}", duration_ms=900)] * 100)
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        call = channel.stream_unary(
            "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs",
            request_serializer=bytes,
            response_deserializer=als_pb2.StreamAccessLogsResponse.FromString,
        )
        call(iter([data] * (count // 100)), timeout=120)


def test_what_is_in_the_way_of_a_gateway_is_said_and_ends_it_before_it_touches_anything(tmp_path: Path) -> None:
    """Its admin address, its folder in use by a twin, and a folder that cannot be."""
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    with ViewControl() as control, gateway_rig(tmp_path, [control.address], envoy=False) as rig:
        elsewhere = GatewayConfig(id="gw", site="east", listen="127.0.0.1:1", admin=f"127.0.0.1:{free_port()}")
        cases = {
            rig.gateway.admin: msgspec.structs.replace(rig.config, state_dir=str(tmp_path / "other")),
            "gateway.lock is held": msgspec.structs.replace(rig.config, gateways=[elsewhere]),
            "Not a directory": msgspec.structs.replace(rig.config, state_dir=str(blocked), gateways=[elsewhere]),
        }
        for expected, config in cases.items():
            rig.grid_file.with_name("second.json").write_bytes(msgspec.json.encode(config))
            argv = [*rig.argv[:-2], str(rig.grid_file.with_name("second.json")), "gw"]
            second = subprocess.run(argv, capture_output=True, timeout=60, check=False)
            assert second.returncode == 1
            last = second.stderr.decode().strip().splitlines()[-1]
            assert "gateway.cannot_start" in last
            assert expected in last
        assert socket_path(rig.config, "gw").exists()
