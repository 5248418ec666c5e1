"""Runs the cases against a picker: over plain gRPC, and through a real Envoy."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import grpc

from tradewind.lab.epp.cases import CASES, Case, chat
from tradewind.lab.epp.checks import alive, gives_back, picked
from tradewind.lab.epp.envoy_cases import ENVOY_CASES, EnvoyCase, NotApplicable
from tradewind.lab.epp.pool import Need, Pool
from tradewind.lab.epp.rig import Rig, rig
from tradewind.lab.epp.script import DUPLEX, Script
from tradewind.lab.epp.talk import Talk, Target
from tradewind.lab.epp.verdicts import Result, Verdict

PARALLEL = 64
_EXT_PROC = "envoy.service.ext_proc.v3.ExternalProcessor"


class Unreachable(Exception):
    """Nobody listens where the picker should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One picker under test."""

    talk: Talk
    pool: Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A case ready to run. `run` gives the problem, or ""."""

    name: str
    proves: str
    run: Callable[[Session], Awaitable[str]]
    needs: tuple[Need, ...] = ()


async def run_plain(target: Target, pool: Pool, *, only: tuple[str, ...] = (), timeout_s: float) -> list[Verdict]:
    """Every case, or those named, in the order of the table. Raises Unreachable."""
    async with target.channel() as channel:
        try:
            async with asyncio.timeout(timeout_s):
                await channel.channel_ready()
        except TimeoutError as error:
            raise Unreachable(f"nobody answers at {target.address} within {timeout_s:g} s") from error
        session = Session(talk=Talk(channel, timeout_s=timeout_s), pool=pool)
        return [await judge(task, session) for task in tasks() if not only or task.name in only]


def tasks() -> list[Task]:
    """The whole table."""
    return [
        Task(name="health", proves="gRPC health says SERVING, also for the ext_proc service", run=_health),
        Task(name="health-unknown", proves="gRPC health knows no service that is not there", run=_no_health),
        *(_task(case) for case in CASES),
        Task(name="parallel", proves=f"{PARALLEL} streams at once each get their own body back", run=_parallel),
    ]


def described() -> list[tuple[str, str, list[str]]]:
    """Every case: its name, what it proves, what it needs to be told."""
    plain = [(task.name, task.proves, [need.value for need in task.needs]) for task in tasks()]
    return [*plain, *((case.name, case.proves, ["--envoy"]) for case in ENVOY_CASES)]


def names() -> set[str]:
    """Of every case."""
    return {name for name, _, _ in described()}


async def judge(task: Task, session: Session) -> Verdict:
    """Run one case."""
    missing = session.pool.missing(task.needs)
    if missing is not None:
        return Verdict(case=task.name, proves=task.proves, result=Result.SKIPPED, detail=f"needs {missing.value}")
    started_s = time.monotonic()
    problem = await task.run(session)
    took_ms = round((time.monotonic() - started_s) * 1e3, 2)
    result = Result.FAILED if problem else Result.PASSED
    return Verdict(case=task.name, proves=task.proves, result=result, detail=problem, took_ms=took_ms)


def _task(case: Case) -> Task:
    async def run(session: Session) -> str:
        for script, wanted in case.scripts(session.pool):
            transcript = await session.talk.play(script)
            for check in wanted:
                problem = check(transcript, session.pool)
                if problem:
                    return problem
        return ""

    return Task(name=case.name, proves=case.proves, run=run, needs=case.needs)


async def _health(session: Session) -> str:
    for service in ("", _EXT_PROC):
        state = await session.talk.health(service)
        if state != "SERVING":
            return f"{service or 'the server as a whole'} is {state}"
    return ""


async def _no_health(session: Session) -> str:
    state = await session.talk.health("no.such.Service")
    return "" if state == grpc.StatusCode.NOT_FOUND.name else f"expected NOT_FOUND, got {state}"


async def _parallel(session: Session) -> str:
    bodies = [chat(session.pool.model, f"stream {number} " * 50) for number in range(PARALLEL)]
    scripts = [Script(mode=DUPLEX, chunks=(body[:100], body[100:])) for body in bodies]
    transcripts = await asyncio.gather(*(session.talk.play(script) for script in scripts))
    for transcript in transcripts:
        for check in (alive, picked, gives_back("request_body")):
            problem = check(transcript, session.pool)
            if problem:
                return problem
    return ""


async def run_envoy(target: Target, pool: Pool, *, only: tuple[str, ...] = ()) -> list[Verdict]:
    """Every case through a real Envoy, with played engines at the pool's endpoints. Raises RigFailed."""
    chosen = [case for case in ENVOY_CASES if not only or case.name in only]
    if not chosen:
        return []
    with tempfile.TemporaryDirectory(prefix="tradewind-epp-") as name:
        async with rig(target, pool, Path(name)) as made:
            return [await _judge_envoy(case, made) for case in chosen]


async def _judge_envoy(case: EnvoyCase, made: Rig) -> Verdict:
    started_s = time.monotonic()
    try:
        problem = await case.run(made)
    except NotApplicable as error:
        return Verdict(case=case.name, proves=case.proves, result=Result.SKIPPED, detail=str(error))
    took_ms = round((time.monotonic() - started_s) * 1e3, 2)
    result = Result.FAILED if problem else Result.PASSED
    return Verdict(case=case.name, proves=case.proves, result=result, detail=problem, took_ms=took_ms)
