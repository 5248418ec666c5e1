"""On what a figure was taken: commit, Python, cores, load; every published figure stands beside them."""

import os
import platform
import subprocess
import time
from pathlib import Path

from tradewind import __version__


def machine_facts() -> dict[str, object]:
    """Facts for a report; an unknown one is "unknown"."""
    return {
        "tradewind": __version__,
        "commit": commit_of(Path(__file__)),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def commit_of(source: Path) -> str:
    """The commit of the checkout that this file belongs to, wherever it is run from; "unknown" outside of any."""
    git = ["git", "-C", str(source.parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", source.name], capture_output=True, check=True)
        done = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
