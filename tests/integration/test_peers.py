"""The static Envoys that stand beside Tradewind: the real Envoy takes each file."""

import json
import subprocess
from pathlib import Path

import pytest

from tradewind.gateway.envoy import executable
from tradewind.lab.peers.envoy_config import POLICIES, static_config
from tradewind.lab.peers.workers import Worker

WORKERS = [
    Worker(cell=f"c{number}", site=f"s{number % 2}", address=f"127.0.0.1:{9_000 + number}") for number in range(4)
]


@pytest.mark.parametrize("policy", POLICIES)
def test_envoy_takes_the_file(policy: str, tmp_path: Path) -> None:
    path = tmp_path / "envoy.json"
    path.write_text(json.dumps(static_config(policy, WORKERS, listen="127.0.0.1:0", admin="127.0.0.1:0")))
    argv = [executable(), "--mode", "validate", "--config-path", str(path), "--use-dynamic-base-id"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr[-2_000:]
