"""The load tools: what to install, how each is told to replay a trace, and what its report says."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tradewind.measure.statistics import percentile

Json = Mapping[str, object]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What one client measured of one replay; TTFT in seconds from the client's own sending, over successes."""

    succeeded: int
    failed: int
    ttft_mean_s: float | None = None
    ttft_p50_s: float | None = None
    ttft_p95_s: float | None = None


def measured(ttfts_s: Sequence[float], *, failed: int) -> Measured:
    """The figures of some first tokens."""
    return Measured(
        succeeded=len(ttfts_s),
        failed=failed,
        ttft_mean_s=sum(ttfts_s) / len(ttfts_s) if ttfts_s else None,
        ttft_p50_s=percentile(ttfts_s, 0.5),
        ttft_p95_s=percentile(ttfts_s, 0.95),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a tool is asked to do."""

    address: str
    model: str
    trace: Path  # as the tool wants it
    tokenizer: str  # by the name under which the tool's cache has it
    tokenizer_folder: Path
    folder: Path  # for what it writes


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One load tool, installed in an environment of its own."""

    name: str
    pins: tuple[tuple[str, ...], ...]  # what pip is asked for, one step after the other
    corpus: str  # the text within its packages of which it makes prompts
    vocabulary: int  # of a tokenizer with about four bytes a token on such prompts
    command: Callable[[Path, Replay], list[str]]
    read: Callable[[Path], Measured]  # raises OSError, msgspec.MsgspecError, LookupError
    seconds: bool = False  # its trace's timestamps are seconds


def _aiperf_command(venv: Path, replay: Replay) -> list[str]:
    return [
        str(venv / "bin" / "aiperf"),
        "profile",
        *("--model", replay.model, "--url", f"http://{replay.address}"),
        *("--endpoint-type", "chat", "--streaming", "--tokenizer", replay.tokenizer),
        *("--input-file", str(replay.trace), "--custom-dataset-type", "mooncake_trace", "--fixed-schedule"),
        *("--extra-inputs", "ignore_eos:true", "--use-server-token-count", "--random-seed", "1"),
        *("--output-artifact-dir", str(replay.folder), "--ui", "none", "--no-gpu-telemetry"),
    ]


class _AiperfMetric(msgspec.Struct):
    value: float
    unit: str


class _AiperfRecord(msgspec.Struct):
    metrics: dict[str, object] = {}
    error: object = None


def _aiperf_read(folder: Path) -> Measured:
    decoder = msgspec.json.Decoder(_AiperfRecord)
    ttfts_s: list[float] = []
    failed = 0
    for line in (folder / "profile_export.jsonl").read_bytes().splitlines():
        record = decoder.decode(line)
        if record.error or "time_to_first_token" not in record.metrics:
            failed += 1
            continue
        metric = msgspec.convert(record.metrics["time_to_first_token"], _AiperfMetric)
        ttfts_s.append(metric.value * {"ms": 1e-3, "sec": 1.0, "s": 1.0}[metric.unit])
    return measured(ttfts_s, failed=failed)


AIPERF = Tool(
    name="aiperf",
    pins=(("aiperf==0.13.0",),),
    corpus="aiperf/dataset/generator/assets/shakespeare.txt",
    vocabulary=6_000,
    command=_aiperf_command,
    read=_aiperf_read,
)


def _guidellm_command(venv: Path, replay: Replay) -> list[str]:
    # It asks for /health before it starts, which is an engine's page and not a gateway's.
    backend = {
        "kind": "openai_http",
        "target": f"http://{replay.address}",
        "model": replay.model,
        "validate_backend": False,
    }
    data = {"kind": "mooncake", "source": {"kind": "json_file", "path": str(replay.trace)}}
    return [
        str(venv / "bin" / "guidellm"),
        "run",
        *("--backend", _text(backend), "--data", _text(data), "--profile", "kind=replay,time_scale=1.0"),
        *("--tokenizer", f"kind=huggingface_auto,model={replay.tokenizer_folder}"),
        *("--output", f"kind=json,path={replay.folder / GUIDELLM_REPORT}", "--disable-console-interactive"),
    ]


GUIDELLM_REPORT = "report.json"


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


class _GuidellmRequest(msgspec.Struct):
    time_to_first_token_ms: float | None = None


class _GuidellmRequests(msgspec.Struct):
    successful: list[_GuidellmRequest]
    errored: list[_GuidellmRequest]
    incomplete: list[_GuidellmRequest]


class _GuidellmBenchmark(msgspec.Struct):
    requests: _GuidellmRequests


class _GuidellmReport(msgspec.Struct):
    benchmarks: list[_GuidellmBenchmark]


def _guidellm_read(folder: Path) -> Measured:
    report = msgspec.json.decode((folder / GUIDELLM_REPORT).read_bytes(), type=_GuidellmReport)
    requests = report.benchmarks[0].requests
    found = [request.time_to_first_token_ms for request in requests.successful]
    ttfts_s = [ttft_ms / 1e3 for ttft_ms in found if ttft_ms is not None]
    lost = len(requests.errored) + len(requests.incomplete)
    return measured(ttfts_s, failed=lost + len(found) - len(ttfts_s))


GUIDELLM = Tool(
    name="guidellm",
    pins=(("torch==2.13.0",), ("guidellm==0.8.1",)),  # torch by itself first: pip may have a build without CUDA
    corpus="faker/providers/lorem/en_US/__init__.py",
    vocabulary=4_000,
    command=_guidellm_command,
    read=_guidellm_read,
    seconds=True,
)
