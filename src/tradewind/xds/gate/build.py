"""Builds gate.wasm from its C, for those who change it: users need no compiler."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
WASM = HERE / "gate.wasm"
# The committed file is Debian's clang 14; another version gives other bytes that do the same.
_CLANG, _LD = "clang-14", "wasm-ld-14"
_COMPILE = ("--target=wasm32", "-std=c11", "-Oz", "-ffreestanding", "-nostdlib", "-fvisibility=hidden")
_WARN = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")
_LINK = ("--no-entry", "--strip-all", "-z", "stack-size=16384")


def tools() -> tuple[str, str] | None:
    """The compiler and the linker that the committed file was built with; None where one is missing."""
    clang, linker = shutil.which(_CLANG), shutil.which(_LD)
    return (clang, linker) if clang and linker else None


def build_wasm(target: Path) -> None:
    """Write the module to `target`. Raises FileNotFoundError without the tools, CalledProcessError for bad C."""
    found = tools()
    if found is None:
        raise FileNotFoundError(f"building the gate needs {_CLANG} and {_LD} (Debian: apt install clang-14 lld-14)")
    with tempfile.TemporaryDirectory() as directory:
        compiled = Path(directory) / "gate.o"
        subprocess.run([found[0], *_COMPILE, *_WARN, "-c", "gate_wasm.c", "-o", compiled], cwd=HERE, check=True)
        subprocess.run([found[1], *_LINK, compiled, "-o", target], check=True)
    target.chmod(0o644)


if __name__ == "__main__":
    try:
        build_wasm(WASM)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        sys.exit(str(error))
