"""The reference pages say what the code says. TRADEWIND_REWRITE=1 writes them anew: `make docs`."""

import os
from pathlib import Path

import pytest

from tradewind.cli.main import app
from tradewind.cli.reference import commands_page, config_page, metrics_page

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"


@pytest.mark.parametrize("name", ["cli.md", "grid-file.md"])
def test_the_page_is_up_to_date(name: str) -> None:
    written = {"cli.md": lambda: commands_page(app), "grid-file.md": config_page}[name]()
    if os.environ.get("TRADEWIND_REWRITE"):
        (REFERENCE / name).write_text(written)
    assert (REFERENCE / name).read_text() == written, "run `make docs`"


def test_metrics_keep_help_and_type_and_leave_foreign_families_out() -> None:
    page = "# HELP tradewind_x_total Things | counted\n# TYPE tradewind_x_total counter\n# TYPE python_info gauge\n"
    written = metrics_page([("control", page)])
    assert "| `tradewind_x_total` | counter | Things \\| counted |" in written
    assert "python_info" not in written
