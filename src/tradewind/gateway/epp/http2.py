"""The server's side of one HTTP/2 connection as far as gRPC needs it, on h2: bytes in, bytes out, no clock.

Bounds: `max_streams` at once, MAX_LIST_BYTES of headers, SILENT_BYTES that complete nothing (a header block or a frame
that does not end), RECEIVE_WINDOW bytes in flight per stream, CONTROL_FRAMES_PER_S frames that carry no request. Who
breaks one, or the protocol, loses stream or connection. What a stream is for is its handler's business.
"""

from collections.abc import Callable, Mapping

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingAckReceived,
    PingReceived,
    PriorityUpdated,
    RemoteSettingsChanged,
    RequestReceived,
    SettingsAcknowledged,
    StreamEnded,
    StreamReset,
    UnknownFrameReceived,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from tradewind.gateway.epp.stream import Handler, Headers, Stream

MAX_LIST_BYTES = 32 * 1024  # of one decoded header block, as RFC 9113 counts it
RECEIVE_FRAME = 64 * 1024
RECEIVE_WINDOW = 1024 * 1024  # bytes that a peer may send ahead on one stream
CONNECTION_WINDOW = 64 * 1024 * 1024
# h2 looks at a frame when it is whole, and at a header block after 64 of them: what grows beyond this is cut before.
SILENT_BYTES = 128 * 1024
# Of one stream, waiting for the peer's window: beyond it the peer gets no more window from us.
SLOW_READER_BYTES = 256 * 1024
CONTROL_FRAMES_PER_S = 2_000  # PING, SETTINGS, PRIORITY, unknown and empty DATA
MAX_SETTINGS = 64  # different ones of a peer; h2 remembers each
PIECE_BYTES = 16 * 1024  # are given to h2 at once, so that a flood is seen before it was worked through
_CONTROL = frozenset(
    (PingReceived, PingAckReceived, RemoteSettingsChanged, SettingsAcknowledged, PriorityUpdated, UnknownFrameReceived)
)
_CONFIG = H2Configuration(
    client_side=False,
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)


class _Machine(H2Connection):
    """h2 made cheaper where many streams are open or many have ended."""

    MAX_CLOSED_STREAMS = 4096  # how they ended is remembered, in 0.7 MB; by default in 11.5 MB
    _kept = 0

    @property
    def open_inbound_streams(self) -> int:
        """Never too many for h2, which would end the connection: it is for Http2Connection to refuse one stream.

        h2 asks at each new stream, and counts all of them, to drop the closed ones: here when they may be the half.
        """
        if len(self.streams) > 2 * self._kept + 64:
            self._kept = super().open_inbound_streams
        return 0


class ConnectionBroken(Exception):
    """The peer broke a bound in a way that ends the connection."""


class Http2Connection:
    """Feed it with `receive`; send what `take` gives; when `closed`, close the transport. Then call `lost`."""

    def __init__(self, accept: Callable[[Stream, Mapping[bytes, bytes]], Handler], *, max_streams: int) -> None:
        """`accept` gets each new stream with its headers; it may already finish it."""
        self._accept = accept
        self._max_streams = max_streams
        self._h2 = _machine(max_streams)
        self._out: list[bytes] = []
        self._streams: dict[int, Stream] = {}
        self._silent_bytes = 0
        self._control_second, self._control_frames = 0, 0
        self._leaving = False
        self._reactions: dict[type[Event], Callable[..., None]] = {
            RequestReceived: self._on_request,
            DataReceived: self._on_data,
            StreamEnded: self._on_end,
            StreamReset: self._on_reset,
            WindowUpdated: self._on_window,
            RemoteSettingsChanged: self._on_settings,
            PingAckReceived: self._on_pong,
        }
        self.closed = False
        self.broken = ""  # why we ended it
        self.pongs = 0

    # --- the shell's side -------------------------------------------------------------------------------------

    @property
    def streams(self) -> int:
        """How many are open."""
        return len(self._streams)

    def receive(self, data: bytes, now_s: float) -> None:
        """Take bytes of the peer."""
        view = memoryview(data)
        try:
            for at in range(0, len(data), PIECE_BYTES):
                if not self.closed:
                    self._read(view[at : at + PIECE_BYTES], now_s)
        except ConnectionBroken as error:
            self._h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            self._break(str(error))
        except ProtocolError as error:  # h2 has said goodbye
            self._break(str(error))

    def take(self) -> bytes:
        """What is to be sent now."""
        self._out.append(self._h2.data_to_send())
        out, self._out = self._out, []
        return b"".join(out)

    def ping(self) -> None:
        """Ask the peer for a sign of life; `pongs` counts the answers."""
        if not self.closed:
            self._h2.ping(b"tradwind")

    def leave(self) -> None:
        """Take no new streams; closed once the open ones have ended."""
        if not self._leaving and not self.closed:
            self._leaving = True
            # Not by h2, for which a connection ends here and now.
            goodbye = GoAwayFrame(0, last_stream_id=self._h2.highest_inbound_stream_id)
            self._out += (self._h2.data_to_send(), goodbye.serialize())
            self.closed = not self._streams

    def lost(self) -> None:
        """The transport is gone, or is about to be closed: every stream ends."""
        self.closed = True
        for stream in list(self._streams.values()):
            self._forget(stream)

    # --- reading ----------------------------------------------------------------------------------------------

    def _read(self, piece: memoryview, now_s: float) -> None:
        events = self._h2.receive_data(piece)
        if events:
            self._silent_bytes = 0
        else:
            self._count_silent(len(piece))
        if any(type(event) is ConnectionTerminated for event in events):
            self.lost()  # h2 says nothing more after a goodbye, to open streams neither
            return
        for event in events:
            kind = type(event)
            if kind in _CONTROL or (isinstance(event, DataReceived) and not event.data and event.stream_ended is None):
                self._count_control(now_s)
            react = self._reactions.get(kind)
            if react is not None:
                react(event)
            if self.closed:
                return

    def _on_request(self, event: RequestReceived) -> None:
        self._control_frames -= event.priority_updated is not None  # it came with the headers
        if self._gone(event.stream_id):
            return
        if len(self._streams) >= self._max_streams or self._leaving:
            self._h2.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM)
            return
        stream = self._streams[event.stream_id] = Stream(self, event.stream_id)
        handler = stream.handler = self._accept(stream, dict(event.headers))
        if event.stream_id not in self._streams:
            handler.lost()

    def _on_data(self, event: DataReceived) -> None:
        left = self._h2.inbound_flow_control_window
        if left < CONNECTION_WINDOW // 2:
            self._h2.increment_flow_control_window(CONNECTION_WINDOW - left)
        stream = self._streams.get(event.stream_id)
        if stream is None:
            return
        stream.received += event.flow_controlled_length
        self._grant(stream)
        if event.data and stream.handler is not None and stream.ending is None:
            stream.handler.data(event.data)

    def _on_end(self, event: StreamEnded) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is not None:
            stream.ended_by_peer = True
            if stream.handler is not None and stream.ending is None:
                stream.handler.end()

    def _on_reset(self, event: StreamReset) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is not None:
            self._forget(stream)

    def _on_window(self, event: WindowUpdated) -> None:
        if not event.stream_id:
            self._flush_all()
        elif (stream := self._streams.get(event.stream_id)) is not None:
            self.flush(stream)

    def _on_settings(self, event: RemoteSettingsChanged) -> None:
        if len(self._h2.remote_settings) > MAX_SETTINGS:
            raise ConnectionBroken("too many settings")
        if SettingCodes.INITIAL_WINDOW_SIZE in event.changed_settings:
            self._flush_all()

    def _on_pong(self, _event: PingAckReceived) -> None:
        self.pongs += 1

    def _count_silent(self, size: int) -> None:
        """Bytes that were no event; they count unless h2 answered them by itself."""
        self._out.append(self._h2.data_to_send())
        self._silent_bytes = 0 if self._out[-1] else self._silent_bytes + size
        if self._silent_bytes > SILENT_BYTES:
            raise ConnectionBroken("a frame or a header block does not end")

    def _count_control(self, now_s: float) -> None:
        if int(now_s) != self._control_second:
            self._control_second, self._control_frames = int(now_s), 0
        self._control_frames += 1
        if self._control_frames > CONTROL_FRAMES_PER_S:
            raise ConnectionBroken("too many frames that carry nothing")

    # --- writing ----------------------------------------------------------------------------------------------

    def start(self, stream: Stream, headers: Headers) -> None:
        """Send the response's headers."""
        if not self._gone(stream.id):
            self._h2.send_headers(stream.id, headers)

    def flush(self, stream: Stream) -> None:
        """Send what the windows allow of a stream's pending bytes, then its end."""
        if self._gone(stream.id):
            return
        pending, machine = stream.pending, self._h2
        while pending:
            first = pending[0]
            size = min(len(first), machine.local_flow_control_window(stream.id), machine.max_outbound_frame_size)
            if size <= 0:
                return
            if size < len(first):
                machine.send_data(stream.id, first[:size])
                pending[0] = first[size:]
            else:
                machine.send_data(stream.id, pending.popleft())
            stream.pending_bytes -= size
        self._grant(stream)
        if stream.ending is not None and stream.id in self._streams:
            machine.send_headers(stream.id, stream.ending, end_stream=True)
            if not self._gone(stream.id):
                machine.reset_stream(stream.id, ErrorCodes.NO_ERROR)
            self._forget(stream)

    def _flush_all(self) -> None:
        for stream in list(self._streams.values()):
            if stream.pending:
                self.flush(stream)

    def _grant(self, stream: Stream) -> None:
        """Give window back once half of it is used, unless the peer does not read what we answer."""
        if stream.received <= RECEIVE_WINDOW // 2 or stream.pending_bytes > SLOW_READER_BYTES or stream.ended_by_peer:
            return
        if not self._gone(stream.id):
            self._h2.increment_flow_control_window(stream.received, stream.id)
            stream.received = 0

    def _gone(self, stream_id: int) -> bool:
        """Whether h2 has closed a stream: its events come after all bytes of a piece were worked through."""
        known = self._h2.streams.get(stream_id)
        return known is None or known.closed

    def _forget(self, stream: Stream) -> None:
        if self._streams.pop(stream.id, None) is not None and stream.handler is not None:
            stream.handler.lost()
        if self._leaving and not self._streams:
            self.closed = True

    def _break(self, reason: str) -> None:
        self.broken = reason
        self.lost()


def _machine(max_streams: int) -> H2Connection:
    machine = _Machine(_CONFIG)
    machine.local_settings = Settings(
        client=False,
        initial_values={
            SettingCodes.MAX_CONCURRENT_STREAMS: max_streams,
            SettingCodes.INITIAL_WINDOW_SIZE: RECEIVE_WINDOW,
            SettingCodes.MAX_FRAME_SIZE: RECEIVE_FRAME,
            SettingCodes.MAX_HEADER_LIST_SIZE: MAX_LIST_BYTES,
        },
    )
    machine.max_inbound_frame_size = RECEIVE_FRAME
    machine.decoder.max_header_list_size = MAX_LIST_BYTES
    machine.initiate_connection()
    machine.increment_flow_control_window(CONNECTION_WINDOW - machine.inbound_flow_control_window)
    return machine
