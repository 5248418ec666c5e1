"""Endpoints of an emulated engine that only tell: models, metrics (also broken ones), tokenize."""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from tradewind.emulator import answers
from tradewind.emulator.faults import EngineFaults
from tradewind.emulator.http import Exchange
from tradewind.emulator.prompt import chat_text, check_model, completion_prompt, parse_body, token_ids
from tradewind.emulator.responder import Responder
from tradewind.emulator.vllm_metrics import CONTENT_TYPE, VllmMetrics
from tradewind.engine.prefix import BYTES_PER_TOKEN

_HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>\n"
Handler = Callable[[Exchange], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """What the engine says it serves; the first name is the one that metrics carry."""

    names: tuple[str, ...]
    max_model_len: int
    max_num_queued_reqs: int  # 0 = no limit
    block_size_tokens: int
    kv_event_sources: dict[str, object] = field(default_factory=dict)

    def limit(self, faults: EngineFaults) -> int:
        """The context length in force."""
        return min(self.max_model_len, faults.max_model_len or self.max_model_len)


class VllmPages:
    """Reads `faults` at each answer; the owner replaces it."""

    def __init__(self, *, served: ServedModel, metrics: VllmMetrics, responder: Responder) -> None:
        self.faults = EngineFaults()
        self.loading = False
        self._served = served
        self._metrics = metrics
        self._responder = responder
        self._created = int(time.time())
        self._frozen_page: bytes | None = None

    def routes(self) -> dict[str, dict[str, Handler]]:
        """Path -> method -> handler."""
        return {
            "/v1/models": {"GET": self._models},
            "/version": {"GET": lambda exchange: self._responder.send(exchange, 200, answers.VERSION)},
            "/metrics": {"GET": self._metrics_page},
            "/tokenize": {"POST": self._tokenize},
            "/detokenize": {"POST": self._detokenize},
            "/kv_event_sources": {"GET": self._kv_event_sources},
            "/weight_info": {"GET": lambda exchange: self._responder.json(exchange, {"weight_version": "default"})},
        }

    def _models(self, exchange: Exchange) -> None:
        limit = self._served.limit(self.faults)
        if not self.faults.advertise_max_model_len:
            limit = self._served.max_model_len
        names = () if self.loading else self._served.names
        data = [_model_entry(name, self._served.names[0], self._created, limit) for name in names]
        self._responder.json(exchange, {"object": "list", "data": data})

    def _metrics_page(self, exchange: Exchange) -> None:
        fault = self.faults.metrics
        page = self._metrics.render()
        self._frozen_page = (self._frozen_page or page) if fault is not None and fault.mode == "frozen" else None
        match fault.mode if fault is not None else "":
            case "500":
                text = "text/plain; charset=utf-8"
                self._responder.send(exchange, 500, b"Internal Server Error", content_type=text)
            case "html":
                self._responder.send(exchange, 200, _HTML, content_type="text/html; charset=utf-8")
            case "hang":
                return
            case "slow" if fault is not None:
                exchange.connection.call_later(fault.delay_s, lambda: self._page(exchange, page))
            case "truncated":
                self._page(exchange, page[: len(page) // 3])
            case "empty":
                self._page(exchange, b"")
            case _:
                self._page(exchange, self._frozen_page or page)

    def _kv_event_sources(self, exchange: Exchange) -> None:
        self._responder.json(exchange, self._served.kv_event_sources)

    def _page(self, exchange: Exchange, page: bytes) -> None:
        self._responder.send(exchange, 200, page, content_type=CONTENT_TYPE)

    def _tokenize(self, exchange: Exchange) -> None:
        body = parse_body(exchange.request.headers.get("content-type", ""), exchange.request.body)
        check_model(body, self._served.names, chat=False)
        text = chat_text(body["messages"]) if "messages" in body else completion_prompt(body.get("prompt"))
        strings = None
        if body.get("return_token_strs"):
            size = BYTES_PER_TOKEN
            strings = [text[start : start + size].decode("utf-8", "replace") for start in range(0, len(text), size)]
        ids = token_ids(text)
        limit = self._served.limit(self.faults)
        self._responder.json(
            exchange, {"count": len(ids), "max_model_len": limit, "tokens": ids, "token_strs": strings}
        )

    def _detokenize(self, exchange: Exchange) -> None:
        body = parse_body(exchange.request.headers.get("content-type", ""), exchange.request.body)
        tokens = body.get("tokens")
        if not isinstance(tokens, list):
            raise answers.missing_field("tokens", len(body))
        self._responder.json(exchange, {"prompt": " ".join(str(token) for token in tokens)})


def _model_entry(name: str, root: str, created: int, max_model_len: int) -> dict[str, object]:
    permission = {
        "id": f"modelperm-{uuid.uuid4().hex[:16]}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "vllm",
        "root": f"/models/{root}",
        "parent": None,
        "max_model_len": max_model_len,
        "permission": [permission],
    }
