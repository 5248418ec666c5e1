"""A policy from a file: what may be written, and what it is told when it does something else."""

from pathlib import Path
from random import Random

import pytest

from tests.support.own_policies import policy_at
from tests.unit.pick.fakes import FakeIndex, cell_view, grid, picked, request
from tradewind.core.pick.picker import Picker
from tradewind.core.pick.policies.own import OwnPolicyError, PolicyFile, policy_file
from tradewind.core.pick.settings import PickSettings
from tradewind.runtime.policyfile import PolicyFileError, file_hash, own_policy


def made(written: str) -> Picker:
    """A picker of three cells with this policy."""
    file = policy_file(written)
    assert file is not None
    picker = Picker(PickSettings(), policy=own_policy(file), index=FakeIndex())
    picker.observe_view(grid(*map(cell_view, "abc")), 0.0)
    return picker


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("mine.py:Mine", PolicyFile("mine.py", "Mine")),
        ("/a/b.c/my-own.py:Mine_2:0.5/x:y", PolicyFile("/a/b.c/my-own.py", "Mine_2", "0.5/x:y")),
        ("cost", None),
        ("gorgo:.5/.1", None),
    ],
)
def test_the_written_form(written: str, expected: PolicyFile | None) -> None:
    assert policy_file(written) == expected
    assert expected is None or expected.written == written


@pytest.mark.parametrize("written", ["mine.py", "mine.py:", "mine.py:2nd", "mine.py:My-Own"])
def test_a_file_without_a_class_says_what_to_write(written: str) -> None:
    with pytest.raises(ValueError, match=r"write file\.py:Name"):
        policy_file(written)


def test_a_returned_cell_is_the_pick_and_the_others_are_the_alternatives(tmp_path: Path) -> None:
    written = policy_at(tmp_path, "return ask.cells[1]")
    decision = picked(made(written), request(), now_s=0.0, rng=Random(1))
    assert (decision.cell_id, decision.alternatives, decision.probability) == ("b", ("a", "c"), 1.0)
    assert decision.policy == written


def test_a_choice_with_chances_is_taken_as_it_is(tmp_path: Path) -> None:
    ranked = "[(2.5, ask.cells[2]), (float('inf'), ask.cells[0])]"
    decision = picked(
        made(policy_at(tmp_path, f"return Choice({ranked}, 0, (0.5, 0.5))")), request(), now_s=0.0, rng=Random(1)
    )
    assert (decision.cell_id, decision.cost_s, decision.probability) == ("c", 2.5, 0.5)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("return None", r"returned nothing; write `return cell` with one of ask\.cells"),
        ("return 'a'", r"returned str 'a'; write `return cell`"),
        ("SEEN.append(ask.cells); return SEEN[0][0]", "chose cell 'a', which the ask does not offer"),
        ("return Choice([(0.0, None)], 0, (1.0,))", "ranked nothing; write"),
        ("return Choice([(0.0, ask.cells[0])], 3, (1.0,))", "chose place 3 of 1"),
        ("return Choice([(float('nan'), ask.cells[0])], 0, (1.0,))", "a cost that is no number"),
        ("return Choice([(0.0, ask.cells[0]), (1.0, ask.cells[1])], 1, (1.0,))", "gives no chance for place 1"),
        ("return Choice(5, 0, (1.0,))", "cannot be read"),
        ("return ask.cells[7]", r"mine\.py:Mine line 14 raised IndexError"),
        ("raise SystemExit(3)", "line 14 raised SystemExit: 3"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_booked(tmp_path: Path, line: str, told: str) -> None:
    picker = made(policy_at(tmp_path, line))
    if "SEEN" in line:
        picked(picker, request(), now_s=0.0, rng=Random(1))
        picker.observe_view(grid(*map(cell_view, "bc")), 1.0)
    before = picker.counters.picks
    with pytest.raises(OwnPolicyError, match=told):
        picker.pick(request(), now_s=2.0, rng=Random(1))
    assert picker.counters.picks == before
    assert sum(load.requests for load in picker.outstanding().values()) == 0


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        (None, "Mine", "cannot be read: No such file"),
        ("class Other:\n    def choose(self, ask): ...\n", "Mine", "no class 'Mine'; write .*:Other"),
        ("Mine = 5\n", "Mine", "no class 'Mine'; write a class with choose"),
        ("class Mine: ...\n", "Mine", "has no method choose"),
        ("def :\n", "Mine", "line 1: invalid syntax"),
        ("import no_such_module\n", "Mine", "line 1 raised on import: ModuleNotFoundError"),
        ("\nimport sys\nsys.exit(2)\n", "Mine", "line 3 raised on import: SystemExit"),
        ("class Mine:\n    def __init__(self): 1 / 0\n    choose = None\n", "Mine", "has no method choose"),
        (
            "class Mine:\n    def __init__(self): 1 / 0\n    def choose(self, ask): ...\n",
            "Mine",
            "cannot be made line 2: ZeroDivisionError",
        ),
    ],
)
def test_a_file_that_holds_no_policy_says_why(tmp_path: Path, text: str | None, name: str, told: str) -> None:
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(PolicyFileError, match=told):
        own_policy(PolicyFile(str(path), name))


def test_an_option_goes_to_the_constructor_and_a_changed_file_counts_at_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    text = "class Mine:\n    def __init__(self, place='0'): self.place = int(place)\n"
    path.write_text(text + "    def choose(self, ask): return ask.cells[self.place]\n")
    plain, second = f"{path}:Mine", f"{path}:Mine:1"
    before = file_hash(PolicyFile(str(path), "Mine"))
    assert [picked(made(form), request(), now_s=0.0, rng=Random(1)).cell_id for form in (plain, second)] == ["a", "b"]
    path.write_text(text + "    def choose(self, ask): return ask.cells[-1 - self.place]\n")
    assert picked(made(plain), request(), now_s=0.0, rng=Random(1)).cell_id == "c"
    assert file_hash(PolicyFile(str(path), "Mine")) != before


def test_a_file_of_dataclasses_with_later_annotations_can_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n\n\n@dataclass\nclass Mine:\n"
        "    turn: int = 0\n\n    def choose(self, ask):\n        return ask.cells[0]\n"
    )
    assert picked(made(f"{path}:Mine"), request(), now_s=0.0, rng=Random(1)).cell_id == "a"
    assert list(tmp_path.iterdir()) == [path]  # no byte code beside it
