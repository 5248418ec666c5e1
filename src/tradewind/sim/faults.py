"""What can happen to a cell of a simulated grid, as data: an effect on one cell from some moment on."""

from dataclasses import dataclass
from typing import Literal

from tradewind.engine.board import Contention, Heat
from tradewind.engine.law import SlowDown

LOAD_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """The engine's steps take longer, whatever the cause."""

    slow: SlowDown


@dataclass(frozen=True, slots=True, kw_only=True)
class Heated:
    """The board's cooling fails; None: it is well again."""

    heat: Heat | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contended:
    """A neighbour on the host's PCIe link; None: it is gone."""

    contention: Contention | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The engine's process is killed, and its connections are reset; or it starts and serves after `load_s`, cold."""

    up: bool
    load_s: float = LOAD_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Engine, exporter and agent lose power and send nothing more, no reset either; or all of them start."""

    up: bool
    load_s: float = LOAD_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The engine refuses what is longer, prompt and output together, with 400, and tells nobody; None: no more."""

    tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """Somebody has the engine drop its prefix cache; it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """The GPU exporter's process ends, or repeats old values for ever, or works."""

    mode: Literal["ok", "dead", "frozen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """No packet passes between the cell's site and all gateways and controls; or they pass again."""

    on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Every message on the path is late by the positive part of a normal with this deviation."""

    deviation_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Detour:
    """The way to the cell has become longer: its round trip takes `factor` as long as declared; 1: no more."""

    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """One request that came past all gateways of the grid."""

    prompt_tokens: int
    output_tokens: int


Effect = Slow | Heated | Contended | Engine | Host | Limit | Emptied | Exporter | Cut | Noise | Detour | Foreign


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """From `at_s` on, this holds for the cell at index `cell`."""

    at_s: float
    cell: int
    effect: Effect
