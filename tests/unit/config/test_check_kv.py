"""Sections on KV events: what is wrong is said with what to write, and each rank has its endpoint."""

import pytest

from tradewind.config.addresses import listens
from tradewind.config.check import check
from tradewind.config.errors import ConfigError
from tradewind.config.kv_endpoints import rank_endpoints
from tradewind.config.load import parse
from tradewind.config.schema import KvEventsConfig


def grid_of(*sections: str, top: str = "") -> str:
    cells = [
        f'{{id: c{index}, site: eu, url: "http://127.0.0.1:{8000 + index}", kv_events: {section}}}'
        for index, section in enumerate(sections)
    ]
    return f"{top}\ncells: [{', '.join(cells)}]"


def said(*sections: str) -> str:
    with pytest.raises(ConfigError) as caught:
        check(parse(grid_of(*sections)))
    return str(caught.value)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (
            "tcp://127.0.0.1:5557",
            "kv_events: expected `object | null`, got `str`; write kv_events: {endpoint: tcp://127.0",
        ),
        ("{endpoint: '127.0.0.1:5557'}", "kv_events.endpoint: '127.0.0.1:5557' does not begin with tcp:// or ipc://"),
        ("{endpoint: 'udp://127.0.0.1:5557'}", "has the scheme 'udp'"),
        ("{endpoint: 'inproc://kv'}", "has the scheme 'inproc', which no other process can be heard by; write tcp://"),
        ("{endpoint: 'tcp://127.0.0.1'}", "is not tcp://host:port"),
        ("{endpoint: 'tcp://127.0.0.1:5557/kv'}", "is not tcp://host:port"),
        ("{endpoint: 'tcp://127.0.0.1:70000'}", "is not an endpoint (Port out of range"),
        ("{endpoint: 'tcp://127.0.0.1:0'}", "has no port from 1 to 65535 for each rank"),
        ("{endpoint: 'tcp://:5557'}", "has no host"),
        ("{endpoint: 'tcp://*:5557'}", "is what an engine binds; an agent needs the address; write tcp://127.0.0.1"),
        ("{endpoint: 'tcp://*:5557', bind: true}", "an agent needs the address to wait at"),
        ("{endpoint: 'tcp://localhost:5557', bind: true}", "names 'localhost', and what waits there needs an address"),
        ("{endpoint: 'ipc://'}", "does not name a file by its whole path"),
        ("{endpoint: 'ipc://run/kv'}", "does not name a file by its whole path"),
        ("{bind: true}", "kv_events: the key 'endpoint' is missing; write endpoint: tcp://127.0.0.1:5557"),
        ("{endpoint: 'tcp://127.0.0.1:5557', ranks: 0}", "kv_events.ranks: 0 ranks; write 1 to 64"),
        ("{endpoint: 'tcp://127.0.0.1:65530', ranks: 8}", "has no port from 1 to 65535 for each rank"),
        ("{endpoint: 'ipc:///run/kv', ranks: 2}", "a file has no port to count the ranks by"),
        ("{endpoint: ['tcp://127.0.0.1:5557']}", "kv_events.endpoint: expected `str`, got `array`"),
        ("{endpoint: 'tcp://10.0.0.1:5557', bind: true}", "10.0.0.1:5557 is not loopback, and this traffic is not"),
    ],
)
def test_a_wrong_section_says_what_to_write(section: str, expected: str) -> None:
    text = said(section)
    assert expected in text
    assert len(text.splitlines()) == 1


def test_two_cells_do_not_hear_one_engine() -> None:
    assert "$.cells[1].kv_events.endpoint: tcp://127.0.0.1:5558 is already that of $.cells[0]" in said(
        "{endpoint: 'tcp://127.0.0.1:5557', ranks: 2}", "{endpoint: 'tcp://127.0.0.1:5558'}"
    )


def test_a_port_that_an_agent_binds_is_nobody_elses() -> None:
    taken = grid_of("{endpoint: 'tcp://127.0.0.1:5557', ranks: 3, bind: true}", top="dashboard: '127.0.0.1:5559'")
    with pytest.raises(ConfigError, match=r"5559 is already taken by \$.cells\[0\].kv_events.endpoint"):
        check(parse(taken))


@pytest.mark.parametrize(
    "section",
    [
        "null",
        "{endpoint: 'tcp://127.0.0.1:5557'}",
        "{endpoint: 'tcp://[::1]:5557', topic: kv@, ranks: 2}",
        "{endpoint: 'tcp://gpu-7.example:5557'}",
        "{endpoint: 'ipc:///run/engine-kv', bind: true}",
        "{endpoint: 'tcp://[::1]:5557', bind: true}",
    ],
)
def test_a_good_section_passes(section: str) -> None:
    check(parse(grid_of(section)))


def test_only_what_is_bound_is_an_address_of_ours() -> None:
    grid = parse(grid_of("{endpoint: 'tcp://127.0.0.1:5557'}", "{endpoint: 'tcp://127.0.0.1:5560', bind: true}"))
    assert [listen.address for listen in listens(grid) if ".kv_events" in listen.where] == ["127.0.0.1:5560"]


def test_each_rank_has_the_next_port() -> None:
    section = KvEventsConfig(endpoint="tcp://[::1]:5557", ranks=3)
    assert rank_endpoints(section) == ["tcp://[::1]:5557", "tcp://[::1]:5558", "tcp://[::1]:5559"]
