"""What `tradewind status` and `top` tell of a picker."""

from rich.console import Console

from tradewind.lab.tables import cells_table
from tradewind.lab.watch import cells_of, pick_line

CELL = {"cell_id": "a", "site": "east", "state": "ready", "weight": 3}
BOOKS = {
    "cell_id": "a",
    "in_flight": 7,
    "waiting_tokens": 4321,
    "slowness_ratio": 1.5,
    "cooling_s": 2.0,
    "learned_limit_tokens": 4000,
    "predicted_hit_tokens": 200,
    "served_hit_tokens": 150,
}
PICK = {
    "policy": "cost",
    "picks": 12,
    "decision_us": 41.2,
    "in_flight": 7,
    "left": 1,
    "refused": 2,
    "late": 3,
    "moved": 0,
    "refusals": {"busy": 2},
    "cells": [BOOKS],
}


def text_of(status: dict[str, object], width: int = 200) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(cells_table(cells_of(status), title="t", width=width))
    return capture.get()


def test_the_line_of_a_gateway_tells_counts_and_trouble_only() -> None:
    line = pick_line({"pick": PICK})
    assert line == "policy cost, 12 picks at 41 us, 7 in flight, 1 left to the weights, 2 refused, 3 late (2 busy)"
    assert pick_line({"pick": None}) == ""


def test_top_has_columns_for_picks_where_there_are_picks() -> None:
    shown = text_of({"cells": [CELL], "pick": PICK})
    for word in ("slowness", "4321", "1.50", "75.0 %", "cooling 2.0 s", "refuses 4000 tokens"):
        assert word in shown
    assert "slowness" not in text_of({"cells": [CELL], "pick": None})


def test_in_a_narrow_terminal_what_is_shown_is_whole() -> None:
    shown = text_of({"cells": [CELL], "pick": PICK}, width=80)
    for word in ("cell", "ready", "0.0 %", "in flight", "4321", "cooling"):
        assert word in shown
    assert "hits" not in shown
    assert "pressure" in text_of({"cells": [CELL], "pick": None}, width=80)


def test_a_table_without_cells_has_its_title() -> None:
    assert "t" in text_of({"cells": [], "pick": None}, width=80).split()
