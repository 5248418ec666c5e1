"""A grid does not start on ports that somebody has: two Envoys would share one, and each would get half."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tradewind.config.resolve import write_resolved
from tradewind.config.schema import ControlConfig, GatewayConfig, GridConfig
from tradewind.lab.ports import address_fault, taken, wait_until_free
from tradewind.lab.up import run_gateway, run_up, with_free_ports
from tradewind.runtime.supervise import StartFailed


@contextmanager
def shared() -> Iterator[str]:
    """A port that is held as Envoy holds its own: open to whoever asks for SO_REUSEPORT."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield f"127.0.0.1:{held.getsockname()[1]}"


def test_a_port_that_another_envoy_would_share_is_taken() -> None:
    with shared() as address:
        grid = GridConfig(gateways=[GatewayConfig(id="other"), GatewayConfig(listen=address)])
        assert [(item.where, item.address) for item, _ in taken(grid)] == [("$.gateways[1].listen", address)]
        assert not taken(grid, within="$.gateways[0].")
        with pytest.raises(StartFailed, match=rf"\$\.gateways\[1\]\.listen: {address}: Address already in use"):
            wait_until_free(grid, patience_s=0)
    assert not address_fault(address)
    wait_until_free(grid, patience_s=0)


def test_what_is_about_to_end_is_waited_for() -> None:
    with shared() as address:
        looking = threading.Thread(
            target=wait_until_free,
            args=(GridConfig(gateways=[GatewayConfig(listen=address)]),),
            kwargs={"patience_s": 20},
        )
        looking.start()
    looking.join(10)
    assert not looking.is_alive()


def test_up_and_gateway_refuse_a_port_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.lab.ports.PATIENCE_S", 0)
    file = tmp_path / "grid.yaml"
    with shared() as address:
        file.write_text(f"gateways: [{{id: g, listen: '{address}'}}]")
        with pytest.raises(StartFailed, match="port 0 for any free one"):
            run_up(file, say=print, ready=print)
        grid = GridConfig(state_dir=str(tmp_path), gateways=[GatewayConfig(id="g", listen=address)])
        with pytest.raises(StartFailed, match="Address already in use"):
            run_gateway(grid, file, grid.gateways[0], say=print)


def test_a_settled_port_that_was_taken_since_is_settled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.lab.ports.PATIENCE_S", 0)
    grid = GridConfig(state_dir=str(tmp_path), controls=[ControlConfig()], gateways=[])
    first = with_free_ports(grid)
    write_resolved(first)
    assert with_free_ports(grid) == first
    with shared() as address:
        write_resolved(GridConfig(state_dir=str(tmp_path), controls=[ControlConfig(admin=address)], gateways=[]))
        assert with_free_ports(grid).controls[0].admin not in (address, "127.0.0.1:0")
