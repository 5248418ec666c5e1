"""What engines list, and what else may come back."""

import json

import pytest

from tradewind.agent.listing import MAX_MODELS, parse_listing
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


@pytest.mark.parametrize(("value", "expected"), [(None, None), ("8192", None), (-1, None), (0, None), (8192, 8192)])
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
