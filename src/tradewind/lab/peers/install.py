"""`make peers`: each router of the package index in a virtual environment of its own, pinned with hashes.

    python -m tradewind.lab.peers.install [NAME ...]

What cannot be installed is skipped with a line. Nothing of it enters Tradewind's own environment.
"""

import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from tradewind.lab.peers.places import HOME, PACKAGES, requirements, version

INSTALL_TIMEOUT_S = 600.0
SHOWN_CHARACTERS = 300


def install(name: str, home: Path = HOME) -> str:
    """Make the environment of one peer unless it is there in this version; a line that says what became of it."""
    found = version(name, home)
    if found is not None and f"{name}=={found}" in requirements(name).read_text():
        return f"{name} {found}: is there"
    try:
        venv.create(home / name, with_pip=True, clear=True)
        pip = [str(home / name / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        done = subprocess.run(
            [*pip, "--require-hashes", "--only-binary", ":all:", "-r", str(requirements(name))],
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{name}: skipped, {error}"
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        return f"{name}: skipped, pip says: {''.join(last)[:SHOWN_CHARACTERS]}"
    return f"{name} {version(name, home)}: installed"


def main(names: Sequence[str]) -> int:
    """Install all that are named, or all; 2 for a name that is none."""
    unknown = sorted(set(names) - set(PACKAGES))
    if unknown:
        sys.stderr.write(f"unknown: {', '.join(unknown)}; known: {', '.join(PACKAGES)}\n")
        return 2
    for name in names or PACKAGES:
        sys.stdout.write(install(name) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
