"""What the parser says of a request."""

from typing import NamedTuple

from tradewind.core.tokens.shape import PromptShape
from tradewind.gateway.requests.kinds import Kind
from tradewind.model.request import Request


class ParsedRequest(NamedTuple):
    """A request that can be routed. `note` says why it has no blocks, or is only partly known; empty otherwise."""

    request: Request
    kind: Kind
    shape: PromptShape  # give it to TokenEstimator.observe when the engine has counted
    previous_response_id: str = ""  # a follow-up belongs to the cell that gave this response
    note: str = ""


class Refused(NamedTuple):
    """A request that no engine would accept, or whose model cannot be known: an answer for the client. `certain`: no
    engine should see it, whatever pools there are; else the shares may know better."""

    status: int
    message: str
    code: str
    param: str | None = None
    certain: bool = False
