"""`tradewind workload`: list, stats and make, for people and for machines."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tradewind.cli.main import app


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["workload", *arguments])


def test_list_names_the_eight_and_art() -> None:
    rows = json.loads(invoke("list", "--json").stdout)
    assert len(rows) == 9
    assert {"baseline_mixed", "very_long", "art"} <= {row["name"] for row in rows}
    assert "very_long" in invoke("list").stdout


def test_make_and_stats_agree_and_the_seed_decides(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.jsonl" for name in "abc"]
    for file, seed in zip(files, "112", strict=True):
        options = ("--rate", "6", "--for", "30", "--seed", seed, "--arrivals", "gamma:2", "--out", str(file))
        assert invoke("make", "long_context", *options).exit_code == 0
    assert files[0].read_bytes() == files[1].read_bytes() != files[2].read_bytes()
    found = json.loads(invoke("stats", str(files[0]), "--json").stdout)
    assert found["requests"] == files[0].read_text().count("\n")
    assert found["prompt_tokens"]["mean"] == pytest.approx(8_000, rel=0.1)
    words = invoke("stats", str(files[0])).stdout
    assert "prefix reuse in an infinite cache" in words


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("make", "rag", "--out", "x.jsonl"), "rag_multidoc"),
        (("make", "art", "--out", "x.csv"), "NAME.jsonl"),
        (("make", "code_heavy", "--arrivals", "gamma", "--out", "x.jsonl"), "gamma:CV"),
        (("make", "code_heavy", "--rate", "0.001", "--for", "0.1", "--out", "x.jsonl"), "no request"),
    ],
)
def test_bad_orders_are_refused_with_advice(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    result = invoke(*arguments[:-1], str(tmp_path / arguments[-1]))
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())
    assert not list(tmp_path.iterdir())


def test_stats_of_a_bad_file_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 1, "output_length": 1}\n{}\n')
    result = invoke("stats", str(path), "--json")
    assert result.exit_code == 2
    assert "bad.jsonl, line 2" in json.loads(result.stdout)["error"]["message"]
    assert invoke("stats", str(tmp_path / "none.jsonl")).exit_code == 2
