"""Which API a path belongs to."""

from enum import StrEnum


class Kind(StrEnum):
    """How the body is to be read."""

    CHAT = "chat"
    COMPLETION = "completion"
    RESPONSES = "responses"
    MESSAGES = "messages"
    POOLING = "pooling"  # embeddings, rerank, score, classify: no prefix, no output
    TOKENIZE = "tokenize"
    AUDIO = "audio"  # multipart form
    RESPONSE_LOOKUP = "response_lookup"  # GET, cancel or delete of one stored response
    OTHER = "other"  # a JSON body with a model, and nothing else known


_BY_ENDING: tuple[tuple[str, Kind], ...] = (
    ("/chat/completions", Kind.CHAT),
    ("/completions", Kind.COMPLETION),
    ("/responses", Kind.RESPONSES),
    ("/messages", Kind.MESSAGES),
    ("/messages/count_tokens", Kind.MESSAGES),
    ("/embeddings", Kind.POOLING),
    ("/rerank", Kind.POOLING),
    ("/score", Kind.POOLING),
    ("/classify", Kind.POOLING),
    ("/pooling", Kind.POOLING),
    ("/tokenize", Kind.TOKENIZE),
    ("/detokenize", Kind.TOKENIZE),
    ("/audio/transcriptions", Kind.AUDIO),
    ("/audio/translations", Kind.AUDIO),
)
_RESPONSES = "/responses/"


def kind_of(path: str) -> Kind:
    """The kind of a request path; a query string is ignored."""
    path = path.partition("?")[0].rstrip("/")
    for ending, kind in _BY_ENDING:
        if path.endswith(ending):
            return kind
    return Kind.RESPONSE_LOOKUP if _RESPONSES in path else Kind.OTHER


def response_id_of(path: str) -> str:
    """The id in `/v1/responses/{id}` or `/v1/responses/{id}/cancel`; empty for other paths."""
    _, found, rest = path.partition("?")[0].partition(_RESPONSES)
    return rest.partition("/")[0] if found else ""
