"""Every peer: its package, its policy, its command line, and what must be known of it.

Flags are those that serve a peer best here: its default threshold for spilling over (64 requests) leaves replicas idle
on a fleet of this size, and its default health check (one a minute) would not see a kill within a test.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tradewind.gateway.envoy import command, executable
from tradewind.lab.peers.envoy_config import POLICIES as ENVOY_POLICIES
from tradewind.lab.peers.envoy_config import static_config
from tradewind.lab.peers.places import ENVOY, HOME, TRADEWIND, program, python
from tradewind.lab.peers.workers import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one peer runs."""

    workers: Sequence[Worker]
    port: int
    admin_port: int
    folder: Path  # its own, to write into
    home: Path = HOME

    @property
    def urls(self) -> list[str]:
        """Of all workers."""
        return [worker.url for worker in self.workers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One router with one policy. `argv` None: Tradewind itself, which is more than one process."""

    package: str
    policy: str
    argv: Callable[[Place], list[str]] | None
    ready_path: str = "/health"
    note: str = ""

    @property
    def name(self) -> str:
        """For rows and for `--policy`."""
        return f"{self.package}:{self.policy}"


def _common(place: Place) -> list[str]:
    listens = ["--host", "127.0.0.1", "--port", str(place.port), "--worker-urls", *place.urls]
    metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(place.admin_port)]
    health = ["--health-check-interval-secs", "1", "--health-check-timeout-secs", "1"]
    health += ["--health-failure-threshold", "2", "--health-success-threshold", "1"]
    return [*listens, *metrics, *health, "--worker-startup-check-interval", "1"]


ALL_NEW = ("--worker-warmup-secs", "0")  # all engines are; else the first that has served attracts the rest
SPILL_EARLY = ("--balance-abs-threshold", "4", "--balance-rel-threshold", "1.2")


def _vllm_router(policy: str, *more: str) -> Callable[[Place], list[str]]:
    def argv(place: Place) -> list[str]:
        asked = ["--policy", policy, "--log-level", "warning"]
        return [program("vllm-router", place.home), *_common(place), *asked, *more]

    return argv


def _smg(policy: str, *more: str) -> Callable[[Place], list[str]]:
    def argv(place: Place) -> list[str]:
        asked = ["--policy", policy, "--log-level", "warn", "--backend", "vllm", "--disable-tokenizer-autoload"]
        return [program("smg", place.home), "launch", *_common(place), *asked, *more]

    return argv


def _sglang_router(policy: str, *more: str) -> Callable[[Place], list[str]]:
    def argv(place: Place) -> list[str]:
        start = [python("sglang-router", place.home), "-m", "sglang_router.launch_router"]
        return [*start, *_common(place), "--policy", policy, "--log-level", "warn", *more]

    return argv


def _envoy(policy: str) -> Callable[[Place], list[str]]:
    def argv(place: Place) -> list[str]:
        listen, admin = f"127.0.0.1:{place.port}", f"127.0.0.1:{place.admin_port}"
        path = place.folder / "envoy.json"
        path.write_text(json.dumps(static_config(policy, place.workers, listen=listen, admin=admin), indent=1))
        return command(executable(), str(path))

    return argv


def _envoy_peer(policy: str) -> Peer:
    note = ""
    if policy == "load_aware_locality":
        note = "engines report load on whole answers only, so streams tell it nothing and it goes by hosts per site"
    return Peer(package=ENVOY, policy=policy, argv=_envoy(policy), note=note)


PEERS = (
    Peer(package=TRADEWIND, policy="weights", argv=None),
    Peer(package=TRADEWIND, policy="pick", argv=None),
    Peer(
        package="vllm-router",
        policy="cache_aware",
        argv=_vllm_router("cache_aware", *SPILL_EARLY),
        note="asks every engine for token ids before it routes",
    ),
    Peer(package="vllm-router", policy="consistent_hash", argv=_vllm_router("consistent_hash")),
    Peer(package="smg", policy="cache_aware", argv=_smg("cache_aware", *SPILL_EARLY, *ALL_NEW)),
    Peer(package="smg", policy="least_load", argv=_smg("least_load", "--load-monitor-interval", "1")),
    Peer(package="sglang-router", policy="cache_aware", argv=_sglang_router("cache_aware", *SPILL_EARLY)),
    *(_envoy_peer(policy) for policy in ENVOY_POLICIES),
)


class UnknownPeerError(ValueError):
    """No peer has this name; the message lists those that there are."""


def peers_named(names: Sequence[str] | None) -> tuple[Peer, ...]:
    """Those peers, or all; a package's name stands for all of its policies. Raises UnknownPeerError."""
    if names is None:
        return PEERS
    for name in names:
        if not any(name in (peer.name, peer.package) for peer in PEERS):
            raise UnknownPeerError(f"unknown peer {name!r}; known: {', '.join(peer.name for peer in PEERS)}")
    return tuple(peer for peer in PEERS if peer.name in names or peer.package in names)
