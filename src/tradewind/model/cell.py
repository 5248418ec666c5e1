"""Cells, their life-cycle states, and what a cell is able to serve."""

from dataclasses import dataclass
from enum import StrEnum


class CellState(StrEnum):
    """Life cycle of a cell. READY alone takes traffic; FAULTED is reachable from anywhere."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAULTED = "faulted"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the engine says it can serve. None means the engine did not say; never read None as a limit."""

    models: tuple[str, ...] = ()  # every served name: base, aliases, LoRA adapters; sorted
    lora_models: tuple[str, ...] = ()  # the subset of `models` that are LoRA adapters
    max_model_len: int | None = None  # tokens, prompt + output
    kv_capacity_tokens: int | None = None
    block_size_tokens: int | None = None
    engine: str | None = None  # "vllm" | "sglang" | ...
    engine_version: str | None = None
    hardware: str | None = None  # hardware class; speeds are compared only within one class


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One engine replica at one address, with its GPUs."""

    cell_id: str
    site: str
    address: str  # "ip:port" as the agent knows it; a gateway may reach it by another one
    capabilities: Capabilities = Capabilities()
    labels: tuple[tuple[str, str], ...] = ()
