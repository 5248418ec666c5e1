"""What is wrong with a grid file: where, what, and what to write instead."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One fault of a grid file. `where` is a path such as "$.cells[0].url", or "line 3, column 5"."""

    where: str
    what: str
    write: str = ""  # what to write instead; "" when there is nothing helpful to say

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f"; write {self.write}" if self.write else "")


class ConfigError(Exception):
    """A grid file that cannot be used, with every problem found in one pass."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        assert problems, "a ConfigError needs a problem"
        super().__init__(source, problems)
        self.source = source
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(f"{self.source}: {problem}" for problem in self.problems)
