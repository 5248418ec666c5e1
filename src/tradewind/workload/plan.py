"""What a load client will send, decided before it starts: arrival times, lengths and ids, all from one seed."""

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One request to come. `at_s` counts from the start of the load."""

    request_id: str
    at_s: float
    prompt_tokens: int
    output_tokens: int
    kind: str = ""  # group for reports, e.g. "long"


Plan = tuple[Planned, ...]


def assemble(times_s: Iterable[float], lengths: Iterable[tuple[int, int, str]], *, prefix: str) -> Plan:
    """Pair arrivals with (prompt tokens, output tokens, kind); ids are PREFIX-0, PREFIX-1, ..."""
    return tuple(
        Planned(request_id=f"{prefix}-{index}", at_s=at_s, prompt_tokens=prompt, output_tokens=output, kind=kind)
        for index, (at_s, (prompt, output, kind)) in enumerate(zip(times_s, lengths, strict=False))
    )


def renamed(plan: Plan, prefix: str) -> Plan:
    """The same plan with ids of its own: two runs of one plan must not share ids."""
    return tuple(replace(item, request_id=f"{prefix}-{index}") for index, item in enumerate(plan))


def duration_s(plan: Plan) -> float:
    """When the last request is sent, in seconds from the start; 0 for an empty plan."""
    return max((item.at_s for item in plan), default=0.0)


def with_burst(
    plan: Plan, *, requests: int, at_s: float, prompt_tokens: int, output_tokens: int = 128, prefix: str = "burst"
) -> Plan:
    """The plan and so many equal requests at one moment; their ids begin as the plan's do."""
    begin = plan[0].request_id.rpartition("-")[0] if plan else ""
    extra = (
        Planned(
            request_id=f"{begin}-{prefix}-{index}",
            at_s=at_s,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            kind=prefix,
        )
        for index in range(requests)
    )
    return (*plan, *extra)
