"""The tuner's section: absent by default, and what it may say."""

import pytest

from tradewind.config.check import check
from tradewind.config.check_tuner import box_of, start_of
from tradewind.config.errors import ConfigError
from tradewind.config.load import parse
from tradewind.config.schema import GridConfig, TunerConfig
from tradewind.core.tuner.box import PUBLISHED, SHIPPED
from tradewind.model.tuning import PHYSICS, Weights

PICKS = "gateways: [{id: gw, routing: pick}]\n"


def grid(text: str) -> GridConfig:
    return check(parse(PICKS + text))


def tuner(text: str) -> TunerConfig:
    found = grid(text).tuner
    assert found is not None
    return found


def test_without_the_section_nothing_tunes_and_empty_is_the_calibrator() -> None:
    assert grid("").tuner is None
    found = tuner("tuner: {}")
    assert (found.kind, box_of(found), start_of(found)) == ("calibrator", SHIPPED, PHYSICS)


def test_the_published_tuner_has_its_published_box_and_begins_inside() -> None:
    found = tuner("tuner: {kind: es}")
    assert box_of(found) == PUBLISHED
    assert start_of(found) == Weights(1.0, 0.5)


def test_the_box_and_the_start_can_be_written() -> None:
    found = tuner("tuner: {start: {rtt: 3, queue: 0.5}, box: {rtt: [0.1, 4], most_ratio: 8}}")
    box = box_of(found)
    assert (box.rtt, box.queue, box.most_ratio) == ((0.1, 4.0), SHIPPED.queue, 8.0)
    assert start_of(found) == Weights(3.0, 0.5)


@pytest.mark.parametrize(
    ("text", "where", "say"),
    [
        ("tuner: {kind: spsa}", "$.tuner.kind", "calibrator"),
        ("tuner: {start: {rtt: 3}}", "$.tuner.start", "between 0.05 and 2"),
        ("tuner: {start: {rtt: 2, queue: 0.2}}", "$.tuner.start", "4 times the queue weight"),
        ("tuner: {box: {rtt: [2, 1]}}", "$.tuner.box.rtt", "[least, most]"),
        ("tuner: {box: {queue: [0, 1]}}", "$.tuner.box.queue", "0.01"),
        ("tuner: {box: {queue: [1]}}", "$.tuner.box.queue", "[least, most]"),
        ("tuner: {box: {rtt: [.nan, 1]}}", "$.tuner.box.rtt", "[least, most]"),
        ("tuner: {box: {most_ratio: -1}}", "$.tuner.box.most_ratio", "ratio"),
    ],
)
def test_what_makes_no_sense_is_told_with_what_to_write(text: str, where: str, say: str) -> None:
    with pytest.raises(ConfigError) as caught:
        grid(text)
    assert where in str(caught.value)
    assert say in str(caught.value)


@pytest.mark.parametrize(
    ("gateway", "ok"),
    [
        ("routing: weights", False),
        ("routing: pick, pick: {policy: cache_aware}", False),
        ("routing: pick, pick: {policy: 'gorgo:.5/.1'}", True),
    ],
)
def test_a_tuner_needs_a_gateway_with_weights_to_tune(gateway: str, ok: bool) -> None:
    config = parse(f"gateways: [{{id: gw, {gateway}}}]\ntuner: {{}}")
    if ok:
        assert check(config) is config
        return
    with pytest.raises(ConfigError, match=r"\$\.tuner: no gateway picks"):
        check(config)
