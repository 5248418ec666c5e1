"""What the Endpoint Picker server asks of whoever decides."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tradewind.model.decision import Decision, Refusal


class EndKind(StrEnum):
    """How much of a response the proxy showed before its stream ended."""

    COMPLETE = "complete"  # the last body chunk or the trailers were seen
    HEADERS_ONLY = "headers_only"  # the proxy shows no response bodies; the response may go on
    ABORTED = "aborted"  # the stream ended in the middle: the client left, the engine died, or the proxy did
    UNSEEN = "unseen"  # no response was shown at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a picked request. It is told when the proxy ends its stream, with Envoy at the response's end, whether
    or not bodies are shown. Tokens are None where the response did not tell them or was not shown."""

    kind: EndKind
    body_bytes: int | None = None  # of the response, as far as it was shown; None = the proxy shows no bodies
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None


class PickService(Protocol):
    """Decides, and learns what became of it. Called on the server's event loop: no call may block or raise."""

    def pick(
        self,
        body: bytes,
        *,
        path: str,
        headers: Mapping[str, str],
        partial: bool,
        allowed_addresses: tuple[str, ...] | None,
    ) -> Decision | Refusal:
        """A cell for one request.

        `headers`: names in lower case, with Envoy's pseudo-headers (":method", ":path"). `body` is empty for a request
        without one (GET): any cell may serve it. `partial`: only the beginning of the body is here, and an answer is
        due now; a body whose model is not in it is refused as UNREADABLE unless a header or the only pool tells it.
        `allowed_addresses`: the answer and its alternatives must be among them, see `subset.holds`; None = no limit.
        """
        ...

    def first_token(self, decision_id: str) -> None:
        """The first body bytes of a good answer were seen. At most once per decision, before `served`."""
        ...

    def served(self, decision_id: str, address: str | None, status: int, ending: Ending) -> None:
        """The end; exactly once per decision. `address`: who answered, if the proxy told; `status` 0 = none seen."""
        ...

    def addresses(self, cell_ids: tuple[str, ...]) -> tuple[str, ...]:
        """Where this gateway reaches these cells, "ip:port" each, in order; unknown cells are left out."""
        ...
