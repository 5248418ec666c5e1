"""A scenario: a YAML list of timed faults, checked as a whole before it starts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import yaml
from msgspec import Meta

from tradewind.emulator.fault_specs import FaultError, FaultRequest, Known, check

MAX_EVENTS = 10_000
EXAMPLE = "- {at_s: 10, fault: slow, cell: a1, params: {factor: 2.5, terms: [b, e]}, for_s: 20}"


class ScenarioEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a scenario; `fault: clear` ends what was injected before, of one target or of all."""

    at_s: Annotated[float, Meta(ge=0)]
    fault: str
    cell: str | None = None
    site: str | None = None
    path: tuple[str, str] | None = None
    params: dict[str, object] = {}
    for_s: Annotated[float, Meta(gt=0)] | None = None

    def request(self) -> FaultRequest:
        """The event without its time."""
        return FaultRequest(
            fault=self.fault, cell=self.cell, site=self.site, path=self.path, params=self.params, for_s=self.for_s
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """Events by time."""

    events: tuple[ScenarioEvent, ...] = ()


def parse_scenario(document: object, known: Known, *, where: str = "scenario") -> Scenario:
    """Checks a list of events; raises FaultError naming the line and what to write."""
    if document is None:
        return Scenario()
    if not isinstance(document, list) or len(document) > MAX_EVENTS:
        raise FaultError(f"{where}: must be a list of at most {MAX_EVENTS} events, e.g. {EXAMPLE}")
    events = []
    for index, item in enumerate(document):
        try:
            event = msgspec.convert(item, type=ScenarioEvent)
        except msgspec.ValidationError as error:
            raise FaultError(f"{where}[{index}]: {error}; write e.g. {EXAMPLE}") from error
        if event.fault != "clear":
            try:
                check(event.request(), known)
            except FaultError as error:
                raise FaultError(f"{where}[{index}]: {error}") from error
        events.append(event)
    return Scenario(tuple(sorted(events, key=lambda event: event.at_s)))


def load_scenario(path: str, known: Known) -> Scenario:
    """Reads a scenario file; "" is an empty scenario. Raises FaultError."""
    if not path:
        return Scenario()
    try:
        document = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise FaultError(f"emulation.scenario: cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise FaultError(f"{path}: not YAML: {error}") from error
    return parse_scenario(document, known, where=path)
