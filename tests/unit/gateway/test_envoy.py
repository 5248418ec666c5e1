"""Envoy's bootstrap and command line."""

import json

import pytest
from envoy.config.bootstrap.v3 import bootstrap_pb2
from envoy.extensions.resource_monitors.downstream_connections.v3 import downstream_connections_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from google.protobuf import json_format

from tradewind.gateway.envoy import EnvoyConfig, bootstrap_json, command
from tradewind.xds.endpoints import SnapshotError

CONFIG = EnvoyConfig(node_id="east-1", site="east", admin="127.0.0.1:9901", socket_path="/run/tw/gateway.sock")
# Parsing an Any needs the modules of what it may hold.
EXTENSIONS = (downstream_connections_pb2, http_protocol_options_pb2)


def parsed(config: EnvoyConfig) -> bootstrap_pb2.Bootstrap:
    return json_format.Parse(bootstrap_json(config), bootstrap_pb2.Bootstrap())


def test_the_bootstrap_is_one_that_envoy_knows() -> None:
    """Every field exists in Envoy's own definition; what is not here comes over ADS."""
    message = parsed(CONFIG)
    assert (message.node.id, message.node.locality.region) == ("east-1", "east")
    assert message.admin.address.socket_address.port_value == 9901
    (cluster,) = message.static_resources.clusters
    pipe = cluster.load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.pipe.path
    assert pipe == "/run/tw/gateway.sock"
    assert message.dynamic_resources.ads_config.grpc_services[0].envoy_grpc.cluster_name == cluster.name
    assert len(message.static_resources.listeners) == 0


@pytest.mark.parametrize(("protocol", "api"), [("delta", "DELTA_GRPC"), ("sotw", "GRPC")])
def test_both_variants(protocol: str, api: str) -> None:
    config = EnvoyConfig(node_id="a", site="", admin="127.0.0.1:1", socket_path="/s", protocol=protocol)  # type: ignore[arg-type]
    assert json.loads(bootstrap_json(config))["dynamic_resources"]["ads_config"]["api_type"] == api


def test_the_admin_address_must_be_an_ip() -> None:
    with pytest.raises(SnapshotError, match="IP literal"):
        bootstrap_json(EnvoyConfig(node_id="a", site="", admin="localhost:1", socket_path="/s"))


def test_the_command_line() -> None:
    line = command("/bin/envoy", "/tmp/b.json", concurrency=2, log_level="info", drain_s=5)
    assert line[:3] == ["/bin/envoy", "--config-path", "/tmp/b.json"]
    assert line[line.index("--concurrency") + 1] == "2"
    assert "--use-dynamic-base-id" in line
