"""The dashboard process."""

import asyncio
import logging
import time

from tradewind.config.schema import GridConfig
from tradewind.dashboard.app import dashboard_app
from tradewind.dashboard.feed import Feed
from tradewind.runtime.log import log_event, setup_logging
from tradewind.runtime.loop import run_until_signal
from tradewind.runtime.web import serve_app

log = logging.getLogger(__name__)


def run(config: GridConfig) -> int:
    """Serve the live page until SIGTERM or SIGINT; returns the exit code."""
    setup_logging("dashboard")
    return run_until_signal(serve(config))


async def serve(config: GridConfig) -> int:
    """Serve inside a running loop until cancelled. Raises OSError when the address cannot be bound."""
    feed = Feed(config, clock=time.monotonic)
    async with serve_app(dashboard_app(feed), config.dashboard) as address, asyncio.TaskGroup() as tasks:
        log_event(log, "dashboard.serves", address=address)
        await tasks.create_task(feed.run())
    return 0
