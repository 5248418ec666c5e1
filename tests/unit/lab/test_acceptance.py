"""Reports of others' load tools, and when they agree with ours; the tools themselves run in `make acceptance`."""

import json
from pathlib import Path

import pytest

from tradewind.lab.acceptance import install
from tradewind.lab.acceptance.run import OURS, TOOLS, Arm, GatewaySaw, acceptance_checks, gateway_saw
from tradewind.lab.acceptance.tools import AIPERF, GUIDELLM, GUIDELLM_REPORT, Replay, Tool, measured
from tradewind.lab.checks import all_hold
from tradewind.workload.mooncake import Trace, TracedRequest


def aiperf_line(ttft: float | None, *, error: object = None, unit: str = "ms") -> str:
    metrics: dict[str, object] = {"inter_chunk_latency": {"value": [30.1, 29.9], "unit": "ms"}}
    if ttft is not None:
        metrics["time_to_first_token"] = {"value": ttft, "unit": unit}
    return json.dumps({"metadata": {"x_request_id": "a", "was_cancelled": False}, "metrics": metrics, "error": error})


def test_aiperf_report_is_read_by_request(tmp_path: Path) -> None:
    lines = [
        aiperf_line(100.0),
        aiperf_line(0.3, unit="sec"),
        aiperf_line(None, error={"code": 500}),
        aiperf_line(None),
    ]
    (tmp_path / "profile_export.jsonl").write_text("\n".join(lines))
    found = AIPERF.read(tmp_path)
    assert (found.succeeded, found.failed) == (2, 2)
    assert (found.ttft_mean_s, found.ttft_p50_s, found.ttft_p95_s) == pytest.approx((0.2, 0.2, 0.29))


def test_guidellm_report_is_read_by_request(tmp_path: Path) -> None:
    requests = {
        "successful": [{"time_to_first_token_ms": 100.0}, {"time_to_first_token_ms": 300.0, "output": "a"}],
        "errored": [{"time_to_first_token_ms": None}],
        "incomplete": [],
        "total": None,
    }
    (tmp_path / GUIDELLM_REPORT).write_text(json.dumps({"benchmarks": [{"requests": requests}], "metadata": {}}))
    found = GUIDELLM.read(tmp_path)
    assert (found.succeeded, found.failed) == (2, 1)
    assert found.ttft_mean_s == pytest.approx(0.2)


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_replays_the_trace_against_the_gateway(tool: Tool) -> None:
    replay = Replay(
        address="127.0.0.1:8080", model="m", trace=Path("t.jsonl"), tokenizer="a/b", tokenizer_folder=Path("a/b"),
        folder=Path("out"),
    )  # fmt: skip
    command = tool.command(Path("venv"), replay)
    assert command[0] == f"venv/bin/{tool.name}"
    for wanted in ("http://127.0.0.1:8080", "t.jsonl", "a/b"):
        assert any(wanted in word for word in command)


def test_a_report_of_another_form_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "profile_export.jsonl").write_text(aiperf_line(1.0, unit="fortnights"))
    with pytest.raises(LookupError):
        AIPERF.read(tmp_path)


def logged(at_s: float, ttft_s: float, *, cached: int = 0, tokens: int = 128) -> dict[str, object]:
    return {
        "model": "m",
        "at_unix_s": 1_000.0 + at_s + 2.0,
        "duration_s": 2.0,
        "status": 200,
        "ttft_s": ttft_s,
        "prompt_tokens": 100,
        "cached_tokens": cached,
        "completion_tokens": tokens,
    }


def test_the_gateways_log_stands_for_the_same_requests(tmp_path: Path) -> None:
    requests = (TracedRequest(at_s=at_s, prompt_tokens=100, output_tokens=128) for at_s in (0.0, 1.0, 2.0))
    trace = Trace(requests=tuple(requests))
    log = tmp_path / "requests.ndjson"
    lines = [
        {"id": "a", "status": 404},
        logged(-9.0, 0.01, tokens=1),
        logged(5.0, 0.2, cached=60),
        logged(6.5, 0.4),
        logged(7.0, 0.6),
    ]
    log.write_text("\n".join(map(json.dumps, lines)))
    saw = gateway_saw(log, trace)
    assert (saw.requests, saw.ttft.succeeded, saw.prompt_tokens) == (3, 3, 100.0)
    assert saw.ttft.ttft_mean_s == pytest.approx(0.4)
    assert saw.cached_ratio == pytest.approx(0.2)
    assert saw.off_p95_s == pytest.approx(0.45)
    log.write_text("\n".join(map(json.dumps, lines[:3])))
    assert gateway_saw(log, trace).off_p95_s is None


def arm(client: str, ttft_s: float, *, failed: int = 0, gateway_s: float | None = None) -> Arm:
    saw = measured([gateway_s if gateway_s is not None else ttft_s], failed=0)
    return Arm(
        client=client,
        measured=measured([ttft_s] * 4, failed=failed),
        gateway=GatewaySaw(requests=4, ttft=saw, off_p95_s=None, prompt_tokens=100.0, cached_ratio=None),
    )


@pytest.mark.parametrize(
    ("theirs", "holds"),
    [
        (arm("x", 1.10), True),
        (arm("x", 0.90), True),
        (arm("x", 1.20), False),  # apart from ours
        (arm("x", 1.0, failed=1), False),
        (arm("x", 1.0, gateway_s=1.2), False),  # apart from what its own gateway saw
    ],
)
def test_clients_agree_or_they_do_not(theirs: Arm, *, holds: bool) -> None:
    assert all_hold(acceptance_checks([arm(OURS, 1.0), theirs])) is holds


def test_nothing_measured_is_no_agreement() -> None:
    silent = Arm(
        client="x",
        measured=measured([], failed=0),
        gateway=GatewaySaw(
            requests=0, ttft=measured([], failed=0), off_p95_s=None, prompt_tokens=None, cached_ratio=None
        ),
    )
    failed = {check.name for check in acceptance_checks([arm(OURS, 1.0), silent]) if check.holds is False}
    assert {"x: served", "x against ours: TTFT p50"} <= failed


def test_what_cannot_be_installed_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "LEAST_FREE_BYTES", 2**62)
    with pytest.raises(install.NotInstalled, match="GiB of disk"):
        install.ensure_installed(AIPERF, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(install.NotInstalled, match="file"):
        install.ensure_installed(AIPERF, tmp_path / "file")
    assert not install.folder_of(AIPERF, tmp_path).exists()
