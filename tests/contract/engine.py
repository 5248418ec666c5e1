"""What the contract asks of an engine under test, whoever made it."""

from dataclasses import dataclass
from typing import Protocol

MODEL = "tiny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How every engine under test is started, so that one set of checks fits both."""

    max_model_len: int = 4096
    max_num_seqs: int = 4
    max_num_queued_reqs: int = 12  # vLLM 0.32 counts running requests too


LIMITS = Limits()


class Server(Protocol):
    """What answers HTTP on 127.0.0.1:port."""

    @property
    def port(self) -> int:
        """A TCP port."""


class Engine(Server, Protocol):
    """One engine that serves MODEL within LIMITS, with priority scheduling and a prefix cache."""

    def terminate(self) -> None:
        """Asks it to stop, as an orchestrator does first (SIGTERM)."""

    def kill(self) -> None:
        """Ends every process of it at once (SIGKILL)."""

    def close(self) -> None:
        """Ends whatever is left of it; idempotent."""
