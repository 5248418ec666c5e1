"""The emulated engine's KV events have the frames, keys and types of captured vLLM 0.32, and are read back whole."""

import json
from pathlib import Path

import msgspec
import pytest

from tradewind.emulator.kv_events import KvEventLog
from tradewind.engine.profiles import PROFILES
from tradewind.engine.scheduler import EngineLimits, EngineModel
from tradewind.engine.sequence import SequenceRequest
from tradewind.telemetry.kv_events import AllCleared, BlocksRemoved, BlocksStored, CacheEvent, decode

DATA = Path(__file__).parent / "data" / "kv_events"
SIZE = 16
ROOM = 8  # blocks


def shape(value: object) -> object:
    """Keys in order, and the type of every leaf; a list by its distinct elements."""
    if isinstance(value, dict):
        return [(key, shape(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return type(value).__name__


def captured() -> dict[str, object]:
    """The shape of each kind of event, of events without a parent and with one."""
    lines = [json.loads(line) for path in sorted(DATA.iterdir()) for line in path.read_text().splitlines()]
    return {event["type"]: shape(event) for line in lines for event in line["decoded"][1]}


class Engine:
    """An engine with a small cache that prefills one prompt after the other, and its publisher's messages."""

    def __init__(self, *, arrays: bool = False) -> None:
        self.log = KvEventLog(block_size_tokens=SIZE, arrays=arrays)
        limits = EngineLimits(block_size_tokens=SIZE, kv_capacity_tokens=SIZE * ROOM)
        self.model = EngineModel(profile=PROFILES["fast"], limits=limits)
        self.model.pool.listener = self.log
        self._now_s = 0.0
        self._prompts = 0

    def prefill(self, *hashes: int) -> tuple[bytes, bytes, bytes] | None:
        """The message of the step in which a prompt with these blocks, and a little more, is read and answered."""
        self._prompts += 1
        prompt = SequenceRequest(
            seq_id=self._prompts, prompt_tokens=SIZE * len(hashes) + 1, output_tokens=1, block_hashes=hashes
        )
        self.model.submit(prompt, now_s=self._now_s)
        self._now_s += 1.0
        assert self.model.plan_step(now_s=self._now_s) is not None
        self.model.finish_step(now_s=self._now_s)
        return self.log.take(topic=b"kv@a1", at_s=1.5)

    def events(self, *hashes: int) -> list[CacheEvent]:
        """The same, decoded."""
        frames = self.prefill(*hashes)
        assert frames is not None
        events, bad = decode(frames[2])
        assert not bad
        return events


def test_events_have_the_keys_and_types_of_vllm() -> None:
    wanted = captured()
    engine = Engine()
    engine.prefill(1, 2)
    engine.model.reset_prefix_cache()
    frames = engine.prefill(3, 4)
    assert frames is not None
    at_s, events, rank = msgspec.msgpack.decode(frames[2])
    assert (at_s, rank) == (1.5, 0)
    assert [shape(event) for event in events] == [wanted["AllBlocksCleared"], wanted["BlockStored"]]
    assert len(events[1]["token_ids"]) == SIZE * 2
    assert all(0 <= token < 32_000 for token in events[1]["token_ids"])
    assert len(events[1]["extra_keys"]) == 2


def test_a_batch_begins_like_a_captured_one() -> None:
    (line, *_) = (DATA / "vllm_0.32.0_cleared.jsonl").read_text().splitlines()
    wanted = bytes.fromhex(json.loads(line)["payload_hex"])
    log = KvEventLog(block_size_tokens=SIZE)
    log.cleared()
    frames = log.take(topic=b"", at_s=json.loads(line)["decoded"][0])
    assert frames is not None
    assert frames[2] == wanted


@pytest.mark.parametrize("arrays", [False, True])
def test_what_the_pool_does_is_read_back(*, arrays: bool) -> None:
    engine = Engine(arrays=arrays)
    (stored,) = engine.events(1, 2, 3)
    assert isinstance(stored, BlocksStored)
    assert (stored.hashes, stored.parent, stored.block_size_tokens) == ((1, 2, 3), None, SIZE)
    (longer,) = engine.events(1, 2, 3, 4)
    assert isinstance(longer, BlocksStored)
    assert (longer.hashes, longer.parent) == ((4,), 3)
    assert engine.prefill(1, 2, 3, 4) is None, "nothing new: no batch, as vLLM"
    *removed, other = engine.events(*range(11, 17))
    assert removed == [BlocksRemoved(hashes=(content,)) for content in (4, 3, 2)], "the tail of a prompt goes first"
    assert isinstance(other, BlocksStored)
    assert other.hashes == (11, 12, 13, 14, 15, 16)
    engine.model.reset_prefix_cache()
    assert engine.events(1)[0] == AllCleared(), "with the next step"


def test_equal_blocks_have_equal_ids_and_others_do_not() -> None:
    (first,), (second,) = Engine().events(1, 2), Engine().events(1, 3)
    assert isinstance(first, BlocksStored)
    assert isinstance(second, BlocksStored)
    assert first.token_ids[:SIZE] == second.token_ids[:SIZE]
    assert first.token_ids[SIZE:] != second.token_ids[SIZE:]


def test_batches_are_numbered_from_zero_under_one_topic() -> None:
    engine = Engine()
    frames = [engine.prefill(content) for content in (1, 2, 3)]
    assert [message and message[:2] for message in frames] == [(b"kv@a1", bytes([*bytes(7), n])) for n in range(3)]


def test_arrays_stop_where_the_older_ones_did() -> None:
    frames = Engine(arrays=True).prefill(5)
    assert frames is not None
    ((event,),) = msgspec.msgpack.decode(frames[2])[1:2]
    assert event[:3] == ["BlockStored", [5], None]
    assert event[4:] == [SIZE, None, "GPU", None]
