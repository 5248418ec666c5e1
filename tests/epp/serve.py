"""The product's server with the fake decision, as a process of its own.

    python -m tests.epp.serve PORT ENDPOINT,ENDPOINT

It prints one line when it listens.
"""

import asyncio
import sys

import uvloop

from tests.epp.fakes import RoundRobin
from tradewind.gateway.epp.server import EppServer


async def main(port: str, endpoints: str) -> None:
    server = EppServer(f"127.0.0.1:{port}", RoundRobin(tuple(endpoints.split(","))), ready=lambda: True)
    await server.start()
    print("listening", flush=True)  # noqa: T201 - the parent waits for it
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
