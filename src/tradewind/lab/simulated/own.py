"""A policy of one's own in simulated grids: in the place of the picker's policy, or of the whole picker."""

import random
from collections.abc import Callable, Sequence
from typing import Any, cast

from tradewind.core.pick.ask import Policy as PickPolicy
from tradewind.core.pick.policies.own import OwnPolicyError, PolicyFile
from tradewind.model.decision import Decision, Refusal
from tradewind.model.request import Request
from tradewind.runtime.policyfile import CHOOSE, PolicyFileError, made, of_class, policy_class
from tradewind.sim.policy import MakePolicy, Policy
from tradewind.sim.scenario import Scenario

MakePickPolicy = Callable[[], str | PickPolicy]

_WHOLE = ("pick", "first_token", "finished", "observe_view", "observe_path", "outstanding", "observe_others")


def is_whole(file: PolicyFile) -> bool:
    """Whether the class stands in for the whole picker. Raises PolicyFileError if it is no policy at all."""
    cls = policy_class(file)
    if callable(getattr(cls, "choose", None)):
        return False
    missing = [name for name in _WHOLE if not callable(getattr(cls, name, None))]
    if "pick" in missing:
        raise PolicyFileError(f"{file.written} has neither choose nor pick; write {CHOOSE}")
    if missing:
        raise PolicyFileError(f"{file.written} has pick but not {', '.join(missing)}; write them, or choose alone")
    return True


def own_choice(file: PolicyFile) -> MakePickPolicy:
    """Makes policies for pickers; the file is read once. Raises PolicyFileError."""
    cls = policy_class(file)
    return lambda: of_class(cls, file)


def own_whole(file: PolicyFile, changes: Sequence[str]) -> MakePolicy:
    """Makes stand-ins for the picker, one per gateway; each gets the scenario. Raises PolicyFileError."""
    if changes:
        raise PolicyFileError(f"{file.written} stands in for the picker, so its constants must go: {';'.join(changes)}")
    cls = policy_class(file)
    return lambda scenario: cast("Policy", OwnWhole(made(cls, file, scenario), file, scenario))


class OwnWhole:
    """A whole policy from a file; what it picks is checked."""

    def __init__(self, policy: object, file: PolicyFile, scenario: Scenario) -> None:
        self._policy: Any = policy
        self._file = file
        self._cells = frozenset(cell.cell_id for cell in scenario.cells)

    def __getattr__(self, name: str) -> object:
        """All but `pick` is the policy's own."""
        return getattr(self._policy, name)

    def pick(self, request: Request, *, now_s: float, rng: random.Random) -> Decision | Refusal:
        """A cell of this grid, or a refusal. Raises OwnPolicyError for anything else, and what the policy raises."""
        found = self._policy.pick(request, now_s=now_s, rng=rng)
        if isinstance(found, Refusal) or (isinstance(found, Decision) and found.cell_id in self._cells):
            return found
        what = f"chose cell {found.cell_id!r}" if isinstance(found, Decision) else f"returned {type(found).__name__}"
        write = f"a Decision for one of {', '.join(sorted(self._cells)[:8])}, or a Refusal"
        raise OwnPolicyError(f"{self._file.written}: pick() {what}; write {write}")
