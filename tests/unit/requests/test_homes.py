"""Where stored responses live (FC-29)."""

from tradewind.gateway.requests.homes import ResponseHomes


def test_a_follow_up_finds_its_cell_until_it_is_too_old() -> None:
    homes = ResponseHomes(ttl_s=10.0)
    homes.remember("resp_1", "b", 0.0)
    assert homes.home("resp_1", 9.0) == "b"
    assert homes.home("resp_1", 18.0) == "b", "each use renews it"
    assert homes.home("resp_1", 30.0) is None
    assert homes.home("resp_2", 0.0) is None
    assert len(homes) == 0


def test_the_least_recently_used_gives_way() -> None:
    homes = ResponseHomes(max_responses=3)
    for number in range(3):
        homes.remember(f"r{number}", "a", 0.0)
    homes.home("r0", 1.0)
    homes.remember("r3", "a", 2.0)
    assert [homes.home(f"r{number}", 3.0) for number in range(4)] == ["a", None, "a", "a"]


def test_a_lost_cell_takes_its_responses_along() -> None:
    homes = ResponseHomes()
    homes.remember("r1", "a", 0.0)
    homes.remember("r2", "b", 0.0)
    homes.forget("a")
    assert (homes.home("r1", 1.0), homes.home("r2", 1.0)) == (None, "b")


def test_ids_of_impossible_length_are_not_kept() -> None:
    homes = ResponseHomes()
    homes.remember("x" * 10_000, "a", 0.0)
    homes.remember("", "a", 0.0)
    assert len(homes) == 0
