"""The address that stands for the agent's own GPUs."""

import msgspec
import pytest

from tradewind.config.check import NVML_URL, check
from tradewind.config.errors import ConfigError
from tradewind.config.schema import CellConfig, GridConfig

CELL = CellConfig(id="east-0", site="east", url="http://127.0.0.1:8000", dcgm_url=NVML_URL)


def test_a_cell_may_read_the_gpus_of_its_agents_host() -> None:
    grid = GridConfig(sites=["east"], cells=[CELL])
    assert check(grid).cells[0].dcgm_url == "nvml:"


def test_nowhere_else_is_it_an_address() -> None:
    grid = GridConfig(sites=["east"], cells=[msgspec.structs.replace(CELL, metrics_url=NVML_URL)])
    with pytest.raises(ConfigError, match="metrics_url"):
        check(grid)
