"""The parts of each API's body that matter for routing; every other field is skipped while decoding.

A field of another type than these is no error here: the decoder gives up, and the engine judges the request. `Raw` is a
stretch of the body as the client spelled it: texts are hashed in that form, at a quarter of the cost of decoding them.
"""

import msgspec
from msgspec import Raw, Struct

NOTHING = Raw()
_NULL = Raw(b"null")
Number = int | float | str | bool | None


class Part(Struct, gc=False):
    """One part of a message's content, of any of the APIs."""

    text: Raw = NOTHING
    image_url: Raw = NOTHING
    source: Raw = NOTHING  # Anthropic: an image or a document
    input_audio: Raw = NOTHING
    audio_url: Raw = NOTHING
    video_url: Raw = NOTHING
    file: Raw = NOTHING
    file_id: Raw = NOTHING
    image_embeds: Raw = NOTHING
    audio_embeds: Raw = NOTHING
    refusal: Raw = NOTHING
    thinking: Raw = NOTHING
    name: Raw = NOTHING  # of a tool that is used
    input: Raw = NOTHING  # its arguments
    content: Raw = NOTHING  # its result
    uuid: Raw = NOTHING  # vLLM: an image the engine may have already


class Message(Struct):
    """One chat message, or one item of a Responses input."""

    role: str | None = None
    content: Raw = NOTHING
    type: str | None = None
    name: Raw = NOTHING
    tool_calls: Raw = NOTHING
    tool_call_id: Raw = NOTHING
    function_call: Raw = NOTHING
    reasoning_content: Raw = NOTHING
    reasoning: Raw = NOTHING
    arguments: Raw = NOTHING
    output: Raw = NOTHING
    call_id: Raw = NOTHING


class Head(Struct):
    """What the APIs have in common; the last six change how an engine renders the same messages."""

    model: str | None = None
    stream: Number = None
    max_tokens: Number = None
    max_completion_tokens: Number = None
    max_output_tokens: Number = None
    cache_salt: str | None = None
    chat_template: Raw = NOTHING
    chat_template_kwargs: Raw = NOTHING
    reasoning_effort: Raw = NOTHING
    mm_processor_kwargs: Raw = NOTHING
    truncate_prompt_tokens: Raw = NOTHING
    documents: Raw = NOTHING


class ChatBody(Head):
    messages: list[Message] = []
    tools: Raw = NOTHING
    functions: Raw = NOTHING


class AnthropicBody(Head):
    messages: list[Message] = []
    system: Raw = NOTHING
    tools: Raw = NOTHING


class ResponsesBody(Head):
    input: Raw = NOTHING
    instructions: Raw = NOTHING
    previous_response_id: str | None = None
    tools: Raw = NOTHING
    reasoning: Raw = NOTHING


class CompletionBody(Head):
    prompt: Raw = NOTHING


class Envelope(Struct):
    """The same top level for a body whose types are not those above: nothing but its being an object is checked."""

    model: Raw = NOTHING
    stream: Raw = NOTHING
    max_tokens: Raw = NOTHING
    max_completion_tokens: Raw = NOTHING
    max_output_tokens: Raw = NOTHING
    previous_response_id: Raw = NOTHING
    input: Raw = NOTHING


CHAT = msgspec.json.Decoder(ChatBody)
ANTHROPIC = msgspec.json.Decoder(AnthropicBody)
RESPONSES = msgspec.json.Decoder(ResponsesBody)
COMPLETION = msgspec.json.Decoder(CompletionBody)
ENVELOPE = msgspec.json.Decoder(Envelope)
PART = msgspec.json.Decoder(Part)
ITEMS = msgspec.json.Decoder(list[Message])
RAWS = msgspec.json.Decoder(list[Raw])
IDS = msgspec.json.Decoder(list[int])
ANYTHING = msgspec.json.Decoder()


def present(raw: Raw) -> bool:
    """Whether the client gave this field a value."""
    return raw is not NOTHING and raw != _NULL
