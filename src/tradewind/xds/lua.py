"""Lua filters from the scripts of this package."""

from functools import cache
from importlib import resources

from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.lua.v3 import lua_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from tradewind.xds.cluster import pack


@cache
def source(*names: str) -> str:
    """The named scripts one after the other, as shipped; each has its locals to itself."""
    folder = resources.files("tradewind.xds")
    texts = [folder.joinpath(f"{name}.lua").read_text(encoding="utf-8") for name in names]
    return texts[0] if len(texts) == 1 else "".join(f"do\n{text}end\n" for text in texts)


def lua_filter(filter_name: str, *names: str) -> hcm_pb2.HttpFilter:
    """One filter with one Lua state for all of these scripts."""
    lua = lua_pb2.Lua(default_source_code=base_pb2.DataSource(inline_string=source(*names)))
    return hcm_pb2.HttpFilter(name=filter_name, typed_config=pack(lua))
