"""Prompts for a trace: equal blocks give equal bytes, and what is no full block is the request's own."""

from tradewind.workload.mooncake import Trace
from tradewind.workload.plan import Plan, Planned
from tradewind.workload.prompts import BYTES_PER_TOKEN, TEMPLATE_BYTES, prompt_text


class Texts:
    """The requests of a trace as a load client sends them, with ids PREFIX-0, PREFIX-1, ..."""

    def __init__(
        self, trace: Trace, *, prefix: str, salt: str = "", bytes_per_token: float = float(BYTES_PER_TOKEN)
    ) -> None:
        """Loads of different `salt` share no prompt with each other: what one left in a cache helps no other."""
        self._requests = {f"{prefix}-{index}": request for index, request in enumerate(trace.requests)}
        self._block_bytes = round(trace.block_tokens * bytes_per_token)
        self._bytes_per_token = bytes_per_token
        self._salt = f"{salt} " if salt else ""

    def plan(self) -> Plan:
        """The requests, in the trace's order."""
        return tuple(
            Planned(
                request_id=request_id,
                at_s=request.at_s,
                prompt_tokens=request.prompt_tokens,
                output_tokens=request.output_tokens,
                kind=request.session or request.kind,
            )
            for request_id, request in self._requests.items()
        )

    def text_of(self, planned: Planned) -> str:
        """The prompt of one of them."""
        request = self._requests[planned.request_id]
        blocks = "".join(_text(f"block {self._salt}{block}", self._block_bytes) for block in request.block_ids)
        rest = round(request.prompt_tokens * self._bytes_per_token) - TEMPLATE_BYTES - len(blocks)
        return blocks + _text(planned.request_id, max(len(planned.request_id) + 1, rest))


def _text(unique: str, length: int) -> str:
    """So many bytes of English that begin like nothing else."""
    return prompt_text(unique, tokens=(length + TEMPLATE_BYTES) // BYTES_PER_TOKEN + 1)[:length]
