"""The filter that puts token usage and in-band errors of a stream into dynamic metadata for the access log.

`sse_to_metadata` and its JSON parser are marked work in progress by Envoy; this module is the only one that names
them, and the integration tests hold them to the pinned Envoy. Whole JSON answers are read by share.lua: Envoy's
`json_to_metadata` would hold them back until their end.
"""

from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import json_format, struct_pb2
from xds.type.v3 import typed_struct_pb2

from tradewind.xds.cluster import pack

NAMESPACE = "tradewind.usage"
_TYPE = "type.googleapis.com/envoy.extensions."

# (metadata key, path in the response). OpenAI chat and completions, Anthropic messages, OpenAI responses.
_COUNTS = (
    ("prompt_tokens", ("usage", "prompt_tokens")),
    ("completion_tokens", ("usage", "completion_tokens")),
    ("cached_tokens", ("usage", "prompt_tokens_details", "cached_tokens")),
    ("prompt_tokens", ("usage", "input_tokens")),
    ("completion_tokens", ("usage", "output_tokens")),
    ("prompt_tokens", ("response", "usage", "input_tokens")),
    ("completion_tokens", ("response", "usage", "output_tokens")),
)
# vLLM: {"error": {"message", "type", "code": 500}}; others: {"error": "text"}.
_ERRORS = (("error_code", ("error", "code"), "NUMBER"), ("error_text", ("error",), "STRING"))


def usage_filters() -> list[hcm_pb2.HttpFilter]:
    """The filters, in chain order."""
    return [hcm_pb2.HttpFilter(name="envoy.filters.http.sse_to_metadata", typed_config=pack(_sse_filter()))]


def _sse_filter() -> typed_struct_pb2.TypedStruct:
    rules = [_sse_rule(name, path, "NUMBER") for name, path in _COUNTS]
    rules += [_sse_rule(name, path, kind) for name, path, kind in _ERRORS]
    value = json_format.ParseDict(
        {
            "response_rules": {
                "max_event_size": 1_048_576,
                "content_parser": {
                    "name": "envoy.content_parsers.json",
                    "typed_config": {"@type": _TYPE + "content_parsers.json.v3.JsonContentParser", "rules": rules},
                },
            }
        },
        struct_pb2.Struct(),
    )
    return typed_struct_pb2.TypedStruct(type_url=_TYPE + "filters.http.sse_to_metadata.v3.SseToMetadata", value=value)


def _sse_rule(name: str, path: tuple[str, ...], kind: str) -> dict[str, object]:
    present = {"metadata_namespace": NAMESPACE, "key": name, "type": kind}
    return {"rule": {"selectors": [{"key": key} for key in path], "on_present": present}}
