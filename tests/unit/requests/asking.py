"""Ways to ask the parser, for its tests."""

import json
from collections.abc import Mapping

from tradewind.core.tokens.estimate import TokenEstimator
from tradewind.gateway.requests.parse import ParserSettings, RequestParser
from tradewind.gateway.requests.result import ParsedRequest, Refused

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
Body = bytes | Mapping[str, object]


def encoded(body: Body) -> bytes:
    """As the OpenAI client spells it."""
    return body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def ask(
    body: Body,
    path: str = CHAT,
    *,
    headers: Mapping[str, str] | None = None,
    partial: bool = False,
    tenant: str = "",
    only_model: str | None = None,
    settings: ParserSettings | None = None,
) -> ParsedRequest | Refused:
    """Whatever the parser says."""
    parser = RequestParser(TokenEstimator(), settings)
    return parser.parse(
        encoded(body), path=path, headers=headers or {}, partial=partial, tenant=tenant, only_model=only_model
    )


def parsed(
    body: Body,
    path: str = CHAT,
    *,
    headers: Mapping[str, str] | None = None,
    partial: bool = False,
    tenant: str = "",
    only_model: str | None = None,
    settings: ParserSettings | None = None,
) -> ParsedRequest:
    """A request that must not be refused."""
    answer = ask(body, path, headers=headers, partial=partial, tenant=tenant, only_model=only_model, settings=settings)
    assert isinstance(answer, ParsedRequest), answer
    return answer


def refused(
    body: Body,
    path: str = CHAT,
    *,
    headers: Mapping[str, str] | None = None,
    partial: bool = False,
    only_model: str | None = None,
    settings: ParserSettings | None = None,
) -> Refused:
    """A request that must be refused."""
    answer = ask(body, path, headers=headers, partial=partial, only_model=only_model, settings=settings)
    assert isinstance(answer, Refused), answer
    return answer


def chat(*texts: object, model: str = "m", **more: object) -> dict[str, object]:
    """A conversation: system, user, assistant, user, ..."""
    roles = ["system", *(["user", "assistant"] * len(texts))]
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    return {"messages": messages, "model": model, **more}
