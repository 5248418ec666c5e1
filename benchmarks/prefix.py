"""Before the decision: reading a request, and the prefix index: CPU per request, and memory.

`python -m benchmarks.prefix` prints the memory of a full index, measured in a process of its own.
"""

import base64
import json
import os
import pydoc_data.topics
import subprocess
import sys
import time
from collections.abc import Callable
from random import Random

from tradewind.core.prefix.index import PrefixIndex
from tradewind.core.tokens.estimate import TokenEstimator
from tradewind.gateway.requests.parse import RequestParser
from tradewind.gateway.requests.result import Refused
from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.instant.usage import p50, rss_bytes

CELLS, CELL_TOKENS, BLOCK_TOKENS = 64, 1_000_000, 128
INDEX_MB = 128.0  # the stated bound for 64 cells of a million tokens each
TEXT = " ".join(pydoc_data.topics.topics.values())


def bench(quick: bool) -> list[Check]:
    rounds = 7 if quick else 25
    return [*memory(), *lookups(rounds), *parsing(rounds)]


def memory() -> list[Check]:
    command = [sys.executable, "-m", "benchmarks.prefix"]
    index_mb = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [
        at_most(f"prefix index, {CELLS} cells x 1M tokens each, memory", index_mb, INDEX_MB, unit="MB"),
        reported("prefix index, memory per million indexed tokens", index_mb / CELLS, unit="MB"),
    ]


def full_index(cells: int, rng: Random) -> PrefixIndex:
    """Every cell full of prompts that no other cell has."""
    index, blocks = PrefixIndex(), CELL_TOKENS // BLOCK_TOKENS
    for number in range(cells):
        cell_id = f"cell-{number:02}"
        index.set_capacity(cell_id, blocks)
        while index.blocks_of(cell_id) < blocks:
            index.record(cell_id, chain(rng.randint(2, 60), rng), 0.0)
    return index


def chain(length: int, rng: Random) -> tuple[int, ...]:
    return tuple(rng.getrandbits(64) for _ in range(length))


def lookups(rounds: int) -> list[Check]:
    small, large = full_index(9, Random(1)), full_index(CELLS, Random(1))
    rows = [*lookup(small, 9, 4, rounds), *lookup(large, CELLS, 128, rounds)]
    started_s = time.process_time()
    large.forget("cell-01")
    emptied_ms = (time.process_time() - started_s) * 1e3
    return [*rows, reported("prefix index, a restarted cell is emptied", emptied_ms, unit="ms")]


def lookup(index: PrefixIndex, cells: int, length: int, rounds: int) -> list[Check]:
    rng = Random(2)
    blocks = chain(length, rng)
    for number in range(cells):
        index.record(f"cell-{number:02}", blocks[: rng.randint(1, length)], 0.0)
    what = f"{cells} cells, {length} blocks"
    costs = {
        "match on every cell": cost_us(lambda: index.matches(blocks), rounds),
        "match on none": cost_us(lambda: index.matches(chain(1, rng)), rounds),
        "credit of a new prompt to a full cell": cost_us(
            lambda: index.record("cell-00", chain(length, rng), 0.0), rounds
        ),
    }
    return [reported(f"prefix index, {name}, {what}", cost, unit="us") for name, cost in costs.items()]


def parsing(rounds: int) -> list[Check]:
    parser = RequestParser(TokenEstimator())

    def cost(body: bytes) -> float:
        def once() -> None:
            answer = parser.parse(body, path="/v1/chat/completions", headers={}, tenant="t")
            assert not isinstance(answer, Refused)

        return cost_us(once, rounds)

    picture = base64.b64encode(bytes(6_000_000)).decode()
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + picture}}
    dense = b'{"model":"m","messages":[' + b"{}," * (1 << 20) + b"{}]}"
    return [
        reported("a chat request is read, 2 KB", cost(chat(TEXT[:2_000])), unit="us"),
        reported("a chat request is read, 64 KiB", cost(chat(TEXT[: 1 << 16])), unit="us"),
        reported("a chat request is read, 400 KB", cost(chat(TEXT[:400_000])), unit="us"),
        at_most("a request with a picture of 8 MB is read", cost(chat([part])) / 1e3, 20.0, unit="ms"),
        at_most("a hostile body of a million empty messages is read", cost(dense) / 1e3, 50.0, unit="ms"),
    ]


def chat(content: object) -> bytes:
    messages = [{"role": "system", "content": "You answer briefly."}, {"role": "user", "content": content}]
    body = {"messages": messages, "model": "m", "stream": True, "temperature": 0.5, "max_tokens": 100}
    return json.dumps(body, ensure_ascii=False).encode()


def cost_us(call: Callable[[], object], rounds: int) -> float:
    """CPU of one call, median of rounds of at least 2 ms each."""
    calls, spent_s = 1, 0.0
    while spent_s < 2e-3:
        calls *= 2
        spent_s = batch_s(call, calls)
    return p50([batch_s(call, calls) / calls * 1e6 for _ in range(rounds)])


def batch_s(call: Callable[[], object], calls: int) -> float:
    started_s = time.process_time()
    for _ in range(calls):
        call()
    return time.process_time() - started_s


def main() -> None:
    before = rss_bytes(os.getpid())
    index = full_index(CELLS, Random(1))
    sys.stdout.write(f"{(rss_bytes(os.getpid()) - before) / 1e6:.1f}\n")
    assert len(index) == CELLS * (CELL_TOKENS // BLOCK_TOKENS)


if __name__ == "__main__":
    main()
