"""Readiness questions for supervised processes: each answers "" or says what is still missing."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

ASK_TIMEOUT_S = 1.0
MAX_HEAD_BYTES = 16_384


def http_ok(address: str, path: str = "/") -> Callable[[], Awaitable[str]]:
    """Ready when GET http://address/path answers 200."""

    async def ask() -> str:
        status = await http_status(address, path)
        return "" if status == 200 else f"http://{address}{path} answers {status or 'nothing'}"

    return ask


def port_open(address: str) -> Callable[[], Awaitable[str]]:
    """Ready when a TCP connection to "ip:port" is accepted."""

    async def ask() -> str:
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                _reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except (OSError, TimeoutError):
            return f"nothing listens on {address}"
        await _close(writer)
        return ""

    return ask


def socket_open(path: Path) -> Callable[[], Awaitable[str]]:
    """Ready when a connection to a Unix socket is accepted."""

    async def ask() -> str:
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                _reader, writer = await asyncio.open_unix_connection(str(path))
        except (OSError, TimeoutError):
            return f"nothing listens on {path}"
        await _close(writer)
        return ""

    return ask


async def http_status(address: str, path: str) -> int:
    """The status of one GET, 0 when there was no answer in time."""
    host, _, port = address.rpartition(":")
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=MAX_HEAD_BYTES)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
            head = (await reader.readline()).split()
            return int(head[1]) if len(head) > 1 and head[1].isdigit() else 0
    except (OSError, TimeoutError, ValueError):
        return 0
    finally:
        if writer is not None:
            await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(ASK_TIMEOUT_S):
            await writer.wait_closed()
