"""Results of trials on disk, so that a run that was cut goes on where it stopped."""

import hashlib
from functools import cache
from pathlib import Path

import msgspec

import tradewind
from tradewind.lab.harness.experiment import Result, Trial

# What may change a result. A change elsewhere (command line, control's API, reports) leaves results valid.
_CODE = ("core", "engine", "measure", "model", "sim", "workload")
_KINDS = (".py", ".gz", ".csv", ".wasm", ".lua", ".c")


@cache
def code_fingerprint(experiment: str, *, live: bool) -> str:
    """A hash over the code that decides, simulates and measures, and the experiment's own; `live`: over all code."""
    root = Path(tradewind.__file__).parent
    packages = ("",) if live else _CODE
    files = [path for package in packages for path in (root / package).rglob("*") if path.suffix in _KINDS]
    files += sorted((root / "lab" / "simulated").glob("*.py"))
    own = root / "lab" / "experiments" / experiment.replace("-", "_")
    files += [own.with_suffix(".py"), *own.rglob("*.py")]
    digest = hashlib.sha256()
    for path in sorted({path for path in files if path.is_file()}):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def trial_key(trial: Trial) -> str:
    """Twelve hex digits that name a trial."""
    return hashlib.sha256(msgspec.json.encode(trial, order="sorted")).hexdigest()[:12]


class Store:
    """One folder of results; a result of other code is not found."""

    def __init__(self, folder: Path, *, live: bool = False) -> None:
        self._folder = folder
        self._live = live

    def get(self, trial: Trial, *, extra: str = "") -> Result | None:
        """The result; None without one, or where it is broken."""
        try:
            found = msgspec.json.decode(self._path(trial, extra).read_bytes())
        except (OSError, msgspec.DecodeError):
            return None
        return found if isinstance(found, dict) else None

    def put(self, trial: Trial, result: Result, *, extra: str = "") -> Result:
        """Keep a result; what is returned has gone through JSON, as one from disk has. Raises OSError."""
        path = self._path(trial, extra)
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(".tmp")
        encoded = msgspec.json.encode(result)
        written.write_bytes(encoded)
        written.replace(path)
        decoded: Result = msgspec.json.decode(encoded)
        return decoded

    def _path(self, trial: Trial, extra: str) -> Path:
        """`extra`: what else the result depends on, e.g. the content of a policy's file."""
        tail = f"-{hashlib.sha256(extra.encode()).hexdigest()[:8]}" if extra else ""
        code = code_fingerprint(trial.experiment, live=self._live)
        return self._folder / trial.experiment / code / f"{trial_key(trial)}{tail}.json"
