"""A load generator: N cells that beat steadily over a few streams, with full telemetry, as a process of its own.

    python -m tests.support.synthetic_agents --address 127.0.0.1:7400 --cells 1000 --streams 10 --hz 2 --seconds 20

It prints one JSON line at the end: beats sent, replies, refusals, how late it ran at worst, bytes per beat.
"""

import argparse
import asyncio
import itertools
import json
import secrets
import sys
import time
from dataclasses import dataclass, field

import grpc.aio
import uvloop

from tradewind.model.cell import Capabilities, Cell
from tradewind.model.heartbeat import Evidence, Heartbeat
from tradewind.model.telemetry import EngineReading, GpuReading, Histogram, HostReading, Telemetry
from tradewind.wire.convert import heartbeat_to_pb
from tradewind.wire.pb import tradewind_pb2 as pb
from tradewind.wire.service import HEARTBEATS

# As vLLM's own TTFT and ITL histograms: so many buckets, so many bytes.
_TTFT_BOUNDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0)
_ITL_BOUNDS = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)


@dataclass(slots=True)
class Tally:
    """What a run did."""

    sent: int = 0
    replies: int = 0
    refused: int = 0
    late_s: float = 0.0
    beat_bytes: int = 0
    errors: list[str] = field(default_factory=list)


def _histogram(bounds: tuple[float, ...], count: float) -> Histogram:
    return Histogram(
        bounds=bounds,
        counts=tuple(count * (index + 1) / (len(bounds) + 1) for index in range(len(bounds) + 1)),
        total=count * 0.3,
    )


def telemetry(sequence: int) -> Telemetry:
    """Everything an engine and its GPUs can say, moving with the sequence."""
    work = float(sequence)
    return Telemetry(
        engine=EngineReading(
            queue_requests=float(sequence % 7),
            running_requests=8.0,
            kv_fill_ratio=0.4,
            kv_fill_max_ratio=0.5,
            ttft_s=_histogram(_TTFT_BOUNDS, work * 10),
            itl_s=_histogram(_ITL_BOUNDS, work * 1_000),
            prompt_tokens_total=work * 9_000,
            prompt_computed_tokens_total=work * 7_000,
            generation_tokens_total=work * 1_000,
            steps_total=work * 20,
            prefix_query_tokens_total=work * 9_000,
            prefix_hit_tokens_total=work * 2_000,
            preemptions_total=0.0,
            finished_total=work * 5,
            server_errors_total=0.0,
            sleeping=False,
            start_time_s=1_760_000_000.5,
        ),
        engine_age_s=0.2,
        gpu=GpuReading(
            gpus=2,
            util_ratio=0.8,
            vram_ratio=0.9,
            sm_active_ratio=0.7,
            tensor_active_ratio=0.3,
            dram_active_ratio=0.5,
            temperature_c=62.0,
            memory_temperature_c=71.0,
            sm_clock_hz=1.9e9,
            power_w=410.0,
            throttle_bits=0,
            xid=0,
            xid_count=0.0,
            ecc_uncorrected_total=0.0,
            pcie_replay_total=3.0,
            pcie_bytes_per_s=2e9,
        ),
        gpu_age_s=0.4,
        gpu_interval_s=1.0,
        host=HostReading(cpu_throttled_ratio=0.0),
    )


def beat(number: int, incarnation: str, sequence: int, *, reading: Telemetry) -> Heartbeat:
    """The beat of a healthy cell."""
    cell = Cell(
        cell_id=f"cell-{number:04}",
        site=f"site-{number % 3}",
        address=f"127.0.0.1:{20_000 + number}",
        capabilities=Capabilities(
            models=("demo-70b",),
            max_model_len=131_072,
            kv_capacity_tokens=480_000,
            block_size_tokens=16,
            engine="vllm",
            engine_version="0.32.0",
            hardware="rtx-pro-6000",
        ),
    )
    evidence = Evidence(reachable=True, model_listed=True, warmed_up=True)
    return Heartbeat(cell=cell, incarnation=incarnation, sequence=sequence, evidence=evidence, telemetry=reading)


async def _stream(channel: grpc.aio.Channel, numbers: range, hz: float, until_s: float, tally: Tally) -> None:
    call = channel.stream_stream(
        HEARTBEATS,
        request_serializer=pb.Heartbeat.SerializeToString,
        response_deserializer=pb.HeartbeatReply.FromString,
    )()  # type: ignore[call-arg] # the stubs know only the form with an iterator
    replies = asyncio.create_task(_replies(call, tally))
    incarnation = secrets.token_hex(8)
    messages = [heartbeat_to_pb(beat(number, incarnation, 0, reading=telemetry(1))) for number in numbers]
    interval_s = 1 / hz / max(1, len(messages))  # spread evenly: real agents do not beat in step
    due_s = time.monotonic()
    sequence = 0
    while time.monotonic() < until_s:
        sequence += 1
        for message in messages:
            message.sequence = sequence
            message.telemetry.engine.generation_tokens_total += 512.0
            await call.write(message)
            tally.sent += 1
            due_s += interval_s
            tally.late_s = max(tally.late_s, time.monotonic() - due_s)
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
    tally.beat_bytes = messages[0].ByteSize() if messages else 0
    await call.done_writing()
    replies.cancel()


async def _replies(call: "grpc.aio.StreamStreamCall[pb.Heartbeat, pb.HeartbeatReply]", tally: Tally) -> None:
    async for reply in call:
        tally.replies += 1
        tally.refused += bool(reply.refused)


async def generate(address: str, *, cells: int, streams: int, hz: float, seconds: float) -> Tally:
    """Beat for `seconds`; cells are dealt to streams in contiguous runs."""
    tally = Tally()
    until_s = time.monotonic() + seconds
    bounds = [cells * index // streams for index in range(streams + 1)]
    async with grpc.aio.insecure_channel(address) as channel, asyncio.TaskGroup() as tasks:
        for low, high in itertools.pairwise(bounds):
            tasks.create_task(_stream(channel, range(low, high), hz, until_s, tally))
    return tally


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True)
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--hz", type=float, default=2.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args(arguments)
    tally = uvloop.run(
        generate(given.address, cells=given.cells, streams=given.streams, hz=given.hz, seconds=given.seconds)
    )
    line = {
        "sent": tally.sent,
        "replies": tally.replies,
        "refused": tally.refused,
        "worst_late_s": round(tally.late_s, 4),
        "beat_bytes": tally.beat_bytes,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
