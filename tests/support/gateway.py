"""A gateway process and its real Envoy for tests, each ended by its own pid; a test may kill and start them again."""

import contextlib
import http.client
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from tests.support.envoy import RunningEnvoy, free_port, running_envoy
from tradewind.config.schema import ControlConfig, GatewayConfig, GridConfig
from tradewind.gateway.files import bootstrap_path, envoy_config

_START = (
    "import sys; from pathlib import Path; from tradewind.config.load import load; "
    "from tradewind.gateway.main import run; "
    "path = Path(sys.argv[1]); sys.exit(run(load(path), sys.argv[2], grid_file=path))"
)

PATIENCE_S = 60.0  # a shared machine stands still now and then; it costs nothing where all is well


@dataclass(frozen=True)
class Answer:
    """One HTTP response read to its end, or what came before it broke (`whole` False)."""

    status: int
    body: bytes
    whole: bool = True
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Rig:
    """What a test holds: addresses, the two processes, and a client."""

    config: GridConfig
    gateway: GatewayConfig
    grid_file: Path
    log: Path
    process: subprocess.Popen[bytes] | None = None
    envoy: RunningEnvoy | None = None

    @property
    def port(self) -> int:
        return int(self.gateway.listen.rpartition(":")[2])

    @property
    def argv(self) -> list[str]:
        """How the gateway process is started."""
        return [sys.executable, "-c", _START, str(self.grid_file), self.gateway.id]

    def start(self) -> None:
        """Start the gateway process."""
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(self.argv, stdout=out, stderr=out)
        self.until(lambda: self.get_admin("/healthz") is not None)

    def kill(self) -> None:
        """kill -9 of the gateway process."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def get_admin(self, path: str) -> bytes | None:
        """One admin page, None when there is no answer (200 only)."""
        try:
            with urllib.request.urlopen(f"http://{self.gateway.admin}{path}", timeout=5) as answer:
                return bytes(answer.read())
        except OSError:
            return None

    def page(self, path: str) -> bytes:
        """One admin page. A process that lives may be slow to answer on a busy machine; one that errs may not."""
        began_s = time.monotonic()
        while True:
            try:
                with urllib.request.urlopen(f"http://{self.gateway.admin}{path}", timeout=10) as answer:
                    return bytes(answer.read())
            except urllib.error.HTTPError as error:
                raise AssertionError(f"{path}: {error.code}: {self.log.read_text()[-4000:]}") from error
            except OSError as error:
                lives = self.process is not None and self.process.poll() is None
                why = f"{path}: {error!r}, {'lives' if lives else 'has ended'}: {self.log.read_text()[-4000:]}"
                assert lives, why
                assert time.monotonic() - began_s < PATIENCE_S, why
                time.sleep(0.05)

    def status(self) -> dict[str, "object"]:
        """The status document."""
        decoded = json.loads(self.page("/v1/status"))
        assert isinstance(decoded, dict)
        return decoded

    def weights(self, model: str = "m") -> dict[str, int]:
        """Weights of one pool as Envoy was told; empty when there is no such pool."""
        pools = self.status()["pools"]
        assert isinstance(pools, list)
        return next((pool["weights"] for pool in pools if pool["model"] == model), {})

    def events(self) -> list[tuple[str, str | None]]:
        """(name, cell id) of every event kept, oldest first."""
        page = self.page("/v1/events?limit=1000")
        return [(row["name"], row["cell_id"]) for row in json.loads(page)["events"]]

    def until(self, holds: Callable[[], object], *, within_s: float = PATIENCE_S) -> float:
        """Poll until `holds()`; seconds waited. Raises TimeoutError with the gateway's log."""
        started_s = time.monotonic()
        while not holds():
            if time.monotonic() - started_s > within_s:
                raise TimeoutError(self.log.read_text(errors="replace")[-6000:])
            time.sleep(0.01)
        return time.monotonic() - started_s

    def serving(self, *cells: str, model: str = "m") -> None:
        """Wait until exactly these cells are in the pool and Envoy holds that."""

        def holds() -> bool:
            envoy = self.status()["envoy"]
            assert isinstance(envoy, dict)
            return sorted(self.weights(model)) == sorted(cells) and bool(envoy["settled"])

        self.until(holds)

    def post(self, body: object, *, path: str = "/v1/chat/completions", timeout_s: float = 30.0) -> Answer:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            try:
                return Answer(response.status, response.read(), headers=dict(response.getheaders()))
            except http.client.IncompleteRead as cut:
                return Answer(response.status, cut.partial, whole=False)
        except (OSError, http.client.HTTPException):
            return Answer(0, b"", whole=False)
        finally:
            connection.close()

    def ask(self, prompt: str = "hi", *, model: str = "m", stream: bool = False) -> Answer:
        """One small chat request."""
        message = {"role": "user", "content": prompt}
        return self.post({"model": model, "messages": [message], "max_tokens": 4, "stream": stream})

    def ask_many(self, prompts: Sequence[str], *, at_once: int = 8) -> list[Answer]:
        """Many requests, `at_once` in flight."""
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(self.ask, prompts))


class Load:
    """Requests at a steady rate in the background until the block ends."""

    def __init__(self, rig: Rig, *, per_s: float) -> None:
        self.answers: list[Answer] = []
        self._rig = rig
        self._gap_s = 1.0 / per_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._pool = ThreadPoolExecutor(16)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._pool.shutdown(wait=True)

    @property
    def failed(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.status != 200 or not answer.whole]

    def _run(self) -> None:
        while not self._stop.wait(self._gap_s):
            self._pool.submit(lambda: self.answers.append(self._rig.ask()))


@contextlib.contextmanager
def gateway_rig(
    directory: Path,
    controls: Sequence[str],
    *,
    envoy: bool = True,
    models: Sequence[str] = (),
    allow_policy_files: bool = False,
    **settings: object,
) -> Iterator[Rig]:
    """A started gateway for controls at these addresses and, unless told otherwise, its Envoy."""
    ports = [free_port() for _ in range(3)]
    gateway = GatewayConfig(
        id="gw",
        site="east",
        listen=f"127.0.0.1:{ports[0]}",
        admin=f"127.0.0.1:{ports[1]}",
        envoy_admin=f"127.0.0.1:{ports[2]}",
        **settings,  # type: ignore[arg-type]
    )
    config = GridConfig(
        state_dir=str(directory / "state"),
        models=list(models),
        controls=[ControlConfig(id=f"control-{number}", listen=listen) for number, listen in enumerate(controls)],
        gateways=[gateway],
        allow_policy_files=allow_policy_files,
    )
    grid_file = directory / "grid.json"
    grid_file.write_bytes(msgspec.json.encode(config))
    rig = Rig(config, gateway, grid_file, directory / "gateway.log")
    with contextlib.ExitStack() as stack:
        rig.start()
        stack.callback(lambda: rig.process and rig.process.poll() is None and rig.stop())
        if envoy:
            assert bootstrap_path(config, gateway.id).exists()
            rig.envoy = stack.enter_context(running_envoy(envoy_config(config, gateway), directory))
        yield rig
