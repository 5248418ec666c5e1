"""Runs of experiments for machines: one JSON document."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tradewind.lab.checks import Check
from tradewind.lab.harness.row import Published, Row
from tradewind.lab.harness.runner import Report

SCHEMA = "tradewind.lab/1"


class FailedTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial that raised."""

    replay: str
    error: str


class ExperimentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One experiment's part."""

    name: str
    title: str
    command: str
    quick: bool
    trials: int
    took_s: float
    rows: tuple[Row, ...]
    published: tuple[Published, ...]
    claims: tuple[Check, ...]
    failures: tuple[FailedTrial, ...]
    notes: str


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. docs/reference/lab-json.md tells each field."""

    schema: str
    facts: dict[str, object]
    experiments: tuple[ExperimentDocument, ...]


def document(reports: Sequence[Report], *, facts: Mapping[str, object]) -> Document:
    """The document of some runs."""
    return Document(
        schema=SCHEMA,
        facts=dict(facts),
        experiments=tuple(
            ExperimentDocument(
                name=item.experiment.name,
                title=item.experiment.title,
                command=item.command,
                quick=item.quick,
                trials=item.trials,
                took_s=round(item.took_s, 3),
                rows=item.rows,
                published=item.experiment.published,
                claims=item.claims,
                failures=tuple(FailedTrial(replay=failure.replay, error=failure.error) for failure in item.failures),
                notes=item.experiment.notes,
            )
            for item in reports
        ),
    )


def write_document(path: Path, value: Document) -> None:
    """Write it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
