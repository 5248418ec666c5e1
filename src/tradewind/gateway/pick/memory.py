"""The last requests: what was decided for each, and what became of it.

Bounded by `most` requests, the oldest of which goes: some 5 KB each with the terms of a decision. Ids are a client's to
choose: one that is used again stands for its newest request, and one that is too long is not remembered.
"""

from collections import OrderedDict
from typing import NamedTuple

from tradewind.core.tokens.shape import PromptShape
from tradewind.model.decision import Decision, Refusal
from tradewind.model.outcome import Outcome

MAX_STORIES = 4_096
MAX_ID_CHARS = 200


class Sent(NamedTuple):
    """What is kept of a decision until its outcome comes: for the request log and the token estimates."""

    model: str
    shape: PromptShape
    policy: str
    cell_id: str
    cost_s: float
    probability: float
    expected_ttft_s: float | None
    prompt_tokens: int  # estimated
    matched_tokens: int  # predicted hit
    fingerprint: int  # of the body; 0 = it was not read whole


def sent_of(decision: Decision, model: str, shape: PromptShape, fingerprint: int) -> Sent:
    """Made for every decision, so by position."""
    return Sent(
        model,
        shape,
        decision.policy,
        decision.cell_id,
        decision.cost_s,
        decision.probability,
        decision.expected_ttft_s,
        decision.prompt_tokens,
        decision.matched_tokens,
        fingerprint,
    )


class Story:
    """One request. `found`: a text says why it was left to the weights, None that nobody asked, or not this process."""

    __slots__ = ("ended_s", "found", "name", "outcome", "started_s")

    def __init__(self, found: Decision | Refusal | str | None, name: str, started_s: float) -> None:
        self.found = found
        self.name = name  # of the decision, as it is logged
        self.started_s = started_s
        self.outcome: Outcome | None = None
        self.ended_s: float | None = None


class Memory:
    """Used by one thread."""

    def __init__(self, *, most: int = MAX_STORIES) -> None:
        self._most = most
        self._stories: OrderedDict[str, Story] = OrderedDict()  # in the order of their beginning

    def __len__(self) -> int:
        return len(self._stories)

    @property
    def most(self) -> int:
        """How many requests are remembered."""
        return self._most

    def asked(self, request_id: str, found: Decision | Refusal | str, now_s: float, *, name: str = "") -> None:
        """The picker was asked, and this is what it found."""
        self._add(request_id, Story(found, name, now_s))

    def ended(self, outcome: Outcome, now_s: float) -> Story | None:
        """The request is over; its story, None for an id that is not remembered."""
        story = self._stories.get(outcome.request_id)
        if story is None or not (_same(story, outcome) or story.outcome is None):
            story = Story(None, outcome.decision_id, now_s - max(0.0, outcome.duration_s))
            self._add(outcome.request_id, story)
        elif outcome.decision_id and not _same(story, outcome):
            return None  # of an earlier request under this id
        story.outcome, story.ended_s = outcome, now_s
        return story

    def story(self, request_id: str) -> Story | None:
        """The newest request of this id."""
        return self._stories.get(request_id)

    def reach_s(self, now_s: float) -> float | None:
        """How long ago the oldest request began that is remembered."""
        oldest = next(iter(self._stories.values()), None)
        return now_s - oldest.started_s if oldest is not None else None

    def _add(self, request_id: str, story: Story) -> None:
        if not request_id or len(request_id) > MAX_ID_CHARS:
            return
        self._stories[request_id] = story
        self._stories.move_to_end(request_id)
        if len(self._stories) > self._most:
            self._stories.popitem(last=False)


def _same(story: Story, outcome: Outcome) -> bool:
    return bool(story.name) and story.name == outcome.decision_id
