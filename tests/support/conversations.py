"""Conversations that grow turn by turn, some at once: how much of their prompts the engines had in their caches."""

import uuid
from concurrent.futures import ThreadPoolExecutor

from tests.contract.client import send
from tests.contract.engine import Server
from tests.contract.requests import CHAT

SENTENCE = "the quick brown fox routes tokens to the least loaded site and waits for the first token. "


def cached_ratio(server: Server, *, model: str, conversations: int = 6, turns: int = 4, sentences: int = 20) -> float:
    """Cached tokens over prompt tokens of all turns, as the engines count them."""
    texts = [f"{uuid.uuid4().hex} " + SENTENCE * sentences for _ in range(conversations)]
    cached = prompt = 0
    for turn in range(turns):
        texts = [f"{text} turn {turn}: {SENTENCE}" for text in texts]
        with ThreadPoolExecutor(3) as pool:
            for one in pool.map(lambda text: _usage(server, model, text), texts):
                cached, prompt = cached + one[0], prompt + one[1]
    return cached / prompt


def _usage(server: Server, model: str, text: str) -> tuple[int, int]:
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 2, "ignore_eos": True}
    answer = send(server, "POST", CHAT, body)
    assert answer.status == 200, answer.body
    usage = answer.json()["usage"]
    details = usage["prompt_tokens_details"] or {}
    return details.get("cached_tokens") or 0, usage["prompt_tokens"]
