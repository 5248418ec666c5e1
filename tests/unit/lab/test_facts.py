"""A figure names the commit of the code that made it, not of the folder that it was run from."""

import subprocess
from pathlib import Path

import pytest

from tradewind.lab.facts import commit_of


def test_the_commit_is_that_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    source, stray = tmp_path / "source.py", tmp_path / "stray.py"
    source.write_text("")
    stray.write_text("")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "source.py"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True).stdout
    monkeypatch.chdir("/")
    assert commit_of(source) == head.strip()
    assert commit_of(stray) == "unknown", "an installed copy in somebody's repository is not of that repository"
    assert commit_of(Path("/source.py")) == "unknown"
