"""Every invariant names tests that exist."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "invariants.md"


def test_every_invariant_is_held_by_tests_that_exist() -> None:
    defined = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    rows = re.findall(r"^\| (INV-\d+) \|.*\| (.*) \|$", PAGE.read_text(), re.M)
    assert len(rows) >= 15
    for number, cited in rows:
        names = re.findall(r"`(test_\w+)`", cited)
        assert names, f"{number} cites no test"
        missing = [name for name in names if f"def {name}" not in defined]
        assert not missing, f"{number} cites {missing}"
