"""Asks the Envoy that will run whether it takes the gate: `--mode validate` on a cluster that holds nothing else.

One child at a time, each with a time limit. What Envoy said is kept beside the gateway's state, for as long as the
executable and the module are the same; what was only too slow is asked again at the next start.
"""

import hashlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from envoy.config.bootstrap.v3 import bootstrap_pb2
from google.protobuf.json_format import MessageToJson

from tradewind.config.schema import GatewayConfig
from tradewind.gateway.gate.choice import Finding, Findings
from tradewind.runtime.log import log_event
from tradewind.xds.cluster import build_cluster
from tradewind.xds.gate.filter import native_source, wasm_code
from tradewind.xds.settings import GateModule, XdsSettings

log = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 30.0  # a busy machine; an idle one takes half a second
COMPILE_TIMEOUT_S = 60.0
SEARCH_PATH = "ENVOY_DYNAMIC_MODULES_SEARCH_PATH"
COMPILERS = ("cc", "gcc", "clang")
MAX_WHY_CHARS = 300
_LIBRARY = "tradewind_gate_"
_LOG_PREFIX = re.compile(r"^(?:\[[^\]]*\]\s*)+(?:error initializing configuration '[^']*': )?")


def library_dir(folder: Path) -> Path:
    """Where a gateway with this folder keeps its native gate; Envoy is told by SEARCH_PATH."""
    return folder / "gate"


def find_out(gateway: GatewayConfig, executable: str, folder: Path) -> Findings:
    """Ask what this gateway's `mode` needs to know. `folder` is the gateway's own. Never raises for what Envoy does."""
    mode = gateway.gate.mode
    if mode == "none" or gateway.envoy == "external":
        return Findings()
    prober = Prober(executable, folder)
    found = Findings(envoy=prober.version())
    if mode in ("auto", "wasm"):
        found = replace(found, wasm=prober.wasm())
    if mode == "native" or (mode == "auto" and not found.wasm.accepted):
        native, library = prober.native()
        found = replace(found, native=native, library=library)
    prober.keep()
    return found


class _Kept(msgspec.Struct):
    """The file of answers: what was asked -> what Envoy said."""

    version: dict[str, str] = {}
    accepted: dict[str, tuple[bool, str]] = {}


@dataclass(frozen=True, slots=True)
class Ended:
    """A child: its exit code, None when it was too slow or could not be started, and what it said."""

    code: int | None
    text: str


class Prober:
    """One Envoy executable."""

    def __init__(self, executable: str, folder: Path, *, timeout_s: float = PROBE_TIMEOUT_S) -> None:
        self._executable = executable
        self._folder = folder
        self._timeout_s = timeout_s
        self._identity = _identity(executable)
        self._old = _read(folder / "gate.json")
        self._new = _Kept()
        self.children = 0  # started

    def version(self) -> str:
        """As Envoy tells it, e.g. 1.40.0."""
        known = self._old.version.get(self._identity)
        if known is None:
            ended = self._run([self._executable, "--version"])
            parts = ended.text.rpartition("version:")[2].strip().split("/")
            if ended.code != 0 or len(parts) < 2:
                return "unknown"
            known = parts[1]
        self._new.version[self._identity] = known
        return known

    def wasm(self) -> Finding:
        """Whether Envoy takes the module."""
        return self.accepts(GateModule(code=wasm_code()))

    def native(self) -> tuple[Finding, str]:
        """Whether Envoy takes the library, which is built if it is not there yet; and the library's name."""
        source = native_source()
        library = _LIBRARY + hashlib.sha256(source.encode()).hexdigest()[:12]
        path = library_dir(self._folder) / f"lib{library}.so"
        if not path.is_file():
            fault = self._build(source, path)
            if fault:
                return Finding(accepted=False, why=fault), ""
        return self.accepts(GateModule(library=library)), library

    def accepts(self, module: GateModule) -> Finding:
        """Envoy's own verdict on a cluster with this gate."""
        asked = hashlib.sha256(module.code + module.library.encode()).hexdigest() + self._identity
        known = self._old.accepted.get(asked)
        if known is None:
            ended = self._validate(module)
            if ended.code is None:
                return Finding(accepted=False, why=ended.text)
            known = (ended.code == 0, "" if ended.code == 0 else _reason(ended.text))
        self._new.accepted[asked] = known
        return Finding(accepted=known[0], why=known[1])

    def keep(self) -> None:
        """Write what was found, in one step; a disk that refuses costs the next start its time."""
        if self._new == self._old:
            return
        path = self._folder / "gate.json"
        draft = path.with_suffix(".draft")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(msgspec.json.encode(self._new))
            draft.replace(path)
        except OSError as error:
            log_event(log, "gate.not_kept", level=logging.WARNING, path=path, error=error)

    def _validate(self, module: GateModule) -> Ended:
        with tempfile.TemporaryDirectory(prefix="tradewind-gate-") as place:
            config = Path(place) / "envoy.json"
            config.write_text(probe_bootstrap(module), encoding="utf-8")
            arguments = ("--config-path", str(config), "--log-level", "error", "--concurrency", "1")
            command = [self._executable, "--mode", "validate", *arguments, "--disable-hot-restart"]
            return self._run(command, env={SEARCH_PATH: str(library_dir(self._folder))})

    def _build(self, source: str, path: Path) -> str:
        """Compile; "" or why not."""
        compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
        if compiler is None:
            return "there is no C compiler"
        draft = path.with_suffix(f".{os.getpid()}.draft")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = path.with_suffix(".c")
            text.write_text(source, encoding="utf-8")
            command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(draft), str(text)]
            ended = self._run(command, timeout_s=COMPILE_TIMEOUT_S)
            if ended.code != 0:
                return f"{compiler} failed: {_reason(ended.text)}"
            draft.replace(path)
        except OSError as error:
            return f"cannot be built in {path.parent}: {error.strerror or error}"
        return ""

    def _run(self, command: list[str], *, env: dict[str, str] | None = None, timeout_s: float = 0.0) -> Ended:
        timeout_s = timeout_s or self._timeout_s
        self.children += 1
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Ended(None, f"{command[0]} took longer than {timeout_s:g} s")
        except OSError as error:
            return Ended(None, f"{command[0]} cannot be run: {error.strerror or error}")
        return Ended(done.returncode, done.stdout.decode("utf-8", "replace"))


def probe_bootstrap(module: GateModule) -> str:
    """A bootstrap with one cluster, as pools have it, and nothing else."""
    cluster = build_cluster("probe", XdsSettings(listen="127.0.0.1:0", gate=module))
    cluster.ClearField("eds_cluster_config")
    cluster.type = cluster.STATIC
    cluster.load_assignment.cluster_name = "probe"
    bootstrap = bootstrap_pb2.Bootstrap()
    bootstrap.static_resources.clusters.append(cluster)
    return str(MessageToJson(bootstrap))


def _identity(executable: str) -> str:
    """Equal for the same file: a new wheel has another size or time."""
    try:
        path = Path(executable).resolve()
        told = path.stat()
    except OSError:
        return executable
    return f"{path}:{told.st_size}:{told.st_mtime_ns}"


def _read(path: Path) -> _Kept:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Kept)
    except (OSError, msgspec.DecodeError, RecursionError):
        return _Kept()


def _reason(text: str) -> str:
    """The first error that was logged, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "[error]" in line or "[critical]" in line]
    told = errors[0] if errors else lines[-1] if lines else "it said nothing"
    return _LOG_PREFIX.sub("", told)[:MAX_WHY_CHARS]
