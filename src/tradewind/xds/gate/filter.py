"""The gate as Envoy's configuration: the upstream filters of a cluster."""

import re
from functools import cache
from importlib import resources

from envoy.config.core.v3 import backoff_pb2, base_pb2
from envoy.extensions.dynamic_modules.v3 import dynamic_modules_pb2
from envoy.extensions.filters.http.dynamic_modules.v3 import dynamic_modules_pb2 as filter_pb2
from envoy.extensions.filters.http.upstream_codec.v3 import upstream_codec_pb2
from envoy.extensions.filters.http.wasm.v3 import wasm_pb2 as wasm_filter_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.wasm.v3 import wasm_pb2
from google.protobuf import any_pb2, duration_pb2, wrappers_pb2
from google.protobuf.message import Message

from tradewind.xds.settings import GateModule

GATE_FILTER = "tradewind.gate"
RUNTIME = "envoy.wasm.runtime.v8"
_INCLUDE = re.compile(r'^#include "([a-z_]+\.h)"$', re.M)
# Envoy's default is a second. Below 2 ms, which it takes as well, a trap ends it: its jitter divides by half of this.
_RELOAD_NS = 10_000_000
_CODEC = "envoy.filters.http.upstream_codec"


@cache
def wasm_code() -> bytes:
    """The module, as shipped."""
    return resources.files("tradewind.xds.gate").joinpath("gate.wasm").read_bytes()


@cache
def native_source() -> str:
    """The C source of the native twin as one text: the package's own headers stand where they are included."""
    return _source("gate_native.c")


def _source(name: str) -> str:
    text = resources.files("tradewind.xds.gate").joinpath(name).read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda included: _source(included[1]), text)


@cache
def upstream_filters(gate: GateModule) -> tuple[hcm_pb2.HttpFilter, ...]:
    """The gate, and after it the filter that speaks to the engine. Built once: every cluster of a grid holds them."""
    config = _native(gate) if gate.library else _wasm(gate)
    return (
        hcm_pb2.HttpFilter(name=GATE_FILTER, typed_config=_pack(config)),
        hcm_pb2.HttpFilter(name=_CODEC, typed_config=_pack(upstream_codec_pb2.UpstreamCodec())),
    )


def _wasm(gate: GateModule) -> wasm_filter_pb2.Wasm:
    vm = wasm_pb2.VmConfig(
        vm_id="tradewind-gate",  # with equal code: one machine per worker for all clusters
        runtime=RUNTIME,
        code=base_pb2.AsyncDataSource(local=base_pb2.DataSource(inline_bytes=gate.code)),
    )
    return wasm_filter_pb2.Wasm(
        config=wasm_pb2.PluginConfig(
            name="gate",
            vm_config=vm,
            configuration=_deaths(gate),
            # A trap costs its request; with FAIL_OPEN it would cost the gate for good. The machine is made anew at the
            # next request after the back-off; until then every request of every pool is answered 503.
            failure_policy=wasm_pb2.FAIL_RELOAD,
            reload_config=wasm_pb2.ReloadConfig(
                backoff=backoff_pb2.BackoffStrategy(base_interval=duration_pb2.Duration(nanos=_RELOAD_NS))
            ),
            # Without it a module that holds the headers is not shown the body, and the stream hangs.
            allow_on_headers_stop_iteration={"value": True},
        )
    )


def _native(gate: GateModule) -> filter_pb2.DynamicModuleFilter:
    return filter_pb2.DynamicModuleFilter(
        dynamic_module_config=dynamic_modules_pb2.DynamicModuleConfig(name=gate.library, do_not_close=True),
        filter_name="gate",
        filter_config=_deaths(gate),
    )


def _deaths(gate: GateModule) -> any_pb2.Any:
    """The module's whole configuration, as a text."""
    return _pack(wrappers_pb2.StringValue(value=str(gate.deaths)))


def _pack(message: Message) -> any_pb2.Any:
    wrapped = any_pb2.Any()
    wrapped.Pack(message, deterministic=True)
    return wrapped
