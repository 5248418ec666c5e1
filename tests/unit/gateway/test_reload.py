"""Configuration reload: invalid keeps the old one, valid after invalid applies."""

import os
import time
from pathlib import Path

import msgspec
import pytest

from tradewind.config.load import parse
from tradewind.config.resolve import load_checked
from tradewind.gateway.reload import ConfigWatch

CELL = "{id: x, site: east, url: 'http://127.0.0.1:8000'}"
OLD = f"cells: [{CELL}]\n"
NEW = f"cells: [{CELL}]\nmodels: [m]\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "grid.yaml"
    path.write_text(OLD)
    return path


def watch(path: Path) -> ConfigWatch:
    return ConfigWatch(path, load_checked(path), unix_clock=lambda: time.time() + 60.0)


def test_an_unchanged_file_is_not_read(path: Path) -> None:
    watched = watch(path)
    assert watched.poll() is None
    assert watched.applied == watched.failures == 0


def test_fc_48_valid_invalid_valid(path: Path) -> None:
    watched = watch(path)
    path.write_text("cells: [")
    assert watched.poll() is None
    assert watched.failures == 1
    assert "grid.yaml" in watched.last_error
    path.write_text(NEW)
    config = watched.poll()
    assert config is not None
    assert config.models == ["m"]
    assert watched.last_error == ""


def test_fc_48_a_half_written_file_is_refused_and_then_taken(path: Path) -> None:
    watched = watch(path)
    path.write_text(NEW[: len(NEW) // 2])
    assert watched.poll() is None
    assert watched.failures == 1
    path.write_text(NEW)
    assert watched.poll() is not None


def test_fc_48_half_a_file_that_is_valid_is_not_taken_while_it_is_written(path: Path) -> None:
    """Cut off behind the first of two cells it is a grid of one: the other's agent would be stopped."""
    now_s = path.stat().st_mtime
    watched = ConfigWatch(path, load_checked(path), unix_clock=lambda: now_s)
    path.write_text("cells:\n- {id: x, site: east, url: 'http://127.0.0.1:8000'}\n")
    os.utime(path, (now_s, now_s + 1.0))
    now_s += 1.1
    assert watched.poll() is None
    path.write_text(path.read_text() + "- {id: y, site: east, url: 'http://127.0.0.1:8001'}\n")
    os.utime(path, (now_s, now_s))
    now_s += 0.4
    assert watched.poll() is None
    now_s += 0.2
    config = watched.poll()
    assert config is not None
    assert [cell.id for cell in config.cells] == ["x", "y"]
    assert (watched.applied, watched.failures) == (1, 0)


def test_fc_48_a_file_from_a_host_whose_clock_is_ahead_is_read(path: Path) -> None:
    watched = ConfigWatch(path, load_checked(path), unix_clock=lambda: 1_000.0)
    path.write_text(NEW)
    assert watched.poll() is not None


def test_fc_48_a_swapped_symlink_is_seen(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text(OLD)
    (tmp_path / "new.yaml").write_text(NEW)
    link, next_link = tmp_path / "grid.yaml", tmp_path / "next"
    link.symlink_to("old.yaml")
    watched = watch(link)
    next_link.symlink_to("new.yaml")
    next_link.replace(link)
    config = watched.poll()
    assert config is not None
    assert config.models == ["m"]


def test_fc_48_a_file_that_vanishes_keeps_the_configuration(path: Path) -> None:
    watched = watch(path)
    path.unlink()
    assert watched.poll() is None
    assert watched.failures == 0


def test_fc_48_a_file_that_was_refused_is_refused_again_and_its_error_stays(path: Path) -> None:
    """Valid, and of no use to this gateway: a look at it must not clear the error."""
    watched = watch(path)
    path.write_text(NEW)
    assert watched.poll() is not None
    watched.refuse("gateway 'gw' is no longer in the file")
    path.touch()
    assert watched.poll(force=True) is not None
    watched.refuse("gateway 'gw' is no longer in the file")
    assert watched.poll() is None
    assert (watched.applied, watched.failures) == (0, 2)
    assert watched.last_error
    path.write_text(OLD)
    assert watched.poll() is None
    assert watched.last_error == ""


def test_what_is_refused_for_now_is_given_out_again(path: Path) -> None:
    watched = watch(path)
    path.write_text(NEW)
    first = watched.poll()
    watched.refuse("no space left on device", for_now=True)
    assert first is not None
    assert watched.poll() == first
    assert watched.poll() is None


def test_fc_48_a_json_file_is_checked_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "grid.json"
    path.write_bytes(msgspec.json.encode(parse(OLD)))
    watched = watch(path)
    path.write_bytes(msgspec.json.encode(parse(OLD + "gateways: [{id: gw, routing: pick, pick: {policy: none-such}}]")))
    assert watched.poll() is None
    assert "none-such" in watched.last_error
    path.write_text('{"a":' * 100_000)
    assert watched.poll() is None
    assert "grid.json" in watched.last_error


def test_a_pipe_is_not_read_again(tmp_path: Path) -> None:
    pipe = tmp_path / "grid.yaml"
    os.mkfifo(pipe)
    watched = ConfigWatch(pipe, parse(OLD))
    assert watched.poll(force=True) is None
