"""A policy of one's own, `file.py:Name`: its written form, and the check that holds its answers to what was asked."""

import re
from collections.abc import Callable
from math import isnan
from typing import Any, NamedTuple, Protocol

from tradewind.core.pick.ask import Ask, Choice
from tradewind.core.pick.cell import PickCell

_WRITTEN = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::(?P<option>.*))?")


class PolicyFile(NamedTuple):
    """A class in a file of Python; `option` is what its constructor gets, "" = nothing."""

    path: str
    name: str
    option: str = ""

    @property
    def written(self) -> str:
        """As it is written in configuration and on the command line."""
        return f"{self.path}:{self.name}" + (f":{self.option}" if self.option else "")


def policy_file(written: str) -> PolicyFile | None:
    """The file and class of `file.py:Name[:option]`; None for a policy of the project's own. Raises ValueError."""
    match = _WRITTEN.fullmatch(written)
    if match is not None:
        return PolicyFile(match["path"], match["name"], match["option"] or "")
    if written.partition(":")[0].endswith(".py"):
        raise ValueError(f"{written!r} names no class; write file.py:Name, or file.py:Name:option")
    return None


def path_of(written: str) -> str:
    """The path in a written form that has one, "" in any other."""
    match = _WRITTEN.fullmatch(written)
    return match["path"] if match is not None else ""


class OwnPolicyError(RuntimeError):
    """A policy of one's own raised, or answered what was not asked. The message says which, where and what to write."""


class Chooses(Protocol):
    """What a class in a file offers: a cell of the ask, or a Choice among its cells."""

    def choose(self, ask: Ask) -> Choice | PickCell:
        """The cell for this request."""
        ...


class OwnPolicy:
    """A policy from a file, as the picker's own ones are. Costs are its own measure, never thought to be seconds."""

    in_seconds = False

    def __init__(self, policy: Chooses, file: PolicyFile, *, lines: Callable[[BaseException, str], str]) -> None:
        """`lines` tells where in a file an error came from."""
        self.name = file.written
        self._policy = policy
        self._path = file.path
        self._lines = lines

    def choose(self, ask: Ask) -> Choice:
        """Raises OwnPolicyError and nothing else."""
        try:
            answer = self._policy.choose(ask)
        except (Exception, SystemExit) as error:
            where = self._lines(error, self._path)
            raise OwnPolicyError(f"{self.name}{where} raised {type(error).__name__}: {error}") from error
        fault, choice = checked(ask, answer)
        if choice is None:
            raise OwnPolicyError(f"{self.name}: choose() {fault}")
        return choice


def checked(ask: Ask, answer: object) -> tuple[str, Choice | None]:
    """The choice, or what is wrong with it."""
    offered = set(ask.cells)
    if isinstance(answer, PickCell):
        if answer not in offered:
            return _not_offered(answer), None
        rest = [(1.0, cell) for cell in ask.cells if cell is not answer]
        return "", Choice([(0.0, answer), *rest], 0, (1.0,))
    if not isinstance(answer, Choice):
        return f"returned {_shown(answer)}; write `return cell` with one of ask.cells, or a Choice", None
    fault = _fault(answer, offered)
    return fault, None if fault else answer


def _fault(choice: tuple[Any, Any, Any], offered: set[PickCell]) -> str:
    ranked, place, chances = choice
    try:
        for cost, cell in ranked:
            if not isinstance(cell, PickCell):
                return f"ranked {_shown(cell)}; write (cost, cell) with the cells of the ask"
            if cell not in offered:
                return _not_offered(cell)
            if isnan(cost):
                return f"gave {cell.cell_id} a cost that is no number; write inf for a cell to avoid"
        if not 0 <= place < len(ranked):
            return f"chose place {place} of {len(ranked)} ranked cells; write a place in ranked"
        if len(chances) <= place or not 0.0 < chances[place] <= 1.0:
            return f"gives no chance for place {place}; write the chances of ranked[0..place], (1.0,) if certain"
    except (TypeError, ValueError) as error:
        return f"returned a Choice that cannot be read ({error}); write Choice([(cost, cell), ...], place, chances)"
    return ""


def _not_offered(cell: PickCell) -> str:
    return (
        f"chose cell {cell.cell_id!r}, which the ask does not offer; write one of ask.cells, which differ per request"
    )


def _shown(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {repr(value)[:80]}"
