"""The entry point."""

import os

import pytest

from tradewind.cli.main import main


def test_grpc_leaves_children_of_a_command_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Now and then one of them died before its exec: grpc/grpc#43055."""
    monkeypatch.setenv("GRPC_ENABLE_FORK_SUPPORT", "")
    monkeypatch.delenv("GRPC_ENABLE_FORK_SUPPORT")
    monkeypatch.setattr("sys.argv", ["tradewind", "version"])
    with pytest.raises(SystemExit):
        main()
    assert os.environ["GRPC_ENABLE_FORK_SUPPORT"] == "0"
