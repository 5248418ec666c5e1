"""Installs a real vLLM (CPU build) and a tiny model under build/, for tests only: about 100 s and 2.5 GB, once.

    python -m tests.real_engine.install

Needs Python 3.11, for which the pinned torch wheel is built, and a package index that has it. The product never
depends on any of this.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build"
VENV = BUILD / "vllm-venv"
MODEL_DIR = BUILD / "tiny-model"
READY = VENV / ".ready"
PINS = HERE / "requirements-vllm.txt"
INSTALL_TIMEOUT_S = 900.0
SKIPPED = 77  # exit status of a stage that cannot run here, as automake has it
MAX_REASON = 200  # characters of an installer's last line


class NotInstalled(Exception):
    """There is no real engine here; the message is one line for people."""


def ensure_installed() -> None:
    """Installs once; later calls return at once. Raises NotInstalled with the reason."""
    if READY.exists() and READY.read_text() == PINS.read_text() and MODEL_DIR.exists():
        return
    python = _python311()
    if python is None:
        raise NotInstalled("needs Python 3.11, for which the pinned torch wheel is built")
    shutil.rmtree(VENV, ignore_errors=True)
    VENV.parent.mkdir(exist_ok=True)
    _run(python, "-m", "venv", VENV)
    pip = (VENV / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-cache-dir")
    _run(*pip, "setuptools==78.1.1")
    _run(*pip, "--no-deps", "-r", PINS)
    _run(VENV / "bin" / "python", HERE / "make_tiny_model.py", MODEL_DIR)
    READY.write_text(PINS.read_text())


def installed_or_skip() -> None:
    """`ensure_installed` for a fixture: skips what needs a real engine, with the reason, where there is none."""
    try:
        ensure_installed()
    except NotInstalled as why:
        pytest.skip(f"no real vLLM here: {why}")


def _python311() -> str | None:
    return sys.executable if sys.version_info[:2] == (3, 11) else shutil.which("python3.11")


def _run(*command: str | Path) -> None:
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{command[0]}: {error}"[:MAX_REASON]) from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no output"]
        raise NotInstalled(lines[-1][:MAX_REASON])


def main() -> int:
    """Returns the exit status: SKIPPED where there can be no real engine, which is said in one line."""
    try:
        ensure_installed()
    except NotInstalled as why:
        sys.stdout.write(f"skipped: no real vLLM here: {why}\n")
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
