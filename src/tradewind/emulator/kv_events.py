"""An emulated engine's KV events as vLLM publishes them over ZeroMQ, one batch per step; needs the extra `kv-events`.

`map`: the keys and types of captured batches of vLLM 0.32. `array`: the form before 0.23, without keys. Token ids are
made up from the block's hash: equal blocks have equal ids, and no tokenizer knows them.
"""

import importlib
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from tradewind.config.schema import EmulatedKvEventsConfig
from tradewind.emulator.prompt import VOCABULARY_TOKENS
from tradewind.telemetry.kv_events import GPU, SEQUENCE_BYTES

HIGH_WATER_MARK = 100_000  # vLLM's default: messages that wait for a slow subscriber; beyond it ZeroMQ drops
BUFFER_STEPS = 10_000  # vLLM's default, told and not kept: nothing is replayed
_SPREAD = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: neighbours get unlike ids
_STEP = 0xBF58476D1CE4E5B9  # another odd number: the ids of a block are not those of its neighbour, moved by one
_GROUP = 0  # an engine with one kind of attention has one group of blocks


class KvEventLog:
    """The cache listener of one engine: what happened in the order in which it did, until the next batch."""

    def __init__(self, *, block_size_tokens: int, arrays: bool = False) -> None:
        self._block_size_tokens = block_size_tokens
        self._arrays = arrays
        self._events: list[dict[str, object]] = []
        self._sequence = 0

    def stored(self, contents: Sequence[int], parent: int | None) -> None:
        """One event for all new blocks of a sequence."""
        size = self._block_size_tokens
        self._events.append(
            {
                "type": "BlockStored",
                "block_hashes": list(contents),
                "parent_block_hash": parent,
                "token_ids": [token for content in contents for token in made_up_ids(content, size)],
                "block_size": size,
                "lora_id": None,
                "medium": GPU,
                "lora_name": None,
                "extra_keys": [None] * len(contents),
                "group_idx": _GROUP,
                "kv_cache_spec_kind": "full_attention",
            }
        )

    def removed(self, contents: Sequence[int]) -> None:
        """One event for each block, as vLLM."""
        self._events += [
            {"type": "BlockRemoved", "block_hashes": [content], "medium": GPU, "group_idx": _GROUP}
            for content in contents
        ]

    def cleared(self) -> None:
        """Waits for the next batch like every event: vLLM tells nobody before it has something to do."""
        self._events.append({"type": "AllBlocksCleared"})

    def take(self, *, topic: bytes, at_s: float) -> tuple[bytes, bytes, bytes] | None:
        """The next message, or None if nothing happened; `at_s` is wall clock time."""
        if not self._events:
            return None
        events: list[object] = [_listed(event) for event in self._events] if self._arrays else [*self._events]
        self._events = []
        number = self._sequence.to_bytes(SEQUENCE_BYTES, "big")
        self._sequence += 1
        return topic, number, msgspec.msgpack.encode([at_s, events, 0])


class KvPublisher:
    """Binds the socket. A message that a subscriber is too slow for, or that nobody has subscribed to, is dropped."""

    def __init__(self, settings: EmulatedKvEventsConfig, log: KvEventLog) -> None:
        """Raises zmq.ZMQError where the address cannot be bound."""
        self.silent = False  # nothing gets through, and what was published meanwhile is lost
        zmq: Any = importlib.import_module("zmq")  # here, and not in an engine that publishes nothing
        self._flags = zmq.NOBLOCK
        self._topic = settings.topic.encode()
        self._log = log
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PUB)
        self._socket.set(zmq.SNDHWM, HIGH_WATER_MARK)
        self._socket.set(zmq.IPV6, int("[" in settings.listen))
        self._socket.bind(endpoint(settings))

    def publish(self) -> None:
        """What has happened since the last call."""
        frames = self._log.take(topic=self._topic, at_s=time.time())
        if frames is not None and not self.silent:
            self._socket.send_multipart(frames, self._flags)

    def close(self) -> None:
        """Frees the port; what is under way is lost."""
        self._socket.close(linger=0)
        self._context.term()


def endpoint(settings: EmulatedKvEventsConfig) -> str:
    """Where a subscriber connects."""
    return f"tcp://{settings.listen}"


def sources(settings: EmulatedKvEventsConfig | None) -> dict[str, object]:
    """vLLM's answer to GET /kv_event_sources: by rank, where events are published."""
    if settings is None:
        return {}
    source = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": endpoint(settings),
        "replay_endpoint": None,
        "buffer_steps": BUFFER_STEPS,
        "hwm": HIGH_WATER_MARK,
        "max_queue_size": HIGH_WATER_MARK,
        "topic": settings.topic,
    }
    return {"0": source}


def made_up_ids(content: int, count: int) -> list[int]:
    """Token ids of the block with this hash."""
    start = content * _SPREAD
    return [((start + index * _STEP) >> 24) % VOCABULARY_TOKENS for index in range(count)]


def _listed(event: dict[str, object]) -> list[object]:
    """Up to 0.22 an event was its values in order; what came later than lora_name is left out."""
    return [value for key, value in event.items() if key not in ("extra_keys", "group_idx", "kv_cache_spec_kind")]
