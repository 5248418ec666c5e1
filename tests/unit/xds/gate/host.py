"""The gate's C, built for this machine and driven through ctypes."""

import ctypes
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

NOTHING, TOKEN, ERROR = range(3)
PASS, HOLD = range(2)
HELD, RELEASED, ERRORS, EMPTY_ENDS, OVER_BOUND, DEATHS, REFUSED = range(7)
MOST_HELD_BYTES: Final = 262_144

COMPILERS = ("cc", "gcc", "clang")
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")


@cache
def library() -> ctypes.CDLL:
    """The host build. Skips the test where there is no C compiler."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        pytest.skip("no C compiler (cc, gcc or clang)")
    source = Path(__file__).with_name("host.c")
    with resources.as_file(resources.files("tradewind.xds.gate")) as include, TemporaryDirectory() as directory:
        target = Path(directory) / "host.so"
        flags = ("-shared", "-fPIC", "-std=c11", "-O1", *WARNINGS, f"-I{include}")
        subprocess.run([compiler, *flags, source, "-o", target], check=True)
        built = ctypes.CDLL(str(target))
    built.gate_new.restype = ctypes.c_void_p
    built.gate_passed.restype = ctypes.c_void_p
    built.gate_status.restype = ctypes.c_char_p
    built.gate_type.restype = ctypes.c_char_p
    return built


def judge(text: bytes) -> tuple[int, int]:
    """The verdict on a text, and how many of its bytes need not be read again."""
    used = ctypes.c_uint()
    verdict = int(library().gate_judge(text, len(text), ctypes.byref(used)))
    return verdict, used.value


@dataclass(frozen=True)
class Attempt:
    """One attempt of a request as the gate sees it."""

    pointer: ctypes.c_void_p

    def request(self) -> int:
        return int(library().gate_request(self.pointer))

    def headers(self, *, end: bool = False) -> int:
        return int(library().gate_headers(self.pointer, int(end)))

    def body(self, chunk: bytes, *, end: bool = False) -> int:
        return int(library().gate_body(self.pointer, chunk, len(chunk), int(end)))

    def trailers(self) -> int:
        return int(library().gate_trailers(self.pointer))

    def end(self, *, now_ms: int = 0, connected: bool = True, client_gone: bool = False, served: bool = False) -> None:
        library().gate_end(self.pointer, ctypes.c_ulonglong(now_ms), int(connected), int(client_gone), int(served))

    def passed(self) -> bytes:
        length = ctypes.c_uint()
        at = library().gate_passed(self.pointer, ctypes.byref(length))
        return ctypes.string_at(at, length.value)

    def count(self, counter: int) -> int:
        return int(library().gate_count(self.pointer, counter))

    @property
    def deaths(self) -> int:
        return int(library().gate_deaths(self.pointer))

    @property
    def refused(self) -> bool:
        return bool(library().gate_refused(self.pointer))

    @property
    def status(self) -> str:
        """What `:status` was changed to, empty if it was not."""
        return bytes(library().gate_status(self.pointer)).decode()

    @property
    def content_type(self) -> str:
        return bytes(library().gate_type(self.pointer)).decode()


@contextmanager
def attempt(
    *,
    status: bytes = b"200",
    content_type: bytes = b"text/event-stream; charset=utf-8",
    encoding: bytes = b"",
    limit_ms: bytes = b"",
    deaths: int = 0,
) -> Iterator[Attempt]:
    """An attempt before its request is sent. The texts live as long as it."""
    texts = tuple(ctypes.create_string_buffer(text) for text in (status, content_type, encoding, limit_ms))
    pointer = ctypes.c_void_p(library().gate_new(*texts, deaths))
    try:
        yield Attempt(pointer)
    finally:
        library().gate_free(pointer)


@contextmanager
def held_stream() -> Iterator[Attempt]:
    """An attempt whose headers came and are held."""
    with attempt() as one:
        assert one.request() == PASS
        assert one.headers() == HOLD
        yield one


def feed(one: Attempt, chunks: Iterable[bytes]) -> int:
    """Give all chunks but not the end; the last answer."""
    action = HOLD
    for chunk in chunks:
        action = one.body(chunk)
    return action
