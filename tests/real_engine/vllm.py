"""Starts and ends one real vLLM in its own process group."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.contract.engine import LIMITS, MODEL, Limits
from tests.real_engine.install import BUILD, MODEL_DIR, VENV

READY_TIMEOUT_S = 300.0  # 26-60 s on two idle cores
END_TIMEOUT_S = 15.0
KV_CACHE_BYTES = 33_554_432

# Default OpenMP threads let two instances on two cores ruin each other. Development mode adds /pause and /resume.
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "KMP_BLOCKTIME": "0",
    "OMP_WAIT_POLICY": "PASSIVE",
}


class RealEngine:
    """A running vLLM. Starting it blocks until it serves: 26-60 s on two cores."""

    def __init__(self, *, port: int = 0, limits: Limits = LIMITS, kv_events: str = "") -> None:
        """`kv_events`: where it publishes them, e.g. "ipc:///tmp/kv"; "" = nowhere."""
        self.port = port or _free_port()
        self.log = BUILD / f"vllm-{self.port}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                _command(self.port, limits, kv_events),
                stdout=log,
                stderr=log,
                env=_environment(),
                start_new_session=True,
            )
        guard = Path(__file__).with_name("guard.py")
        self._guard = subprocess.Popen([sys.executable, str(guard), str(self._process.pid)], stdin=subprocess.PIPE)
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Of the API server."""
        return self._process.pid

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        # The group, not the process: engine processes outlive their API server.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(END_TIMEOUT_S)

    def close(self) -> None:
        self.kill()
        self._guard.terminate()
        self._guard.communicate()

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not _healthy(self.port):
            if self._process.poll() is not None:
                raise RuntimeError(f"vLLM ended with {self._process.returncode} while starting, see {self.log}")
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"vLLM not ready within {READY_TIMEOUT_S:.0f} s, see {self.log}")
            time.sleep(0.25)


def _command(port: int, limits: Limits, kv_events: str) -> list[str]:
    events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": kv_events, "topic": "kv"}
    flags = {
        **({"--kv-events-config": json.dumps(events)} if kv_events else {}),
        "--model": str(MODEL_DIR),
        "--host": "127.0.0.1",
        "--port": str(port),
        "--served-model-name": MODEL,
        "--max-model-len": str(limits.max_model_len),
        "--max-num-seqs": str(limits.max_num_seqs),
        "--max-num-queued-reqs": str(limits.max_num_queued_reqs),
        "--dtype": "float32",
        "--block-size": "32",
        "--kv-cache-memory-bytes": str(KV_CACHE_BYTES),
        "--scheduling-policy": "priority",
    }
    switches = [
        "--enforce-eager",
        "--enable-prefix-caching",
        "--enable-prompt-tokens-details",
        "--enable-request-id-headers",
        "--enable-server-load-tracking",
    ]
    module = [str(VENV / "bin" / "python"), "-W", "ignore", "-m", "vllm.entrypoints.openai.api_server"]
    return module + [part for flag in flags.items() for part in flag] + switches


def _environment() -> dict[str, str]:
    return os.environ | _ENVIRONMENT | {"PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2.0)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
