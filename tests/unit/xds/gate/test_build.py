"""The committed module is what its source builds."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.xds.gate.host import COMPILERS, WARNINGS
from tradewind.xds.gate.build import WASM, build_wasm, tools
from tradewind.xds.gate.filter import native_source


def test_the_committed_module_is_what_the_source_builds(tmp_path: Path) -> None:
    if tools() is None:
        pytest.skip("clang-14 and wasm-ld-14 are not installed")
    build_wasm(tmp_path / "gate.wasm")
    assert (tmp_path / "gate.wasm").read_bytes() == WASM.read_bytes(), "make gate"


def test_the_module_is_small_and_asks_for_nothing_but_envoy() -> None:
    module = WASM.read_bytes()
    assert module[:8] == b"\0asm\1\0\0\0"
    assert len(module) < 16_384
    assert b"wasi" not in module, "it needs no libc"


def test_the_native_twin_is_one_text_that_compiles(tmp_path: Path) -> None:
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        pytest.skip("no C compiler (cc, gcc or clang)")
    (tmp_path / "gate.c").write_text(native_source())
    command = [
        compiler,
        "-O2",
        "-shared",
        "-fPIC",
        *WARNINGS,
        "-o",
        str(tmp_path / "gate.so"),
        str(tmp_path / "gate.c"),
    ]
    subprocess.run(command, check=True)
    assert b"envoy_dynamic_module_on_http_filter_new" in (tmp_path / "gate.so").read_bytes()
