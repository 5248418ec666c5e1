"""What engines list, and what else may come back."""

import asyncio
import json

import pytest

from tests.fakes.engine import FakeEngine, Reply
from tradewind.agent.listing import MAX_MODELS, parse_listing, read_version
from tradewind.telemetry.fetch import Fetcher
from tradewind.telemetry.http_connection import FetchFailed


def body(*entries: dict[str, object]) -> bytes:
    return json.dumps({"object": "list", "data": entries}).encode()


def test_base_aliases_and_adapters() -> None:
    listing = parse_listing(
        body(
            {"id": "tiny", "parent": None, "max_model_len": 1024, "permission": [{}]},
            {"id": "tiny-alias", "parent": None, "max_model_len": 1024},
            {"id": "sql-lora", "parent": "tiny", "max_model_len": None},
        )
    )
    assert listing.first == "tiny"
    assert listing.models == ("sql-lora", "tiny", "tiny-alias")
    assert listing.lora_models == ("sql-lora",)
    assert listing.max_model_len == 1024


def test_the_first_base_model_is_asked_even_behind_an_adapter() -> None:
    assert parse_listing(body({"id": "lora", "parent": "m"}, {"id": "m"})).first == "m"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, None), ("8192", None), (-1, None), (0, None), (True, None), (8192.0, None), (8192, 8192)],
)
def test_max_model_len_is_a_whole_number_or_unknown(value: object, expected: int | None) -> None:
    assert parse_listing(body({"id": "m", "max_model_len": value})).max_model_len == expected


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"data":[]}',
        b'{"data":[{}]}',
        b'{"data":[{"id":7}]}',
        b'{"data":[{"id":""}]}',
        b'{"data":{"id":"m"}}',
        b"\xff\xfe",
        b'{"data":[{"id":"' + b"x" * 600 + b'"}]}',
        b"[" * 100_000,
        b'{"x":' * 100_000,
        b'{"data":[{"id":"m","max_model_len":' + b"[" * 100_000,
        b'{"data":[{"id":"\xff"}]}',
        b'{"data":[{"id":"\\ud800"}]}',
    ],
)
def test_what_is_no_list_is_refused(raw: bytes) -> None:
    with pytest.raises(FetchFailed):
        parse_listing(raw)


def test_the_number_of_names_is_bounded() -> None:
    entries: list[dict[str, object]] = [{"id": f"m{number}"} for number in range(MAX_MODELS + 100)]
    assert len(parse_listing(body(*entries)).models) == MAX_MODELS


def test_fc_63_a_refusal_does_not_repeat_what_came_back() -> None:
    with pytest.raises(FetchFailed) as caught:
        parse_listing(b'{"data":[{"id":"m","parent":{"CANARY-8f3":1}}]}')
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"version":"0.32.0"}', "0.32.0"),
        (b'{"version":7}', None),
        (b'{"version":"\xff"}', None),
        (b'{"x":' * 100_000, None),
        (b"<html>", None),
    ],
)
def test_a_version_that_cannot_be_read_is_none(raw: bytes, expected: str | None) -> None:
    with FakeEngine() as engine:
        engine.on("/version", Reply(body=raw))

        async def ask() -> str | None:
            fetcher = Fetcher(engine.url)
            try:
                return await read_version(fetcher)
            finally:
                fetcher.close()

        assert asyncio.run(ask()) == expected
