"""The committed module is what its source builds."""

from pathlib import Path

import pytest

from tradewind.xds.gate.build import WASM, build_wasm, tools


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
