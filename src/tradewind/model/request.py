"""One client request as the picker sees it: what it asks for, how long it is, and what of it may be cached."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request before it has a cell. Token counts are estimates unless `exact_tokens`."""

    request_id: str
    model: str  # as the client wrote it: a base model, an alias or a LoRA adapter
    prompt_tokens: int  # >= 1
    max_output_tokens: int | None = None  # what the client allows; None = it did not say
    # Chained 64-bit hashes of the canonical prompt, first block first: equal prefixes have equal leading hashes.
    # Tenant, salt, model, tools and images are part of the chain, so that nothing is shared across them.
    blocks: tuple[int, ...] = ()
    block_tokens: float = 0.0  # mean tokens per block of this prompt; 0 without blocks
    tenant: str = ""
    session: str = ""  # the session header, where it is switched on
    modalities: tuple[str, ...] = ()  # beyond text, sorted: "audio", "image", "video"
    allowed_sites: tuple[str, ...] | None = None  # residency; None = everywhere
    allowed_addresses: tuple[str, ...] | None = None  # a subset hint, "ip:port" each; None = the whole pool
    body_bytes: int = 0
    stream: bool = False
    exact_tokens: bool = False
