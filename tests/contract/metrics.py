"""Reads an engine's /metrics page as the checks need it: one value by family and labels, summed over the rest."""

import re

from tests.contract.client import get
from tests.contract.engine import Engine

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def page(engine: Engine) -> str:
    answer = get(engine, "/metrics")
    assert answer.status == 200
    return answer.body.decode()


def labels_of(text: str, name: str) -> list[dict[str, str]]:
    """The label sets of every sample called `name`."""
    return [labels for found, labels, _ in _samples(text) if found == name]


def total(text: str, name: str, **labels: str) -> float:
    """Sum of the samples called `name` that have these labels; fails when there is none."""
    found = [number for sample, having, number in _samples(text) if sample == name and labels.items() <= having.items()]
    assert found, f"no sample {name} {labels}"
    return sum(found)


def value(engine: Engine, name: str, **labels: str) -> float:
    """`total` of a page fetched now."""
    return total(page(engine), name, **labels)


def running(engine: Engine) -> float:
    return value(engine, "vllm:num_requests_running")


def waiting(engine: Engine) -> float:
    return value(engine, "vllm:num_requests_waiting")


def block_size(engine: Engine) -> int:
    """Tokens per KV block, as the engine reports it."""
    (labels,) = labels_of(page(engine), "vllm:cache_config_info")
    return int(labels["block_size"])


def _samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    matches = filter(None, map(_SAMPLE.match, text.splitlines()))
    return [(found[1], dict(_LABEL.findall(found[2] or "")), float(found[3])) for found in matches]
