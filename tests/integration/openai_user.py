"""What a user of the official OpenAI client sees of an address, as JSON; run under an old and the newest version of it.

    python openai_user.py BASE_URL MODEL...

Needs the `openai` package and nothing else.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import openai

Json = dict[str, object]
Client = Any  # two versions of the package, whose types differ
TIMEOUT_S = 60.0
LARGE_PROMPT = "fox " * 20_000  # 80 KB, in a body whose model may stand at its end


def main(base_url: str, models: list[str]) -> Json:
    client = openai.OpenAI(base_url=base_url, api_key="any", max_retries=0, timeout=TIMEOUT_S)
    first = models[0]
    return {
        "version": openai.__version__,
        "listed": sorted(model.id for model in client.models.list()),
        "answering": [ask(client, model).model for model in models],
        "large": ask(client, first, LARGE_PROMPT).usage.prompt_tokens,
        "chat": whole_chat(client, first),
        "stream": streamed_chat(client, first),
        "completion": whole_completion(client, first),
        "request_id": ask(client, first, extra_headers={"x-request-id": "mine-42"}).id,
        "unknown_model": failure(lambda: ask(client, "nope")),
        "too_long": failure(lambda: ask(client, first, LARGE_PROMPT * 2)),
        "too_long_stream": failure(lambda: ask(client, first, LARGE_PROMPT * 2, stream=True)),
        "bad_temperature": failure(lambda: ask(client, first, temperature=-1.0)),
    }


def ask(client: Client, model: str, text: str = "hello", **options: object) -> Any:
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(messages=messages, model=model, max_tokens=5, **options)


def whole_chat(client: Client, model: str) -> Json:
    answer = ask(client, model)
    (choice,) = answer.choices
    return {
        "role": choice.message.role,
        "text": choice.message.content,
        "finish": choice.finish_reason,
        "completion_tokens": answer.usage.completion_tokens,
    }


def streamed_chat(client: Client, model: str) -> Json:
    with ask(client, model, stream=True, stream_options={"include_usage": True}) as stream:
        chunks = list(stream)
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    return {
        "role": choices[0].delta.role,
        "text": "".join(choice.delta.content or "" for choice in choices),
        "finish": choices[-1].finish_reason,
        "completion_tokens": chunks[-1].usage.completion_tokens,
    }


def whole_completion(client: Client, model: str) -> Json:
    answer = client.completions.create(model=model, prompt="hello", max_tokens=5)
    return {"finish": answer.choices[0].finish_reason, "completion_tokens": answer.usage.completion_tokens}


def failure(call: Callable[[], object]) -> Json:
    try:
        call()
    except openai.APIStatusError as error:
        # 1.x hands the engine's numeric code through, 3.x makes it text.
        return {
            "class": type(error).__name__,
            "status": error.status_code,
            "code": str(error.code),
            "param": error.param,
        }
    return {"class": None}


if __name__ == "__main__":
    json.dump(main(sys.argv[1], sys.argv[2:]), sys.stdout)
