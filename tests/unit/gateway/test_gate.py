"""Which gate a gateway's Envoy gets: what was wanted, what Envoy takes, and what is asked only once."""

import shutil
import stat
from pathlib import Path

import pytest
from envoy.config.cluster.v3 import cluster_pb2
from envoy.extensions.filters.http.dynamic_modules.v3 import dynamic_modules_pb2
from envoy.extensions.filters.http.wasm.v3 import wasm_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from msgspec.structs import replace as with_fields

from tests.unit.gateway.test_worker import Rig, cell
from tradewind.config.schema import GateConfig, GatewayConfig
from tradewind.gateway.envoy import executable
from tradewind.gateway.gate.choice import Finding, Findings, choose, withdrawn
from tradewind.gateway.gate.probe import Prober, find_out
from tradewind.xds import types
from tradewind.xds.gate.filter import upstream_filters, wasm_code
from tradewind.xds.settings import GateModule
from tradewind.xds.snapshot import Snapshot

YES, NO = Finding(accepted=True, why=""), Finding(accepted=False, why="it cannot")
UNASKED = Finding()
HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def gateway(mode: str, envoy: str = "supervised") -> GatewayConfig:
    return GatewayConfig(gate=GateConfig(mode=mode), envoy=envoy)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mode", "envoy", "wasm", "native", "expected"),
    [
        ("auto", "supervised", YES, UNASKED, "wasm"),
        ("auto", "supervised", NO, YES, "native"),
        ("auto", "supervised", NO, NO, "none"),
        ("wasm", "supervised", YES, YES, "wasm"),
        ("wasm", "supervised", NO, YES, "none"),
        ("native", "supervised", YES, YES, "native"),
        ("native", "supervised", YES, NO, "none"),
        ("none", "supervised", YES, YES, "none"),
        ("auto", "external", UNASKED, UNASKED, "none"),
        ("wasm", "external", UNASKED, UNASKED, "wasm"),
        ("none", "external", UNASKED, UNASKED, "none"),
    ],
)
def test_the_choice(mode: str, envoy: str, wasm: Finding, native: Finding, expected: str) -> None:
    choice = choose(gateway(mode, envoy), Findings(envoy="1.40.0", wasm=wasm, native=native, library="lib"))
    assert (choice.mode, choice.wanted) == (expected, mode)
    assert choice.missing is (expected == "none" and mode != "none")
    assert (choice.module is not None) is (expected in ("wasm", "native"))
    assert choice.why


def test_what_is_missing_says_why_for_every_form_that_was_asked() -> None:
    choice = choose(gateway("auto"), Findings(wasm=NO, native=Finding(accepted=False, why="there is no C compiler")))
    assert choice.why == "wasm: it cannot; native: there is no C compiler"


FAKE = """#!/bin/sh
echo "$@" >> "$0.asked"
[ "$1" = --version ] && { echo "$0  version: 0123abc/9.8.7/Clean/RELEASE/BoringSSL"; exit 0; }
VERDICT
"""


def fake_envoy(folder: Path, verdict: str) -> str:
    path = folder / "envoy"
    path.write_text(FAKE.replace("VERDICT", verdict))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def asked(executable: str) -> int:
    return len(Path(executable + ".asked").read_text().splitlines())


REFUSES = """
echo "[2026-11-30 10:40:18.326][29098][error][wasm] [source/wasm.cc:103] Wasm VM failed Failed to load Wasm code"
echo "[2026-11-30 10:40:18.326][29098][critical][main] [source/server.cc:76] error initializing: Unable to create"
exit 1"""


def test_the_answer_is_kept_until_the_executable_changes(tmp_path: Path) -> None:
    envoy = fake_envoy(tmp_path, "exit 0")
    for _ in range(2):
        found = find_out(gateway("auto"), envoy, tmp_path / "state")
        assert (found.envoy, found.wasm.accepted, found.native.why) == ("9.8.7", True, "not tried")
        assert asked(envoy) == 2  # the version and the module
    envoy = fake_envoy(tmp_path, REFUSES)
    found = find_out(gateway("wasm"), envoy, tmp_path / "state")
    assert (found.wasm.accepted, found.wasm.why) == (False, "Wasm VM failed Failed to load Wasm code")
    assert asked(envoy) == 4
    assert find_out(gateway("wasm"), envoy, tmp_path / "state") == found
    assert asked(envoy) == 4


def test_a_slow_envoy_has_no_gate_now_and_is_asked_again(tmp_path: Path) -> None:
    envoy = fake_envoy(tmp_path, "exec sleep 60")
    prober = Prober(envoy, tmp_path / "state", timeout_s=0.2)
    assert prober.version() == "9.8.7"
    finding = prober.wasm()
    prober.keep()
    assert finding.accepted is False
    assert "longer than 0.2 s" in finding.why
    assert Prober(fake_envoy(tmp_path, "exit 0"), tmp_path / "state").wasm().accepted


def test_no_executable_is_no_gate_and_no_error(tmp_path: Path) -> None:
    found = find_out(gateway("wasm"), str(tmp_path / "nothing"), tmp_path / "state")
    assert found.envoy == "unknown"
    assert "cannot be run: No such file" in found.wasm.why


def test_nobody_is_asked_where_no_gate_is_wanted_or_the_envoy_is_not_ours(tmp_path: Path) -> None:
    envoy = str(tmp_path / "nothing")
    for section in (gateway("none"), gateway("auto", "external"), gateway("wasm", "external")):
        assert find_out(section, envoy, tmp_path / "state") == Findings()
    assert not (tmp_path / "state").exists()


def test_the_wheels_envoy_takes_the_module_and_not_any_bytes(tmp_path: Path) -> None:
    prober = Prober(executable(), tmp_path)
    assert prober.wasm() == Finding(accepted=True, why="")
    refused = prober.accepts(GateModule(code=b"\0asm\1\0\0\0"))
    assert refused.accepted is False
    assert refused.why


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_native_gate_is_built_once_and_taken(tmp_path: Path) -> None:
    first = find_out(gateway("native"), executable(), tmp_path)
    assert first.native == Finding(accepted=True, why="")
    (library,) = (tmp_path / "gate").glob("*.so")
    assert library.name == f"lib{first.library}.so"
    prober = Prober(executable(), tmp_path)
    assert prober.native() == (first.native, first.library)
    assert prober.children == 0


def test_without_a_compiler_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Prober(executable(), tmp_path).native() == (Finding(accepted=False, why="there is no C compiler"), "")


# --- what Envoy is told -----------------------------------------------------------------------------------------------


def gates(snapshot: Snapshot) -> list[list[str]]:
    """Names of the upstream filters of every cluster."""
    found = []
    for resource in snapshot.of(types.CLUSTER).values():
        cluster = cluster_pb2.Cluster.FromString(resource.body.value)
        options = http_protocol_options_pb2.HttpProtocolOptions()
        assert cluster.typed_extension_protocol_options[HTTP_OPTIONS].Unpack(options)
        found.append([item.name for item in options.http_filters])
    return found


GATED = [["tradewind.gate", "envoy.filters.http.upstream_codec"]]


def test_every_cluster_has_the_gate_and_a_refusal_withdraws_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path, findings=Findings(wasm=YES))
    rig.show(cell("x", 1000))
    rig.tick()
    assert gates(rig.effects.snapshots[-1]) == GATED
    rig.worker.on_gate_refused("pool/m: the name is too long")
    assert gates(rig.effects.snapshots[-1]) == GATED
    rig.worker.on_gate_refused("pool/m: Unable to create Wasm plugin gate")
    assert gates(rig.effects.snapshots[-1]) == [[]]
    assert rig.worker.gate.missing
    assert rig.worker.gate.why == "Envoy refused it: pool/m: Unable to create Wasm plugin gate"
    published = len(rig.effects.snapshots)
    rig.worker.on_gate_refused("wasm again")
    assert len(rig.effects.snapshots) == published
    assert rig.worker.ring.counts["gate.withdrawn"] == 1


def test_the_gate_is_switched_off_and_on_by_a_reload(tmp_path: Path) -> None:
    rig = Rig(tmp_path, findings=Findings(wasm=YES))
    rig.show(cell("x", 1000))
    rig.tick()
    for mode, expected in (("none", [[]]), ("auto", GATED)):
        section = with_fields(rig.worker.gateway, gate=GateConfig(mode=mode))  # type: ignore[arg-type]
        assert rig.worker.apply(with_fields(rig.config, gateways=[section])) == ""
        assert gates(rig.effects.snapshots[-1]) == expected
        assert rig.worker.gate.wanted == mode


@pytest.mark.parametrize(("findings", "mode"), [(Findings(wasm=YES), "wasm"), (Findings(), "none")])
def test_a_form_that_envoy_was_not_asked_about_replaces_no_other(tmp_path: Path, findings: Findings, mode: str) -> None:
    rig = Rig(tmp_path, findings=findings, gate=GateConfig(mode="wasm" if mode == "wasm" else "none"))
    section = with_fields(rig.worker.gateway, gate=GateConfig(mode="native"))
    assert rig.worker.apply(with_fields(rig.config, gateways=[section])) == ""
    gate = rig.worker.gate
    assert (gate.mode, gate.wanted, gate.missing) == (mode, "native", mode == "none")
    assert "starts again" in gate.why


def test_another_change_does_not_bring_a_withdrawn_gate_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path, findings=Findings(wasm=YES))
    rig.show(cell("x", 1000))
    rig.tick()
    rig.worker.on_gate_refused("no wasm")
    section = with_fields(rig.worker.gateway, limits=with_fields(rig.worker.gateway.limits, retries=1))
    assert rig.worker.apply(with_fields(rig.config, gateways=[section])) == ""
    assert gates(rig.effects.snapshots[-1]) == [[]]


def test_another_number_of_deaths_is_in_force_with_the_file(tmp_path: Path) -> None:
    rig = Rig(tmp_path, findings=Findings(wasm=YES))
    rig.show(cell("x", 1000))
    rig.tick()
    before = rig.effects.snapshots[-1].versions[types.CLUSTER]
    section = with_fields(rig.worker.gateway, gate=GateConfig(deaths=4))
    assert rig.worker.apply(with_fields(rig.config, gateways=[section])) == ""
    assert rig.worker.gate.module is not None
    assert rig.worker.gate.module.deaths == 4
    assert rig.effects.snapshots[-1].versions[types.CLUSTER] != before


def test_the_filters_are_built_once_and_say_what_must_not_be_forgotten() -> None:
    gate = GateModule(code=wasm_code())
    assert upstream_filters(gate) is upstream_filters(GateModule(code=wasm_code()))
    wasm = wasm_pb2.Wasm()
    assert upstream_filters(gate)[0].typed_config.Unpack(wasm)
    assert wasm.config.allow_on_headers_stop_iteration.value is True
    assert wasm.config.failure_policy == 1  # FAIL_RELOAD
    assert wasm.config.vm_config.code.local.inline_bytes == wasm_code()
    native = dynamic_modules_pb2.DynamicModuleFilter()
    assert upstream_filters(GateModule(library="abc"))[0].typed_config.Unpack(native)
    assert native.dynamic_module_config.name == "abc"


def test_a_withdrawn_gate_keeps_what_was_wanted() -> None:
    choice = withdrawn(choose(gateway("auto"), Findings(envoy="1.40.0", wasm=YES)), "no")
    assert (choice.wanted, choice.mode, choice.envoy, choice.module) == ("auto", "none", "1.40.0", None)
