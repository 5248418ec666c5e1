"""Fuzzes the request parser and the gate for a while: `python -m tests.fuzz [SECONDS]`.

Half of the time by generated requests and, where there is a C compiler, event streams; the other half, where atheris
is installed, guided by the coverage of the parser's code. A failing input is printed by whichever found it, and the
exit status is not 0.
"""

import shutil
import subprocess
import sys
import time
from importlib.util import find_spec

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import streams
from tests.fuzz.inputs import PATHS, bodies, check
from tests.unit.xds.gate.host import COMPILERS

SECONDS = 60.0
ROUND_EXAMPLES = 2_000


def generated(seconds: float) -> int:
    """Rounds of hypothesis until the time is over; how many inputs were tried."""
    tried = 0

    @settings(max_examples=ROUND_EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(body=bodies, path=st.sampled_from(PATHS), partial=st.booleans())
    def one_round(body: bytes, path: str, partial: bool) -> None:
        nonlocal tried
        tried += 1
        check(body, path=path, partial=partial)

    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        one_round()
    return tried


def has_compiler() -> bool:
    return any(map(shutil.which, COMPILERS))


def main(arguments: list[str]) -> int:
    seconds = float(arguments[0]) if arguments else SECONDS
    judged = streams.generated(seconds / 4) if has_compiler() else 0
    sys.stdout.write(f"{judged} generated event streams, each judged as the model does\n")
    tried = generated(seconds / 4 if judged else seconds / 2)
    sys.stdout.write(f"{tried} generated requests, none made the parser raise\n")
    sys.stdout.flush()
    if find_spec("atheris") is None:
        sys.stdout.write("no guided fuzzing: atheris is not installed (pip install atheris)\n")
        return 0
    command = [sys.executable, "-m", "tests.fuzz.guided", f"-max_total_time={max(1, int(seconds / 2))}"]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
