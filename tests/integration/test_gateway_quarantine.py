"""A request that ends engines, through the whole gateway: it gets two of them, and its like gets none for a while."""

from pathlib import Path

from tests.fakes.engine import Reply, SeenRequest, sse_reply
from tests.support.pick_fleet import PickFleet, pick_fleet

DIES = Reply(chunks=(), content_type="text/event-stream", cut_after=0, reset=True, linger_s=0.05)
GOOD = sse_reply(["a", "b"])


def killed_by_poison(request: SeenRequest) -> Reply:
    return DIES if b"poison" in request.body else GOOD


def served(fleet: PickFleet) -> int:
    return sum(fleet.counts().values())


def quarantines(fleet: PickFleet) -> object:
    pick = fleet.rig.status()["pick"]
    assert isinstance(pick, dict)
    return pick["quarantines"]


def test_a_request_that_ends_engines_is_kept_from_them(tmp_path: Path) -> None:
    with pick_fleet(tmp_path, timeout_s=1.0) as fleet:
        fleet.everywhere(killed_by_poison)
        before = served(fleet)
        first = fleet.ask("poison", stream=True)
        assert (first.status, served(fleet) - before) == (422, 2)
        assert b"request_ends_engines" in first.body
        fleet.rig.until(lambda: quarantines(fleet) == 1)
        again = fleet.ask("poison", stream=True)
        assert (again.status, served(fleet) - before) == (422, 2)
        assert fleet.ask("harmless", stream=True).status == 200
        assert served(fleet) - before == 3
