"""Reading what a tuner kept: every fault names the field and what belongs there."""

from collections.abc import Mapping
from math import isfinite

from tradewind.core.tuner.tuner import Kept
from tradewind.model.tuning import Weights

MAX_GENERATION = 1 << 53  # a JSON number is exact up to here


class Reader:
    """A mapping and where it stands. Raises ValueError for what is missing or cannot be."""

    def __init__(self, kept: object, where: str = "kept") -> None:
        if not isinstance(kept, Mapping):
            raise ValueError(f"{where} must be a mapping, not {_short(kept)}")
        self._kept: Kept = kept
        self._where = where

    def under(self, name: str) -> "Reader":
        """A mapping inside."""
        return Reader(self._get(name), f"{self._where}.{name}")

    def names(self) -> tuple[str, ...]:
        """Its keys."""
        return tuple(map(str, self._kept))

    def has(self, name: str) -> bool:
        """Whether there is more than null."""
        return self._kept.get(name) is not None

    def text(self, name: str) -> str:
        """A text."""
        value = self._get(name)
        if not isinstance(value, str):
            raise self._fault(name, "a text", value)
        return value

    def same(self, name: str, wanted: str) -> None:
        """This text and no other."""
        if (value := self.text(name)) != wanted:
            raise self._fault(name, repr(wanted), value)

    def flag(self, name: str) -> bool:
        """true or false."""
        value = self._get(name)
        if not isinstance(value, bool):
            raise self._fault(name, "true or false", value)
        return value

    def whole(self, name: str, low: int, high: int) -> int:
        """A whole number."""
        value = self._get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._fault(name, f"a whole number from {low} to {high}", value)
        return value

    def positive(self, name: str) -> float:
        """A finite number above 0."""
        value = self._get(name)
        if not _positive(value):
            raise self._fault(name, "a number above 0", value)
        return float(value)  # type: ignore[arg-type]  # _positive has looked

    def weights(self, name: str) -> Weights:
        """[rtt, queue]."""
        value = self._get(name)
        if not isinstance(value, list | tuple) or len(value) != len(Weights._fields) or not all(map(_positive, value)):
            raise self._fault(name, "two numbers above 0: [rtt, queue]", value)
        return Weights(*map(float, value))

    def _get(self, name: str) -> object:
        if name not in self._kept:
            raise ValueError(f"{self._where}.{name} is missing")
        return self._kept[name]

    def _fault(self, name: str, wanted: str, value: object) -> ValueError:
        return ValueError(f"{self._where}.{name} must be {wanted}, not {_short(value)}")


def _positive(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return isfinite(value) and value > 0
    except OverflowError:  # a whole number beyond all floats
        return False


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
