"""The command that tests an Endpoint Picker, ours or anybody's."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.options import (
    EXIT_FAILED,
    EXIT_USAGE,
    MAX_MS,
    MAX_WAIT_S,
    JsonOption,
    explained,
    fail,
    os_text,
    print_json,
    show,
)

if TYPE_CHECKING:
    from tradewind.lab.epp.pool import Pool
    from tradewind.lab.epp.talk import Target
    from tradewind.lab.epp.verdicts import Verdict

_Target = Annotated[str, typer.Option(help="Where the picker serves ext_proc: host:port, or unix:/path.")]
_Model = Annotated[str, typer.Option(help="A model that the picker serves.")]
_Endpoints = Annotated[str, typer.Option(help="Its whole pool, ip:port with commas; needed by cases on subsets.")]
_Expect = Annotated[
    list[str], typer.Option(help="MODEL=ip:port,...: this model (a LoRA, say) may go nowhere else; may be repeated.")
]
_Unknown = Annotated[str, typer.Option(help="A model that the picker does not know.")]
_Busy = Annotated[str, typer.Option(help="A model whose every endpoint is at its limit, for the 429.")]
_Empty = Annotated[str, typer.Option(help="A model that nothing can serve now, for the 503.")]
_Deadline = Annotated[
    float, typer.Option(help="The picker decides so long after the headers at the latest.", min=0, max=MAX_MS)
]
_Envoy = Annotated[
    bool, typer.Option("--envoy", help="Also through a real Envoy; the kit plays the engines at --endpoints.")
]
_Only = Annotated[list[str], typer.Option(help="Run this case alone; may be repeated.")]
_List = Annotated[bool, typer.Option("--list", help="Print the cases and what each proves, run none.")]
_Tls = Annotated[bool, typer.Option("--tls", help="The picker wants TLS.")]
_Ca = Annotated[Path | None, typer.Option(help="The authority of its certificate; without, the one shown is believed.")]
_Name = Annotated[str, typer.Option(help="The name in its certificate.")]
_Timeout = Annotated[float, typer.Option(help="How long each answer may take, in seconds.", min=0.1, max=MAX_WAIT_S)]


def epp_conformance(
    target: _Target = "",
    model: _Model = "demo",
    endpoints: _Endpoints = "",
    expect: _Expect = [],  # noqa: B006 (typer copies it)
    unknown_model: _Unknown = "no-such-model",
    busy_model: _Busy = "",
    empty_model: _Empty = "",
    deadline_ms: _Deadline = 0.0,
    envoy: _Envoy = False,
    only: _Only = [],  # noqa: B006 (typer copies it)
    listing: _List = False,
    tls: _Tls = False,
    ca: _Ca = None,
    server_name: _Name = "localhost",
    timeout_s: _Timeout = 5.0,
    as_json: JsonOption = False,
) -> None:
    """Test an Endpoint Picker (Gateway API Inference Extension, ext_proc) without Kubernetes.

    The kit talks to the picker as a gateway would and judges every answer: the destination as header and as metadata,
    subset hints, bodies given back whole, refusals, responses, broken streams. What a case needs to know of the pool
    is told by options; without, it is skipped. Exit code: 0 all passed or skipped, 1 a case failed, 2 wrong usage.
    """
    from tradewind.lab.epp.pool import Pool
    from tradewind.lab.epp.talk import Target

    with explained(as_json=as_json):
        if listing:
            _print_list(as_json)
            return
        if not target:
            fail("say where the picker is: --target host:port", code=EXIT_USAGE)
        pool = Pool(
            model=model,
            endpoints=_addresses(endpoints),
            expect=tuple(_expected(text) for text in expect),
            unknown_model=unknown_model,
            busy_model=busy_model,
            empty_model=empty_model,
            deadline_s=deadline_ms / 1e3 if deadline_ms > 0 else None,
        )
        if envoy and not pool.endpoints:
            fail("--envoy needs --endpoints: the kit plays the engines there", code=EXIT_USAGE)
        where = Target(address=target, tls=tls or ca is not None, ca=ca, server_name=server_name)
        verdicts = _run(where, pool, only=tuple(only), envoy=envoy, timeout_s=timeout_s)
        _report(target, verdicts, as_json=as_json)


def _run(target: "Target", pool: "Pool", *, only: tuple[str, ...], envoy: bool, timeout_s: float) -> "list[Verdict]":
    import asyncio

    from tradewind.lab.epp.rig import RigFailed
    from tradewind.lab.epp.run import Unreachable, names, run_envoy, run_plain

    unknown = [name for name in only if name not in names()]
    if unknown:
        fail(f"there is no case {unknown[0]!r}; --list prints them", code=EXIT_USAGE)

    async def both() -> "list[Verdict]":
        plain = await run_plain(target, pool, only=only, timeout_s=timeout_s)
        return [*plain, *(await run_envoy(target, pool, only=only) if envoy else [])]

    try:
        return asyncio.run(both())
    except (Unreachable, RigFailed) as error:
        fail(str(error), code=EXIT_USAGE)
    except OSError as error:
        fail(os_text(error), code=EXIT_USAGE)


def _report(target: str, verdicts: "list[Verdict]", *, as_json: bool) -> None:
    from tradewind.lab.epp.verdicts import summary, table

    counts = summary(verdicts)
    if as_json:
        print_json({"target": target, **counts, "cases": verdicts})
    else:
        counted = ", ".join(f"{count} {name}" for name, count in counts.items())
        show(table(verdicts, title=f"Endpoint Picker at {target}"), counted)
    if counts["failed"]:
        raise typer.Exit(EXIT_FAILED)


def _print_list(as_json: bool) -> None:
    from tradewind.lab.epp.run import described

    rows = described()
    if as_json:
        print_json([{"case": name, "proves": proves, "needs": needs} for name, proves, needs in rows])
    else:
        for name, proves, needs in rows:
            print(f"{name:22} {proves}" + (f" [{', '.join(needs)}]" if needs else ""))


def _addresses(text: str) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in text.split(",") if entry.strip())


def _expected(text: str) -> tuple[str, tuple[str, ...]]:
    model, found, endpoints = text.partition("=")
    if not found or not model or not _addresses(endpoints):
        fail(f"--expect {text!r}: write MODEL=ip:port,ip:port", code=EXIT_USAGE)
    return model, _addresses(endpoints)
