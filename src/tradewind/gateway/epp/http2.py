"""The server's side of one HTTP/2 connection (RFC 9113) as far as gRPC needs it: bytes in, bytes out, no clock.

Bounds: `max_streams` at once, MAX_BLOCK_BYTES of coded headers, one frame held, RECEIVE_WINDOW bytes in flight per
stream, CONTROL_FRAMES_PER_S frames that carry no request. Who breaks one, or the protocol, loses stream or connection.
What a stream is for is its handler's business.
"""

from collections.abc import Callable

from tradewind.gateway.epp import frames
from tradewind.gateway.epp.frames import Code
from tradewind.gateway.epp.hpack import MAX_LIST_BYTES, Decoder, Headers, HpackError
from tradewind.gateway.epp.stream import RECEIVE_WINDOW, ConnectionBroken, Handler, Stream, unpadded

MAX_BLOCK_BYTES = 64 * 1024
RECEIVE_FRAME = 64 * 1024
CONNECTION_WINDOW = 64 * 1024 * 1024
# Of one stream, waiting for the peer's window: beyond it the peer gets no more window from us.
SLOW_READER_BYTES = 256 * 1024
CONTROL_FRAMES_PER_S = 2_000  # PING, SETTINGS, PRIORITY, CONTINUATION, unknown and empty DATA


class Http2Connection:
    """Feed it with `receive`; send what `take` gives; when `closed`, close the transport. Then call `lost`."""

    def __init__(self, accept: Callable[[Stream, Headers], Handler], *, max_streams: int) -> None:
        """`accept` gets each new stream with its headers; it may already finish it."""
        self._accept = accept
        self._max_streams = max_streams
        self._decoder = Decoder()
        self._held = b""  # the beginning of a frame
        self._out: list[bytes] = []
        self._streams: dict[int, Stream] = {}
        self._last_stream = 0
        self._block: tuple[int, int, bytearray] | None = None  # stream, flags, headers without their end so far
        self._greeted = False
        self._settled = False  # the peer's first settings came
        self._window = frames.DEFAULT_WINDOW  # for sending
        self._first_window = frames.DEFAULT_WINDOW  # of new streams
        self._frame_size = frames.MIN_FRAME
        self._receive_window = CONNECTION_WINDOW
        self._control_second, self._control_frames = 0, 0
        self._leaving = False
        self._reactions: dict[int, Callable[[int, int, bytes], None]] = {
            frames.DATA: self._on_data,
            frames.HEADERS: self._on_headers,
            frames.CONTINUATION: self._on_continuation,
            frames.RST_STREAM: self._on_reset,
            frames.SETTINGS: self._on_settings,
            frames.PING: self._on_ping,
            frames.WINDOW_UPDATE: self._on_window,
            frames.GOAWAY: self._on_goaway,
            frames.PUSH_PROMISE: self._on_push,
        }
        self.closed = False
        self.broken = ""  # why we ended it
        self.pongs = 0
        self.write(
            frames.settings(
                {
                    frames.SET_TABLE_SIZE: 0,  # each header block stands for itself: equal ones are decoded once
                    frames.SET_STREAMS: max_streams,
                    frames.SET_WINDOW: RECEIVE_WINDOW,
                    frames.SET_FRAME_SIZE: RECEIVE_FRAME,
                    frames.SET_HEADER_LIST: MAX_LIST_BYTES,
                }
            )
            + frames.window_update(0, CONNECTION_WINDOW - frames.DEFAULT_WINDOW)
        )

    # --- the shell's side -------------------------------------------------------------------------------------

    @property
    def streams(self) -> int:
        """How many are open."""
        return len(self._streams)

    def receive(self, data: bytes, now_s: float) -> None:
        """Take bytes of the peer."""
        if self.closed:
            return
        try:
            self._read(self._held + data if self._held else data, now_s)
        except ConnectionBroken as error:
            self._break(error.code, str(error))
        except HpackError as error:
            self._break(Code.COMPRESSION_ERROR, str(error))

    def take(self) -> list[bytes]:
        """What is to be sent now."""
        out, self._out = self._out, []
        return out

    def write(self, data: bytes) -> None:
        """Queue whole frames."""
        self._out.append(data)

    def ping(self) -> None:
        """Ask the peer for a sign of life; `pongs` counts the answers."""
        self.write(frames.frame(frames.PING, 0, 0, b"tradwind"))

    def leave(self) -> None:
        """Take no new streams; closed once the open ones have ended."""
        if not self._leaving and not self.closed:
            self._leaving = True
            self.write(frames.goaway(self._last_stream, Code.NO_ERROR))
            self.closed = not self._streams

    def lost(self) -> None:
        """The transport is gone, or is about to be closed: every stream ends."""
        self.closed = True
        for stream in list(self._streams.values()):
            self._forget(stream)

    # --- reading ----------------------------------------------------------------------------------------------

    def _read(self, data: bytes, now_s: float) -> None:
        at, end = self._greeting(data), len(data)
        if at is None:
            self._held = data
            return
        while end - at >= frames.HEADER_BYTES and not self.closed:
            length, kind, flags, stream_id = frames.read_header(data, at)
            if length > RECEIVE_FRAME:
                raise ConnectionBroken(Code.FRAME_SIZE_ERROR, "a frame is too large")
            start = at + frames.HEADER_BYTES
            if end - start < length:
                break
            at = start + length
            if kind not in _MEANINGFUL or (kind == frames.DATA and not length and not flags & frames.END_STREAM):
                self._count_control(now_s)
            self._on_frame(kind, flags, stream_id, data[start:at])
        self._held = b"" if self.closed else data[at:]

    def _greeting(self, data: bytes) -> int | None:
        """Where the first frame begins; None while the greeting is not whole."""
        if self._greeted:
            return 0
        greeting = data[: len(frames.PREFACE)]
        if not frames.PREFACE.startswith(greeting):
            raise ConnectionBroken(Code.PROTOCOL_ERROR, "not HTTP/2")
        if len(greeting) < len(frames.PREFACE):
            return None
        self._greeted = True
        return len(frames.PREFACE)

    def _on_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if not self._settled and (kind != frames.SETTINGS or flags & frames.ACK):
            raise ConnectionBroken(Code.PROTOCOL_ERROR, "no settings first")
        if self._block is not None and (kind != frames.CONTINUATION or stream_id != self._block[0]):
            raise ConnectionBroken(Code.PROTOCOL_ERROR, "headers without their end")
        react = self._reactions.get(kind)  # PRIORITY and unknown types mean nothing to us
        if react is not None:
            react(flags, stream_id, payload)

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self._receive_window -= size
        if self._receive_window < 0:
            raise ConnectionBroken(Code.FLOW_CONTROL_ERROR, "more than the connection's window")
        if self._receive_window < CONNECTION_WINDOW // 2:
            self.write(frames.window_update(0, CONNECTION_WINDOW - self._receive_window))
            self._receive_window = CONNECTION_WINDOW
        stream = self._known(stream_id)
        if stream is None:
            return
        stream.receive_window -= size
        if stream.receive_window < 0 or stream.ended_by_peer:
            self._reset(stream, Code.STREAM_CLOSED if stream.ended_by_peer else Code.FLOW_CONTROL_ERROR)
            return
        data = unpadded(flags, payload)
        self._grant(stream)
        if data and stream.handler is not None and stream.ending is None:
            stream.handler.data(data)
        if flags & frames.END_STREAM:
            self._ended(stream)

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        payload = unpadded(flags, payload)
        if flags & frames.HAS_PRIORITY:
            if len(payload) < 5:
                raise ConnectionBroken(Code.FRAME_SIZE_ERROR, "headers are cut")
            payload = payload[5:]
        if flags & frames.END_HEADERS:
            self._on_block(stream_id, flags, payload)
        else:
            self._block = (stream_id, flags, bytearray(payload))

    def _on_continuation(self, flags: int, _stream_id: int, payload: bytes) -> None:
        if self._block is None:
            raise ConnectionBroken(Code.PROTOCOL_ERROR, "a continuation of nothing")
        stream_id, first_flags, block = self._block
        block += payload
        if len(block) > MAX_BLOCK_BYTES:
            raise ConnectionBroken(Code.ENHANCE_YOUR_CALM, "headers are too large")
        if flags & frames.END_HEADERS:
            self._block = None
            self._on_block(stream_id, first_flags, bytes(block))

    def _on_block(self, stream_id: int, flags: int, block: bytes) -> None:
        headers = self._decoder.decode(block)  # also where the stream is refused: the state must follow the peer's
        stream = self._streams.get(stream_id)
        if stream is None and stream_id > self._last_stream and stream_id % 2:
            self._last_stream = stream_id
            stream = self._open(stream_id, headers)
        elif stream is None and (stream_id > self._last_stream or stream_id % 2 == 0):
            raise ConnectionBroken(Code.PROTOCOL_ERROR, "no stream of a client")
        elif stream is not None and not flags & frames.END_STREAM:
            self._reset(stream, Code.PROTOCOL_ERROR)  # trailers end a stream
            return
        if stream is not None and flags & frames.END_STREAM:
            self._ended(stream)

    def _open(self, stream_id: int, headers: Headers) -> Stream | None:
        if len(self._streams) >= self._max_streams or self._leaving:
            self.write(frames.reset(stream_id, Code.REFUSED_STREAM))
            return None
        stream = self._streams[stream_id] = Stream(self, stream_id, self._first_window)
        handler = stream.handler = self._accept(stream, headers)
        if stream_id not in self._streams:
            handler.lost()
            return None
        return stream

    def _ended(self, stream: Stream) -> None:
        if not stream.ended_by_peer:
            stream.ended_by_peer = True
            if stream.handler is not None and stream.ending is None:
                stream.handler.end()

    def _on_reset(self, _flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionBroken(Code.FRAME_SIZE_ERROR, "a reset of another size")
        stream = self._known(stream_id)
        if stream is not None:
            self._forget(stream)

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id or len(payload) % 6 or (flags & frames.ACK and payload):
            raise ConnectionBroken(Code.FRAME_SIZE_ERROR, "settings of another form")
        if flags & frames.ACK:
            return
        self._settled = True
        for key, value in frames.read_settings(payload):
            if key == frames.SET_WINDOW:
                self._resize_windows(value)
            elif key == frames.SET_FRAME_SIZE:
                if not frames.MIN_FRAME <= value <= frames.MAX_FRAME:
                    raise ConnectionBroken(Code.PROTOCOL_ERROR, "no such frame size")
                self._frame_size = min(value, RECEIVE_FRAME)
        self.write(frames.frame(frames.SETTINGS, frames.ACK, 0, b""))

    def _resize_windows(self, value: int) -> None:
        if value > frames.MAX_WINDOW:
            raise ConnectionBroken(Code.FLOW_CONTROL_ERROR, "no such window")
        more, self._first_window = value - self._first_window, value
        for stream in list(self._streams.values()):
            self._widen(stream, more)

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id or len(payload) != 8:
            raise ConnectionBroken(Code.FRAME_SIZE_ERROR, "a ping of another form")
        if flags & frames.ACK:
            self.pongs += 1
        else:
            self.write(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _on_window(self, _flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionBroken(Code.FRAME_SIZE_ERROR, "a window update of another size")
        more = frames.read_word(payload)
        if stream_id:
            stream = self._known(stream_id)
            if stream is not None and not more:
                self._reset(stream, Code.PROTOCOL_ERROR)
            elif stream is not None:
                self._widen(stream, more)
            return
        self._window += more
        if not more or self._window > frames.MAX_WINDOW:
            raise ConnectionBroken(Code.FLOW_CONTROL_ERROR, "no such window")
        for stream in list(self._streams.values()):
            if self._window <= 0:
                break
            self.flush(stream)

    def _on_goaway(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        self._leaving = True
        self.closed = not self._streams

    def _on_push(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        raise ConnectionBroken(Code.PROTOCOL_ERROR, "a client cannot push")

    def _count_control(self, now_s: float) -> None:
        if int(now_s) != self._control_second:
            self._control_second, self._control_frames = int(now_s), 0
        self._control_frames += 1
        if self._control_frames > CONTROL_FRAMES_PER_S:
            raise ConnectionBroken(Code.ENHANCE_YOUR_CALM, "too many frames that carry nothing")

    # --- writing ----------------------------------------------------------------------------------------------

    def send(self, stream: Stream, payload: bytes) -> None:
        """Send body bytes, now or when the peer's window allows it."""
        size = len(payload)
        if stream.pending or size > min(stream.send_window, self._window, self._frame_size):
            stream.pending.append(payload)
            stream.pending_bytes += size
            self.flush(stream)
            return
        stream.send_window -= size
        self._window -= size
        self.write(frames.frame(frames.DATA, 0, stream.id, payload))

    def flush(self, stream: Stream) -> None:
        """Send what the windows allow of a stream's pending bytes, then its end."""
        pending = stream.pending
        while pending:
            first = pending[0]
            size = min(len(first), stream.send_window, self._window, self._frame_size)
            if size <= 0:
                return
            self.write(frames.frame(frames.DATA, 0, stream.id, first[:size]))
            if size < len(first):
                pending[0] = first[size:]
            else:
                pending.popleft()
            stream.pending_bytes -= size
            stream.send_window -= size
            self._window -= size
        self._grant(stream)
        if stream.ending is not None and stream.id in self._streams:
            last = frames.END_HEADERS | frames.END_STREAM
            self.write(frames.frame(frames.HEADERS, last, stream.id, stream.ending))
            if not stream.ended_by_peer:
                self.write(frames.reset(stream.id, Code.NO_ERROR))
            self._forget(stream)

    def _grant(self, stream: Stream) -> None:
        """Give window back once half of it is used, unless the peer does not read what we answer."""
        used = RECEIVE_WINDOW - stream.receive_window
        if used > RECEIVE_WINDOW // 2 and stream.pending_bytes <= SLOW_READER_BYTES and not stream.ended_by_peer:
            self.write(frames.window_update(stream.id, used))
            stream.receive_window = RECEIVE_WINDOW

    def _widen(self, stream: Stream, more: int) -> None:
        stream.send_window += more
        if stream.send_window > frames.MAX_WINDOW:
            self._reset(stream, Code.FLOW_CONTROL_ERROR)
        elif more > 0:
            self.flush(stream)

    def _known(self, stream_id: int) -> Stream | None:
        """The open stream; None for one that has ended. A stream that never was breaks the connection."""
        if stream_id > self._last_stream or not stream_id % 2:
            raise ConnectionBroken(Code.PROTOCOL_ERROR, "no such stream")
        return self._streams.get(stream_id)

    def _reset(self, stream: Stream, code: Code) -> None:
        self.write(frames.reset(stream.id, code))
        self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        if self._streams.pop(stream.id, None) is not None and stream.handler is not None:
            stream.handler.lost()
        if self._leaving and not self._streams:
            self.closed = True

    def _break(self, code: Code, reason: str) -> None:
        self.broken = reason
        self.write(frames.goaway(self._last_stream, code))
        self.lost()


_MEANINGFUL = frozenset((frames.DATA, frames.HEADERS, frames.RST_STREAM, frames.WINDOW_UPDATE))
