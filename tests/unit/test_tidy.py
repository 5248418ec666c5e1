"""The style that no linter holds: sizes, globals, and what must never be committed."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for path in (ROOT / "src").rglob("*.py") if "pb" not in path.parts)
FILE_LINES = 400
FUNCTION_LINES = 60
MEDIAN_FUNCTION_LINES = 10
# An address of a package index, or a path of somebody's machine, in any tracked text.
# Written in pieces, so that this file does not hold what it forbids.
UNWANTED = re.compile(
    "|".join(
        (
            "--(?:extra-)?index" + "-url",
            "--find" + "-links",
            r'registry\s*=\s*"' + "https?:",
            r"^\s*-i\s+" + "https?:",
            "/(?:root|home)/" + r"\w+",
        )
    ),
    re.M,
)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_fits_the_limits(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= FILE_LINES, "split the file"
    assert ast.get_docstring(ast.parse(text)), "a module opens with one sentence on its job"
    long = [f"{node.name} ({length(node)})" for node in functions(path) if length(node) > FUNCTION_LINES]
    assert not long, f"functions over {FUNCTION_LINES} lines: {long}"
    assert not [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Global)], "no globals"


def test_most_functions_are_short() -> None:
    lengths = sorted(length(node) for path in SOURCES for node in functions(path))
    assert lengths[len(lengths) // 2] <= MEDIAN_FUNCTION_LINES


def test_nothing_unwanted_is_tracked() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.suffix in {".gz", ".png", ".ico"} or path == Path(__file__) or not path.is_file():
            continue
        if UNWANTED.search(path.read_text(errors="replace")):
            found.append(name)
    assert not found
