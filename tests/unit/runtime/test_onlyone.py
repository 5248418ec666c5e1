"""A lock on a folder: held by one at a time, and never the reason why nothing runs."""

from pathlib import Path

import pytest

from tradewind.runtime.onlyone import only_one


def test_the_second_is_refused_with_the_file_that_is_held(tmp_path: Path) -> None:
    lock = tmp_path / "state" / "a.lock"
    with (
        only_one(lock, what="control 'a'"),
        pytest.raises(OSError, match=r"control 'a'.*a\.lock is held"),
        only_one(lock, what="control 'a'"),
    ):
        pytest.fail("two at once")
    with only_one(lock, what="control 'a'"):
        pass


def test_fc_40_where_no_lock_can_be_had_work_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "state").write_text("in the way")
    with only_one(tmp_path / "state" / "a.lock", what="control 'a'"):
        assert "lock.not_to_be_had" in caplog.text
