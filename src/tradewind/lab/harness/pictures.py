"""Figures as SVG files, for documents. Needs kaleido and a Chrome; nothing else here does."""

from collections.abc import Sequence
from pathlib import Path

from tradewind.lab.harness.figure import drawn
from tradewind.lab.harness.runner import Report


class NoPicturesError(RuntimeError):
    """SVG files cannot be made on this machine; the message says what to install."""


def write_pictures(folder: Path, reports: Sequence[Report]) -> list[Path]:
    """One file a figure, EXPERIMENT-FIGURE.svg. Raises NoPicturesError, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for report in reports:
        for figure in report.experiment.figures(report.rows) if report.rows else ():
            path = folder / f"{report.experiment.name}-{figure.name}.svg"
            try:
                drawn(figure).write_image(path)
            except (ImportError, ValueError, RuntimeError) as error:
                raise NoPicturesError(f"{path.name}: {error}; needs: pip install kaleido, and Chrome") from error
            written.append(path)
    return written
