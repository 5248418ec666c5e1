"""A host that can vanish: a network namespace of this test's own, on a virtual cable, with one web server in it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

_NET = f"10.213.{os.getpid() % 250}"
_NEAR, _FAR = f"{_NET}.1", f"{_NET}.2"  # the two ends of the cable, and of nothing else
_SERVER = """
import http.server, sys, time
class Engine(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        if b'"stream"' not in body:
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")
            return
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        while True:
            self.wfile.write(b'data: {"choices":[{"text":"x"}]}\\n\\n')
            time.sleep(0.1)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Engine).serve_forever()
"""


@dataclass(frozen=True)
class FarHost:
    """One host with an engine that answers at once, or streams for ever."""

    namespace: str
    address: str  # "ip:port"

    def vanish(self) -> None:
        """No packet of it gets out any more; nothing is reset."""
        _ip("-n", self.namespace, "route", "add", "blackhole", f"{_NEAR}/32")

    def come_back(self) -> None:
        """Packets pass again."""
        _ip("-n", self.namespace, "route", "del", "blackhole", f"{_NEAR}/32")


def _ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True, timeout=20)


@contextmanager
def far_host(port: int = 9801) -> Iterator[FarHost]:
    """Skips the test where a namespace and its cable cannot be made: that takes root and iproute2."""
    name = f"tw-{os.getpid()}"
    try:
        _join(name)
    except (OSError, subprocess.SubprocessError) as error:
        _remove(name)
        said = getattr(error, "stderr", None) or str(error).encode()
        pytest.skip(f"a host that vanishes takes a network namespace: {said.decode(errors='replace').strip()}")
    try:
        argv = ["ip", "netns", "exec", name, sys.executable, "-c", _SERVER, _FAR, str(port)]
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as server:
            try:
                yield FarHost(namespace=name, address=f"{_FAR}:{port}")
            finally:
                server.kill()
    finally:
        _remove(name)


def _join(name: str) -> None:
    near, far = f"twa{os.getpid()}", f"twb{os.getpid()}"
    _ip("netns", "add", name)
    _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
    _ip("addr", "add", f"{_NEAR}/30", "dev", near)
    _ip("link", "set", near, "up")
    _ip("-n", name, "addr", "add", f"{_FAR}/30", "dev", far)
    _ip("-n", name, "link", "set", far, "up")


def _remove(name: str) -> None:
    """With the namespace goes its end of the cable, and with that the other."""
    if shutil.which("ip") is not None:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=20)
