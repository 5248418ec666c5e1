"""The alert rules that users load: every metric exists, and every alert is in the runbook."""

import re
from typing import Any

import msgspec
import pytest

from tests.unit.test_tidy import ROOT

RULES = ROOT / "examples" / "prometheus-rules.yaml"
REFERENCE = (ROOT / "docs" / "reference" / "metrics.md").read_text()
RUNBOOK = (ROOT / "docs" / "how-to" / "runbook.md").read_text()
OF_PROMETHEUS = {"up"}
WORDS = {"sum", "max", "by", "rate", "increase", "and", "or", "on", "instance", "cell"}


def _rules() -> list[dict[str, Any]]:
    groups = msgspec.yaml.decode(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: str(rule["alert"]))
def test_a_rule_asks_for_metrics_that_exist_and_says_what_is_wrong(rule: dict[str, Any]) -> None:
    asked = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", rule["expr"])
    names = {name for name in re.findall(r"[a-z_][a-z0-9_]*", asked) if name not in WORDS}
    missing = {name for name in names - OF_PROMETHEUS if f"| `{name}` |" not in REFERENCE}
    assert names
    assert not missing
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert rule["annotations"]["summary"]


def test_the_runbook_has_every_alert_and_no_other() -> None:
    headed = re.findall(r"^### (Tradewind\w+)$", RUNBOOK, flags=re.MULTILINE)
    assert headed == [rule["alert"] for rule in _rules()]
    assert set(re.findall(r"\bTradewind[A-Z]\w+", RUNBOOK)) == set(headed)
