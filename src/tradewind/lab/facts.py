"""On what a figure was taken: commit, Python, cores, load; every published figure stands beside them."""

import os
import platform
import subprocess
import time

from tradewind import __version__


def machine_facts() -> dict[str, object]:
    """Facts for a report; an unknown one is "unknown"."""
    return {
        "tradewind": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _commit() -> str:
    try:
        done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"
