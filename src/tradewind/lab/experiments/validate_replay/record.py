"""Takes the shipped capture anew, after decisions have changed.

python -m tradewind.lab.experiments.validate_replay.record
"""

import gzip
import tempfile
from pathlib import Path

from tradewind.lab.experiments.validate_grid.live import live_run
from tradewind.lab.experiments.validate_replay.experiment import RECORDED, told

FOR_S = 25.0


def main() -> None:
    """25 s of a live gateway. Nothing is written if its own replay differs."""
    with tempfile.TemporaryDirectory(prefix="tw-replay-") as folder:
        capture = Path(folder) / "picks.ndjson"
        live_run("cost", seed=1, for_s=FOR_S, capture=capture)
        data = capture.read_bytes()
    found = told([data])
    if found["different"] or not found["decisions"]:
        raise SystemExit(f"not recorded: {found['different']} of {found['decisions']} decisions differ")
    (Path(__file__).parent / "data" / RECORDED).write_bytes(gzip.compress(data, mtime=0))


if __name__ == "__main__":
    main()
