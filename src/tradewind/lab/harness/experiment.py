"""What an experiment is: trials that stand alone, and what is made of their results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tradewind.lab.checks import Check
from tradewind.lab.harness.figure import Figure
from tradewind.lab.harness.row import Published, Row

Json = Any  # what msgspec writes as JSON and reads back the same
Argument = str | int | float | bool | None
Result = Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How much of an experiment to run."""

    seeds: int | None = None  # None: the experiment's own number
    first_seed: int | None = None
    policies: tuple[str, ...] | None = None  # None: the experiment's own
    quick: bool = False  # a reduced form of seconds, to see that it works: no figure to quote

    def seed_range(self, *, seeds: int, first: int, quick: int = 1) -> range:
        """The seeds to run, with the experiment's own number, first one, and number in the quick form."""
        count = self.seeds or (quick if self.quick else seeds)
        start = first if self.first_seed is None else self.first_seed
        return range(start, start + count)


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One independent piece of work; its result depends on `args` and on the code alone."""

    experiment: str
    args: dict[str, Argument]


Done = Sequence[tuple[Trial, Result]]


def no_figures(_rows: Sequence[Row]) -> Sequence[Figure]:
    """For an experiment whose table says it all."""
    return ()


def no_claims(_rows: Sequence[Row]) -> Sequence[Check]:
    """For an experiment of which nothing is demanded."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Trials and what runs one. `run` is a module's function: it is called in another process."""

    plan: Callable[[Options], Sequence[Trial]]
    run: Callable[[Trial], Result]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One experiment. `run` needs no clock; `live` runs its trials one at a time on a grid of processes."""

    name: str
    title: str
    question: str  # in a sentence or two: what a reader learns
    rows: Callable[[Done], Sequence[Row]]
    plan: Callable[[Options], Sequence[Trial]] | None = None  # None: there is only a live form
    run: Callable[[Trial], Result] | None = None
    live: Work | None = None
    figures: Callable[[Sequence[Row]], Sequence[Figure]] = no_figures
    claims: Callable[[Sequence[Row]], Sequence[Check]] = no_claims
    published: tuple[Published, ...] = ()
    notes: str = ""  # what a reader must know before quoting a figure
    command: str = ""  # that makes it; "": `tradewind lab run NAME`

    def work(self, *, live: bool) -> Work | None:
        """The trials of one form; None if the experiment has no such form."""
        if live:
            return self.live
        return None if self.plan is None or self.run is None else Work(plan=self.plan, run=self.run)
