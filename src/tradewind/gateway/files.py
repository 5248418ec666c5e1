"""Where a gateway keeps its socket, bootstrap, saved view and request log."""

import hashlib
import logging
import os
import tempfile
from pathlib import Path

from tradewind.config.schema import GatewayConfig, GridConfig
from tradewind.gateway.envoy import EnvoyConfig, bootstrap_json
from tradewind.runtime.log import log_event

log = logging.getLogger(__name__)

MAX_SOCKET_PATH_BYTES = 100  # the kernel takes 107; Envoy appends nothing, gRPC neither


def find_gateway(config: GridConfig, gateway_id: str) -> GatewayConfig | None:
    """The section of this gateway."""
    return next((item for item in config.gateways if item.id == gateway_id), None)


def gateway_dir(config: GridConfig, gateway_id: str) -> Path:
    """The directory of one gateway below state_dir."""
    return Path(config.state_dir).absolute() / f"gateway-{gateway_id}"


def pick_socket_path(config: GridConfig, gateway_id: str) -> Path:
    """The Unix socket of the picker, where `socket_path` puts sockets."""
    return _socket(gateway_dir(config, gateway_id) / "pick.sock")


def socket_path(config: GridConfig, gateway_id: str) -> Path:
    """The Unix socket for ADS and access log; in the temporary directory when state_dir is too deep for a socket."""
    return _socket(gateway_dir(config, gateway_id) / "xds.sock")


def _socket(path: Path) -> Path:
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tradewind-{os.getuid()}" / f"{name}.sock"


def bootstrap_path(config: GridConfig, gateway_id: str) -> Path:
    """The bootstrap that a supervised Envoy is started with."""
    return gateway_dir(config, gateway_id) / "envoy-bootstrap.json"


def envoy_config(config: GridConfig, gateway: GatewayConfig) -> EnvoyConfig:
    """What this gateway's Envoy is started with."""
    return EnvoyConfig(
        node_id=gateway.id,
        site=gateway.site,
        admin=gateway.envoy_admin,
        socket_path=str(socket_path(config, gateway.id)),
        pick_socket_path=str(pick_socket_path(config, gateway.id)),
        grid=config.grid,
    )


def bootstrap_text(config: GridConfig, gateway: GatewayConfig) -> str:
    """The bootstrap as text, for `--config-path` or for an operator's own Envoy."""
    return bootstrap_json(envoy_config(config, gateway))


def prepare(config: GridConfig, gateway: GatewayConfig) -> None:
    """Make the directories and write the bootstrap; a disk that refuses is said, an old bootstrap may still do.

    Raises OSError only when there is no directory for the socket.
    """
    socket_path(config, gateway.id).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = bootstrap_path(config, gateway.id)
    partial = path.with_suffix(".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(bootstrap_text(config, gateway), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        log_event(log, "bootstrap.not_written", level=logging.ERROR, path=path, error=error)
