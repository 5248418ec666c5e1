"""The conformance kit: our server passes it, and so does a right picker that shares no code; each wrong one fails."""

import asyncio

import pytest

from tests.epp.fakes import BUSY_MODEL, EMPTY_MODEL, LORA, MODEL, RoundRobin
from tests.epp.wrong import WRONGS, serving
from tradewind.gateway.epp.server import EppServer
from tradewind.lab.epp.pool import Pool
from tradewind.lab.epp.run import names, run_plain, tasks
from tradewind.lab.epp.talk import Target
from tradewind.lab.epp.verdicts import Result, Verdict

ENDPOINTS = ("127.0.0.1:9001", "127.0.0.1:9002", "127.0.0.2:9001")
FULL = Pool(
    model=MODEL,
    endpoints=ENDPOINTS,
    expect=((LORA, ENDPOINTS[:1]),),
    busy_model=BUSY_MODEL,
    empty_model=EMPTY_MODEL,
    deadline_s=0.2,
)
FOREIGN = Pool(model=MODEL, endpoints=ENDPOINTS)


def judge(endpoints: tuple[str, ...], wrong: str, *only: str, timeout_s: float) -> list[Verdict]:
    async def run() -> list[Verdict]:
        async with serving(endpoints, wrong) as address:
            return await run_plain(Target(address=address), FOREIGN, only=only, timeout_s=timeout_s)

    return asyncio.run(run())


def test_our_server_passes_every_case_and_forgets_nothing() -> None:
    async def run() -> tuple[list[Verdict], RoundRobin, EppServer]:
        picker = RoundRobin(ENDPOINTS)
        server = EppServer("127.0.0.1:0", picker, ready=lambda: True)
        await server.start()
        verdicts = await run_plain(Target(address=f"127.0.0.1:{server.port}"), FULL, timeout_s=20.0)
        await server.stop(grace_s=5.0)
        return verdicts, picker, server

    verdicts, picker, server = asyncio.run(run())
    assert [(verdict.case, verdict.detail) for verdict in verdicts if verdict.result is not Result.PASSED] == []
    assert len(verdicts) == len(tasks())
    assert picker.open == []
    assert {len(served.ends) for served in picker.told.values()} == {1}
    assert (server.open_streams, server.held_bytes) == (0, 0)


def test_a_picker_of_another_make_passes_what_it_can_be_asked() -> None:
    verdicts = judge(ENDPOINTS, "", timeout_s=20.0)
    failed = [(verdict.case, verdict.detail) for verdict in verdicts if verdict.result is Result.FAILED]
    skipped = {verdict.case for verdict in verdicts if verdict.result is Result.SKIPPED}
    assert failed == []
    assert skipped == {"duplex-deadline", "expected-endpoints", "no-endpoint", "busy"}


@pytest.mark.parametrize(("wrong", "case"), WRONGS.items())
def test_a_wrong_picker_fails_the_case_for_it(wrong: str, case: str) -> None:
    assert case in names()
    verdict = judge(ENDPOINTS, wrong, case, timeout_s=1.0)[0]
    assert verdict.result is Result.FAILED
    assert verdict.detail
