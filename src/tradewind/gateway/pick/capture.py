"""A picker's tape as a file: one JSON object for each input and each decision; opt-in, for `tradewind replay`.

No text of a prompt is in it: requests come with hashes of their blocks, which are keyed by a secret of this process.
Request ids, model names and, where a session header is configured, its values are as clients sent them.
"""

import gzip
import logging
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

import tradewind
from tradewind.core.memory import LimitMemory
from tradewind.core.pick.cell import OthersLoad
from tradewind.core.pick.settings import PickSettings
from tradewind.core.pick.tape import Heard
from tradewind.model.outcome import Outcome
from tradewind.model.request import Request
from tradewind.model.routing import WeightRow
from tradewind.model.tuning import TuningOrder
from tradewind.model.view import GridView, PathReading, Placed
from tradewind.runtime.log import log_event

log = logging.getLogger(__name__)

FORMAT = "tradewind.capture/1"
MAX_WAITING_BYTES = 64 * 2**20  # between two writes; a disk that takes longer ends the capture

_TYPES: dict[Heard, Any] = {
    Heard.VIEW: GridView,
    Heard.PATH: PathReading,
    Heard.PRESSURE: tuple[WeightRow, ...],
    Heard.OTHERS: dict[str, OthersLoad],
    Heard.PLACED: tuple[Placed, ...],
    Heard.RENAMED: None,
    Heard.REACH: dict[str, str],
    Heard.UNROUTABLE: tuple[str, ...],
    Heard.PROBE_SERVED: tuple[str, int, int | None],
    Heard.RECALL: tuple[LimitMemory, ...],
    Heard.ORDER: TuningOrder | None,
    Heard.CAPACITY: tuple[str, int | None],
    Heard.PICK: Request,
    Heard.DECISION: list[Any],  # compared as written, see `as_written`: a cost may be infinite, which JSON cannot say
    Heard.REFUSAL: dict[str, Any],
    Heard.FIRST_TOKEN: str,
    Heard.SERVED_BY: tuple[str, str],
    Heard.FINISHED: tuple[str, Outcome],
    Heard.RELEASE: str,
    Heard.EXPIRE: None,
}
assert _TYPES.keys() == set(Heard)


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: what the picker was made of."""

    format: str = FORMAT
    version: str = tradewind.__version__
    policy: str
    seed: int  # of the stream that near ties are drawn from
    settings: PickSettings


class Note(msgspec.Struct, frozen=True):
    """One line."""

    kind: Heard
    now_s: float
    value: object


class _RawNote(msgspec.Struct, frozen=True):
    kind: Heard
    now_s: float
    value: msgspec.Raw


class CaptureError(ValueError):
    """A file that is no capture; the message says which line."""


def as_written(answer: object) -> object:
    """A decision or a refusal as a capture has it."""
    return msgspec.json.decode(msgspec.json.encode(answer))


class Capture:
    """Keeps notes in memory until they are written, up to `max_bytes` in all; then it ends, and says so.

    A file that is there already is kept as FILE.1: each picker begins a capture of its own.
    """

    def __init__(self, path: Path, begin: Begin, *, max_bytes: int) -> None:
        self.path = path
        self.ended = ""  # why nothing is kept any more
        self._encoder = msgspec.json.Encoder()
        self._left = max_bytes
        self._waiting = bytearray(self._encoder.encode(begin) + b"\n")
        self._begun = False

    def note(self, kind: Heard, now_s: float, value: object) -> None:
        """Keep one note."""
        if self.ended:
            return
        before = len(self._waiting)
        self._waiting += self._encoder.encode(Note(kind, now_s, value))
        self._waiting += b"\n"
        self._left -= len(self._waiting) - before
        if self._left < 0 or len(self._waiting) > MAX_WAITING_BYTES:
            del self._waiting[before:]
            self._end("the bound on its size is reached" if self._left < 0 else "the disk is too slow")

    def take(self) -> bytes:
        """What waits, to be written; call it where `note` is called."""
        taken = bytes(self._waiting)
        self._waiting.clear()
        return taken

    def write(self, data: bytes) -> None:
        """Append to the file. A disk that refuses ends the capture. Blocking: belongs in a thread."""
        if not data:
            return
        try:
            if not self._begun:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                if self.path.exists():
                    self.path.replace(self.path.with_suffix(self.path.suffix + ".1"))
                self._begun = True
            with self.path.open("ab") as out:
                out.write(data)
        except OSError as error:
            self._end(str(error))

    def _end(self, why: str) -> None:
        self.ended = why
        log_event(log, "pick.capture_ended", level=logging.WARNING, path=self.path, reason=why)


def read_capture(path: Path) -> tuple[Begin, Iterator[Note]]:
    """What a file (.ndjson or .ndjson.gz) holds; a last line that was cut is left out. Raises OSError, CaptureError."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (EOFError, zlib.error) as error:
            raise CaptureError(f"not a whole gzip file: {error}") from error
    return parse_capture(data)


def parse_capture(data: bytes) -> tuple[Begin, Iterator[Note]]:
    """The same of a file's content. Notes are decoded as they are asked for."""
    lines = data.split(b"\n")
    lines.pop()  # what follows the last line end: nothing, or what a kill has cut
    if not lines:
        raise CaptureError("line 1: there is none; a capture begins with a line that names its format")
    try:
        begin = msgspec.json.decode(lines[0], type=Begin)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CaptureError(f"line 1: not the first line of a capture: {error}") from error
    if begin.format != FORMAT:
        raise CaptureError(f"line 1: format {begin.format!r}, not {FORMAT!r}; replay it with the version that wrote it")
    return begin, _notes(lines[1:])


def _notes(lines: Sequence[bytes]) -> Iterator[Note]:
    decoder = msgspec.json.Decoder(_RawNote)
    of_kind = {kind: msgspec.json.Decoder(wanted) for kind, wanted in _TYPES.items()}
    for number, line in enumerate(lines, start=2):
        try:
            raw = decoder.decode(line)
            yield Note(raw.kind, raw.now_s, of_kind[raw.kind].decode(raw.value))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CaptureError(f"line {number}: not a note of a capture: {error}") from error
