"""What a picker answered in one exchange, and what of it can be read."""

from dataclasses import dataclass, field

from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from tradewind.gateway.epp.replies import DESTINATION, LB_NAMESPACE
from tradewind.lab.epp.script import Script


@dataclass(slots=True)
class Transcript:
    """The answers in order."""

    script: Script
    answers: list[pb.ProcessingResponse] = field(default_factory=list)
    decided_s: float | None = None  # from the request's headers to the decision; None = no decision
    silent: str = ""  # which answer did not come in time
    error: str = ""  # how the picker broke the stream, "CODE: details"

    @property
    def order(self) -> list[str]:
        """Which message each answer is for."""
        return [answer.WhichOneof("response") or "nothing" for answer in self.answers]

    @property
    def refusal(self) -> pb.ImmediateResponse | None:
        """The answer in place of an engine's, if there is one."""
        return next((item.immediate_response for item in self.answers if item.HasField("immediate_response")), None)

    @property
    def header_values(self) -> list[str]:
        """Every value that the destination header was set to."""
        return [
            option.header.raw_value.decode("utf-8", "replace") or option.header.value
            for answer in self.answers
            for option in _set_headers(answer)
            if option.header.key.lower() == DESTINATION
        ]

    @property
    def header_actions(self) -> list[int]:
        """How each of them is to be combined with a header of the client."""
        return [
            option.append_action
            for answer in self.answers
            for option in _set_headers(answer)
            if option.header.key.lower() == DESTINATION
        ]

    @property
    def metadata_values(self) -> list[str]:
        """Every value of the destination in dynamic metadata."""
        return [
            answer.dynamic_metadata.fields[LB_NAMESPACE].struct_value.fields[DESTINATION].string_value
            for answer in self.answers
            if LB_NAMESPACE in answer.dynamic_metadata.fields
            and DESTINATION in answer.dynamic_metadata.fields[LB_NAMESPACE].struct_value.fields
        ]

    @property
    def destinations(self) -> list[str]:
        """Where the request goes, best first; by the header, which every gateway reads."""
        return [entry.strip() for entry in self.header_values[0].split(",")] if self.header_values else []

    def echoes(self, kind: str) -> list[pb.StreamedBodyResponse]:
        """The pieces of a body given back; `kind`: "request_body" or "response_body"."""
        return [
            getattr(answer, kind).response.body_mutation.streamed_response
            for answer in self.answers
            if answer.WhichOneof("response") == kind
            and getattr(answer, kind).response.body_mutation.HasField("streamed_response")
        ]

    def echoed(self, kind: str) -> bytes:
        """The body given back as a whole."""
        return b"".join(piece.body for piece in self.echoes(kind))

    def ended(self, kind: str) -> bool:
        """Whether the end of the body was given back."""
        return any(piece.end_of_stream for piece in self.echoes(kind))


def _set_headers(answer: pb.ProcessingResponse) -> list[base_pb2.HeaderValueOption]:
    kind = answer.WhichOneof("response")
    if kind in {"request_headers", "request_body"}:
        return list(getattr(answer, kind).response.header_mutation.set_headers)
    return []
