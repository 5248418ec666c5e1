"""The agent process: its cells, its exporters and its controls, composed and run."""

import asyncio
import contextlib
import logging
import os
import random
import secrets
import time
from collections.abc import AsyncIterator

from tradewind.agent.cell import CellAgent
from tradewind.agent.control_link import ControlLink
from tradewind.agent.gpu_feed import DcgmFeed, GpuSubscriber, NvmlFeed
from tradewind.agent.metrics import AgentMetrics
from tradewind.config.check import NVML_URL
from tradewind.config.errors import ConfigError, Problem
from tradewind.config.schema import AgentConfig, CellConfig, GridConfig
from tradewind.model.heartbeat import Heartbeat
from tradewind.runtime.log import log_event
from tradewind.runtime.loop import run_until_signal
from tradewind.runtime.web import serve_app
from tradewind.wire.convert import heartbeat_to_pb

log = logging.getLogger(__name__)


def run(config: GridConfig, agent_id: str) -> int:
    """Run one agent of the grid until SIGTERM or SIGINT; returns the exit code. Raises ConfigError if the grid has no
    such agent."""
    agent = _agent_of(config, agent_id)
    return run_until_signal(serve(config, agent, environment=dict(os.environ)))


async def serve(config: GridConfig, agent: AgentConfig, *, environment: dict[str, str]) -> int:
    """Run until cancelled. Engine keys are taken from `environment` by the names in the cells' api_key_env."""
    metrics = AgentMetrics()
    incarnation = secrets.token_hex(8)
    links: list[ControlLink] = []

    def publish(heartbeat: Heartbeat) -> None:
        data = heartbeat_to_pb(heartbeat).SerializeToString()
        for link in links:
            link.offer(heartbeat.cell.cell_id, data)

    cells = _cells_of(config, agent)
    agents = [
        CellAgent(
            cell,
            agent,
            incarnation=incarnation,
            publish=publish,
            metrics=metrics,
            key=_key(cell, environment),
            clock=time.monotonic,
        )
        for cell in cells
    ]

    def beat_all() -> None:
        for cell_agent in agents:
            cell_agent.beat_now()

    links += [
        ControlLink(control.id, control.listen, metrics=metrics, on_connected=beat_all, rng=random.Random())
        for control in config.controls
    ]
    log_event(log, "agent.started", agent=agent.id, cells=len(cells), controls=len(links), incarnation=incarnation)
    async with _metrics_endpoint(agent, metrics), asyncio.TaskGroup() as group:
        for link in links:
            group.create_task(link.run())
        for cell_agent in agents:
            group.create_task(cell_agent.run())
        _start_gpu_feeds(group, cells, agents, agent, metrics)
    return 0


def _start_gpu_feeds(
    group: asyncio.TaskGroup,
    cells: list[CellConfig],
    agents: list[CellAgent],
    agent: AgentConfig,
    metrics: AgentMetrics,
) -> None:
    by_url: dict[str, list[GpuSubscriber]] = {}
    for cell, cell_agent in zip(cells, agents, strict=True):
        if cell.dcgm_url == NVML_URL:
            subscriber = cell_agent.gpu_subscriber
            group.create_task(NvmlFeed(subscriber, interval_s=agent.scrape_s, metrics=metrics).run())
        elif cell.dcgm_url:
            by_url.setdefault(cell.dcgm_url, []).append(cell_agent.gpu_subscriber)
    for url, subscribers in by_url.items():
        group.create_task(DcgmFeed(url, subscribers, interval_s=agent.scrape_s, metrics=metrics).run())


@contextlib.asynccontextmanager
async def _metrics_endpoint(agent: AgentConfig, metrics: AgentMetrics) -> AsyncIterator[None]:
    if not agent.metrics:
        yield
        return
    async with serve_app(metrics.app(), agent.metrics) as address:
        log_event(log, "agent.metrics_listening", agent=agent.id, address=address)
        yield


def _agent_of(config: GridConfig, agent_id: str) -> AgentConfig:
    for agent in config.agents:
        if agent.id == agent_id:
            return agent
    known = ", ".join(agent.id for agent in config.agents)
    raise ConfigError(config.grid, [Problem(where="$.agents", what=f"no agent {agent_id!r}", write=f"one of {known}")])


def _cells_of(config: GridConfig, agent: AgentConfig) -> list[CellConfig]:
    return [cell for cell in config.cells if not agent.cells or cell.id in agent.cells]


def _key(cell: CellConfig, environment: dict[str, str]) -> str:
    key = environment.get(cell.api_key_env, "") if cell.api_key_env else ""
    if cell.api_key_env and not key:
        log_event(log, "agent.key_missing", level=logging.WARNING, cell=cell.id, variable=cell.api_key_env)
    return key
