"""The demo, shortened, as a newcomer runs it with --keep: faults, summary, report, and a grid that stays."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tradewind.lab.demo import BURST_REQUESTS

TIMEOUT_S = 240.0


def test_demo_tells_what_was_seen_and_keeps_the_grid(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    argv = [sys.executable, "-m", "tradewind.cli.main", "demo", "--keep", "--no-baseline", "--json"]
    argv += ["--duration", "20", "--out", str(out)]
    with (tmp_path / "stdout").open("wb") as stdout, (tmp_path / "stderr").open("wb") as stderr:
        process = subprocess.Popen(argv, stdout=stdout, stderr=stderr)
    try:
        curl = _wait_for_curl(process, tmp_path / "stderr")
        url = next(word for word in curl.split() if word.startswith("http://"))
        models = json.load(urllib.request.urlopen(url.replace("/chat/completions", "/models"), timeout=10))
        assert models["data"][0]["id"] == "demo-70b"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)

    result = json.loads((tmp_path / "stdout").read_text())
    (arm,) = result["arms"]
    assert arm["name"] == "pick"
    assert arm["why"]["decision"]["cell_id"] in arm["why"]["reason"]
    assert arm["summary"]["requests"] == 140 + BURST_REQUESTS
    assert arm["unexplained"] == []
    assert (arm["gate"], arm["lost_before_token"]) == ("wasm", 0)
    assert [fault["target"] for fault in arm["faults"]] == ["east-1", "west-1", "south-1", "west", "control"]
    killed = arm["faults"][2]
    assert killed["seen_s"] is not None
    assert process.returncode == (0 if result["holds"] else 1)
    report = (out / "report.html").read_text()
    assert "Plotly.newPlot" in report
    assert "Why one request went where it went" in report
    assert "Azure Public Dataset" in report
    assert json.loads((out / "report.json").read_text())["seed"] == 1


def _wait_for_curl(process: "subprocess.Popen[bytes]", stderr: Path) -> str:
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        lines = [line for line in stderr.read_text().splitlines() if line.startswith("curl ")]
        if lines:
            return lines[0]
        assert process.poll() is None, stderr.read_text()
        time.sleep(0.1)
    raise TimeoutError(stderr.read_text())
