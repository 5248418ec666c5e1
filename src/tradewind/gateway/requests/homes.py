"""Which cell holds a stored response, for the follow-ups of the Responses API.

A stored response lives in the engine that made it. An id that is not known here (another gateway's, too old, its cell
gone) has no home: the request is routed like any other, and the engine says that it does not know the id.
"""

from collections import OrderedDict

TTL_S = 3_600.0
MAX_RESPONSES = 100_000
MAX_ID_CHARACTERS = 256


class ResponseHomes:
    """Bounded: the id not used for longest gives way. Ids longer than `MAX_ID_CHARACTERS` are not kept."""

    def __init__(self, *, ttl_s: float = TTL_S, max_responses: int = MAX_RESPONSES) -> None:
        self._ttl_s = ttl_s
        self._max_responses = max_responses
        self._homes: OrderedDict[str, tuple[str, float]] = OrderedDict()  # response id -> (cell, used at)

    def __len__(self) -> int:
        return len(self._homes)

    def remember(self, response_id: str, cell_id: str, now_s: float) -> None:
        """This cell gave this response."""
        if not response_id or len(response_id) > MAX_ID_CHARACTERS:
            return
        self._homes[response_id] = (cell_id, now_s)
        self._homes.move_to_end(response_id)
        if len(self._homes) > self._max_responses:
            self._homes.popitem(last=False)

    def home(self, response_id: str, now_s: float) -> str | None:
        """The cell of this response, which counts as used now; None where it is not known."""
        held = self._homes.get(response_id)
        if held is None:
            return None
        cell_id, used_at_s = held
        if now_s - used_at_s > self._ttl_s:
            del self._homes[response_id]
            return None
        self.remember(response_id, cell_id, now_s)
        return cell_id

    def forget(self, cell_id: str) -> None:
        """The cell restarted or left: its responses are gone."""
        for response_id in [known for known, (home, _) in self._homes.items() if home == cell_id]:
            del self._homes[response_id]
