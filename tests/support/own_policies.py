"""Files of policies, good and bad, written where a test wants them."""

from pathlib import Path

HEAD = """from tradewind.core.pick.ask import Ask, Choice
from tradewind.core.pick.policies.ranking import least_by

SEEN = []


class Last:
    def choose(self, ask):
        return ask.cells[-1]
"""
FIRST = "return least_by(ask, ask.cells, lambda cell: cell.cell_id == ask.cells[0].cell_id)"


def policy_text(*body: str) -> str:
    """A file with the class Mine, whose choose has these lines."""
    lines = "".join(f"        {line}\n" for line in body)
    return f"{HEAD}\n\nclass Mine:\n    def choose(self, ask):\n{lines}"


def policy_at(folder: Path, *body: str, name: str = "mine.py") -> str:
    """The written form of such a policy."""
    path = folder / name
    path.write_text(policy_text(*body))
    return f"{path}:Mine"
