"""KV events: the captured batches, both encodings, gaps, and rubbish."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.telemetry.kv_events import (
    AllCleared,
    BlocksRemoved,
    BlocksStored,
    KvEvent,
    KvEventReader,
    Missed,
    Restarted,
    decode,
)
from tradewind.telemetry.kv_subscriber import KvSubscriber

DATA = Path(__file__).parents[2] / "golden" / "data" / "kv_events"


def captured(name: str) -> Iterator[dict[str, object]]:
    for line in (DATA / name).read_text().splitlines():
        yield json.loads(line)


def packed(*events: object) -> bytes:
    return msgspec.msgpack.encode([1.5, list(events), 0])


def frames(sequence: int, *events: object) -> list[bytes]:
    return [b"kv@pod", sequence.to_bytes(8, "big"), packed(*events)]


STORED = {
    "type": "BlockStored",
    "block_hashes": [1 << 63, 2],
    "parent_block_hash": None,
    "token_ids": [1, 2, 3, 4],
    "block_size": 2,
    "lora_id": None,
    "medium": "GPU",
    "lookahead_token_ids": [9],
}


def test_captured_bytes_of_vllm_are_read() -> None:
    got = [decode(bytes.fromhex(str(line["payload_hex"]))) for line in captured("vllm_0.32.0_cleared.jsonl")]
    assert got[:2] == [([AllCleared()], 0)] * 2
    ((stored,), bad) = got[2]
    assert isinstance(stored, BlocksStored)
    assert (stored.hashes, stored.parent, stored.block_size_tokens, bad) == ((18381384398391934441,), None, 32, 0)
    assert (len(stored.token_ids), stored.token_ids[:3]) == (32, (269, 310, 330))


def test_captured_batches_of_vllm_are_read_whole() -> None:
    for line in captured("vllm_0.32.0_decoded.jsonl"):
        batch = line["decoded"]
        assert isinstance(batch, list)
        events, bad = decode(msgspec.msgpack.encode(batch))
        assert (len(events), bad) == (len(batch[1]), 0)
        for event, source in zip(events, batch[1], strict=True):
            assert isinstance(event, AllCleared) == (source["type"] == "AllBlocksCleared")
            if isinstance(event, BlocksStored):
                assert list(event.hashes) == source["block_hashes"]
                assert list(event.token_ids) == source["token_ids"]


def test_arrays_and_maps_say_the_same() -> None:
    array = ["BlockStored", [1 << 63, 2], None, [1, 2, 3, 4], 2, None, "GPU"]
    assert decode(packed(STORED)) == decode(packed(array)) == decode(packed(array[:6]))
    removed = {"type": "BlockRemoved", "block_hashes": [b"\x01" * 32, 5], "medium": "GPU"}
    assert decode(packed(removed)) == ([BlocksRemoved(hashes=(b"\x01" * 32, 5))], 0)
    assert decode(packed(["BlockRemoved", [7]])) == ([BlocksRemoved(hashes=(7,))], 0)
    assert decode(packed(["AllBlocksCleared"], {"type": "AllBlocksCleared"})) == ([AllCleared()] * 2, 0)


def test_blocks_on_other_media_are_no_hits() -> None:
    for medium in ("CPU_PINNED", "DISK", "EXTERNAL"):
        assert decode(packed({**STORED, "medium": medium})) == ([], 0)


@pytest.mark.parametrize(
    "event",
    [
        {},
        [],
        None,
        5,
        {"type": "BlockMoved"},
        {"type": ["x"]},
        {**STORED, "block_hashes": None},
        {**STORED, "block_hashes": [True]},
        {**STORED, "block_size": 0},
        {**STORED, "token_ids": ["a"]},
        {"type": "BlockStored"},
        ["BlockStored", [1]],
        ["BlockRemoved"],
    ],
)
def test_an_unreadable_event_is_counted_and_the_others_are_read(event: object) -> None:
    events, bad = decode(packed(event, STORED))
    assert (len(events), bad) == (1, 1)


@given(st.binary(max_size=300))
def test_rubbish_never_raises(payload: bytes) -> None:
    events, bad = decode(payload)
    assert bad or isinstance(events, list)
    KvEventReader(lambda _: None).take([b"", payload[:8], payload])


def reader() -> tuple[KvEventReader, list[KvEvent]]:
    got: list[KvEvent] = []
    return KvEventReader(got.extend), got


def test_gaps_and_restarts_are_told_before_what_follows_them() -> None:
    read, got = reader()
    cleared = {"type": "AllBlocksCleared"}
    for sequence in (0, 1, 4, 5, 0, 1):
        read.take(frames(sequence, cleared))
    assert [type(event) for event in got] == [
        *(AllCleared, AllCleared, Missed, AllCleared, AllCleared),
        *(Restarted, AllCleared, AllCleared),
    ]
    assert got[2] == Missed(batches=2)
    assert (read.bad, read.from_the_start) == (0, True)


def test_a_restart_whose_first_batches_were_missed_is_no_start() -> None:
    read, got = reader()
    for sequence in (0, 8, 3):
        read.take(frames(sequence, {"type": "AllBlocksCleared"}))
    assert got[1:] == [Missed(batches=7), AllCleared(), Restarted(), Missed(batches=3), AllCleared()]
    assert (read.from_the_start, read.batches, read.missed) == (False, 3, 10)
    read.expect_another()
    read.take(frames(0, {"type": "AllBlocksCleared"}))
    assert got[-1] == AllCleared(), "that it is another one was known"
    assert read.from_the_start


def test_a_late_subscriber_knows_that_it_is_late() -> None:
    read, _ = reader()
    read.take(frames(7, {"type": "AllBlocksCleared"}))
    assert not read.from_the_start


def test_messages_of_another_form_are_counted() -> None:
    read, got = reader()
    for message in ([], [b"x"], [b"x", b"1", b"2"], [b"x", bytes(8), b"\xc1"], [b"x", bytes(8), bytes(17 << 20)]):
        read.take(message)
    assert read.bad == 5
    assert got == [Restarted()], "the sequence number came twice"


def test_a_publisher_is_heard_over_zeromq() -> None:
    zmq_asyncio = pytest.importorskip("zmq.asyncio")
    zmq = pytest.importorskip("zmq")

    async def scene() -> None:
        arrived = asyncio.Event()
        got: list[KvEvent] = []

        def take(events: Sequence[KvEvent]) -> None:
            got.extend(events)
            arrived.set()

        context = zmq_asyncio.Context()
        publisher = context.socket(zmq.PUB)
        port = publisher.bind_to_random_port("tcp://127.0.0.1")
        subscriber = KvSubscriber(f"tcp://127.0.0.1:{port}", KvEventReader(take), topic="kv@")
        task = asyncio.create_task(subscriber.run())
        sequence = 0
        async with asyncio.timeout(20):
            while not arrived.is_set():  # a publisher drops what it sends before the subscription is through
                await publisher.send_multipart(frames(sequence, STORED))
                sequence += 1
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        publisher.close(linger=0)
        context.term()
        assert isinstance(got[0], BlocksStored)

    asyncio.run(scene())
