"""How an engine ends, seen by a client whose stream it holds. Each check leaves the engine dead."""

import pytest

from tests.contract.client import DONE, Event, Stream, eventually, get
from tests.contract.engine import Engine
from tests.contract.requests import CHAT, LONG_TOKENS, chat

REFUSED_S = 10.0
SILENCE_S = 10.0
ENGINE_DEAD = {
    "message": "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "type": "InternalServerError",
    "param": None,
    "code": 500,
}


def open_stream(engine: Engine) -> Stream:
    """A stream of seconds, its first token read."""
    stream = Stream(engine, CHAT, chat(max_tokens=LONG_TOKENS, stream=True), timeout_s=SILENCE_S)
    events = iter(stream)
    next(events), next(events)
    return stream


def refuses(engine: Engine) -> bool:
    try:
        get(engine, "/health")
    except ConnectionRefusedError:
        return True
    except (ConnectionError, TimeoutError):
        return False
    return False


def test_sigterm_ends_a_stream_that_looked_fine(engine: Engine) -> None:
    with open_stream(engine) as stream:
        engine.terminate()
        ending = ending_of(stream)
    assert ending in ("error in band", "abort", "silence")
    eventually(lambda: refuses(engine), within_s=REFUSED_S, what="the port refuses")


def ending_of(stream: Stream) -> str:
    """How a stream ends whose engine was told to stop.

    A real vLLM ends it in three ways, by chance: an error event and [DONE]; a last chunk of finish_reason "abort" and
    [DONE]; or nothing at all, the connection open for as long as the client waits. Status and HTTP framing show none.
    """
    events: list[Event] = []
    try:
        events.extend(stream)
    except TimeoutError:
        return "silence"
    assert stream.cut is False
    assert events[-1] == DONE
    last = events[-2]
    assert isinstance(last, dict)
    if "error" in last:
        assert last["error"] == ENGINE_DEAD
        return "error in band"
    return str(last["choices"][0]["finish_reason"])


def test_sigkill_cuts_a_stream(engine: Engine) -> None:
    with open_stream(engine) as stream:
        engine.kill()
        events = list(stream)
        assert stream.cut is True
    assert DONE not in events
    assert not any("error" in event for event in events)
    with pytest.raises(ConnectionRefusedError):
        get(engine, "/health")
