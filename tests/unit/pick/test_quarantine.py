"""Requests that end engines are kept from them: shortly at first, longer with each incident."""

import pytest

from tradewind.core.pick.quarantine import FORGOTTEN_AFTER, MAX_REQUESTS, Quarantine, QuarantineSettings


def test_one_death_is_the_engines_two_are_the_requests() -> None:
    quarantine = Quarantine(QuarantineSettings())
    assert not quarantine.observe(7, 1, 0.0)
    assert quarantine.left_s(7, 0.0) == 0.0
    assert quarantine.observe(7, 2, 1.0)
    assert quarantine.left_s(7, 2.0) == pytest.approx(59.0)
    assert quarantine.left_s(8, 2.0) == 0.0
    assert quarantine.incidents == 1


def test_who_waited_beside_a_killer_is_soon_free_and_the_killer_is_not() -> None:
    quarantine = Quarantine(QuarantineSettings(first_s=60.0, longest_s=200.0))
    now_s = 0.0
    lengths = []
    for _ in range(4):
        quarantine.observe(7, 2, now_s)
        lengths.append(quarantine.left_s(7, now_s))
        now_s += lengths[-1]
        assert quarantine.left_s(7, now_s) == 0.0
    assert lengths == [60.0, 120.0, 200.0, 200.0]


def test_an_incident_long_ago_does_not_count() -> None:
    quarantine = Quarantine(QuarantineSettings(first_s=10.0))
    quarantine.observe(7, 3, 0.0)
    quarantine.observe(7, 2, 10.0 + 10.0 * FORGOTTEN_AFTER)
    assert quarantine.left_s(7, 10.0 + 10.0 * FORGOTTEN_AFTER) == 10.0


def test_switched_off_it_holds_nothing() -> None:
    quarantine = Quarantine(QuarantineSettings(first_s=0.0))
    assert not quarantine.observe(7, 9, 0.0)
    assert quarantine.left_s(7, 0.0) == 0.0


def test_its_memory_is_bounded_and_the_oldest_goes() -> None:
    quarantine = Quarantine(QuarantineSettings())
    for fingerprint in range(MAX_REQUESTS + 5):
        quarantine.observe(fingerprint, 2, 0.0)
    assert len(quarantine) == MAX_REQUESTS
    assert quarantine.left_s(4, 1.0) == 0.0
    assert quarantine.left_s(5, 1.0) > 0.0
