"""Puts the newest live runs of `lab run validate-grid --live` into the package, for whoever has no grid to run.

python -m tradewind.lab.experiments.validate_grid.record build/lab
"""

import sys
from pathlib import Path

import msgspec

from tradewind.lab.experiments.validate_grid.course import POLICIES
from tradewind.lab.experiments.validate_grid.sent import RECORDED, LiveRun, write_recording


def kept_runs(folder: Path) -> list[LiveRun]:
    """The newest whole run of each policy among the results that a lab folder keeps, in the order of the experiment."""
    newest: dict[str, LiveRun] = {}
    for path in sorted(folder.glob("validate-grid/*/*.json"), key=lambda path: path.stat().st_mtime):
        found = msgspec.json.decode(path.read_bytes())
        if isinstance(found, dict) and "run" in found:
            run = msgspec.convert(found["run"], LiveRun)
            newest[run.policy] = run
    return [newest[policy] for policy in POLICIES if policy in newest]


def main(folder: Path) -> int:
    """Returns the exit code."""
    runs = kept_runs(folder)
    if len(runs) < len(POLICIES):
        sys.stderr.write(f"{folder}: live runs of {len(runs)} of {len(POLICIES)} policies; run all of them first\n")
        return 1
    path = Path(__file__).parent / "data" / RECORDED
    sys.stdout.write(f"{path}: {write_recording(path, runs)} bytes, {sum(len(run.sent) for run in runs)} requests\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/lab")))
