"""The grid of real engines, started once for all checks on it."""

from collections.abc import Iterator

import pytest

from tests.real_engine.install import installed_or_skip
from tests.real_engine.site import Site, running_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    installed_or_skip()
    with running_site(tmp_path_factory.mktemp("real")) as site:
        yield site
