"""Workloads: one seed, one plan; lengths and rates are what they say."""

import itertools
import json
from pathlib import Path

import pytest

from tradewind.workload import arrivals, azure, lengths, prompts
from tradewind.workload.errors import TraceError
from tradewind.workload.files import read_trace
from tradewind.workload.plan import assemble, duration_s, renamed
from tradewind.workload.streams import stream


def test_named_streams_are_stable_and_independent() -> None:
    assert stream(1, "arrivals").random() == stream(1, "arrivals").random()
    assert stream(1, "arrivals").random() != stream(1, "lengths").random()
    assert stream(1, "arrivals").random() != stream(2, "arrivals").random()
    assert round(stream(7, "check").random(), 6) == 0.428782  # pinned: the same on every machine


def test_fc_66_the_same_seed_gives_the_same_request_sequence() -> None:
    def plan() -> object:
        times = arrivals.poisson(stream(3, "arrivals"), rate_per_s=10, for_s=20)
        return assemble(times, lengths.mismatch(stream(3, "lengths")), prefix="a")

    assert plan() == plan()


def test_constant_arrivals_are_evenly_spaced() -> None:
    assert list(arrivals.constant(rate_per_s=4, for_s=1)) == [0, 0.25, 0.5, 0.75]


def test_poisson_arrivals_have_their_mean_rate() -> None:
    times = list(arrivals.poisson(stream(1, "a"), rate_per_s=50, for_s=100))
    assert times == sorted(times)
    assert 4_700 < len(times) < 5_300
    assert times[-1] < 100


def test_mismatch_mix_has_its_share_of_prompts_that_cannot_fit() -> None:
    mix = lengths.mismatch(stream(1, "l"))
    drawn = [next(mix) for _ in range(5_000)]
    long = [item for item in drawn if item[2] == lengths.LONG]
    assert 0.27 < len(long) / len(drawn) < 0.33
    assert all(1_500 <= prompt <= 4_000 for prompt, _output, _kind in long)
    assert all(prompt + output <= 1_024 for prompt, output, kind in drawn if kind == lengths.SHORT)


def test_baseline_mix_is_bounded_around_its_mean() -> None:
    mix = lengths.baseline_mixed(stream(1, "l"))
    drawn = [next(mix)[0] for _ in range(2_000)]
    assert 495 < sum(drawn) / len(drawn) < 530
    assert 32 <= min(drawn) <= max(drawn) <= 1_024


def test_plan_ids_are_unique_and_renamed_together() -> None:
    plan = assemble([0.0, 1.0], lengths.fixed(prompt_tokens=10, output_tokens=5), prefix="a")
    assert [item.request_id for item in plan] == ["a-0", "a-1"]
    assert [item.request_id for item in renamed(plan, "b")] == ["b-0", "b-1"]
    assert duration_s(plan) == 1.0
    assert duration_s(()) == 0.0


@pytest.mark.parametrize("tokens", [8, 100, 1_024, 4_000])
def test_prompt_has_its_length_under_the_emulated_tokenizer(tokens: int) -> None:
    text = prompts.prompt_text("run-1", tokens=tokens)
    rendered = f"<|user|>\n{text}<|end|>\n<|assistant|>\n"
    assert -(-len(rendered.encode()) // 4) in {tokens, max(tokens, 10)}
    assert text.startswith("run-1")


def test_body_asks_for_a_stream_with_usage_at_its_end() -> None:
    body = json.loads(prompts.chat_body("m", "hi", output_tokens=7))
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert (body["max_tokens"], body["ignore_eos"]) == (7, True)
    assert "stream" not in json.loads(prompts.chat_body("m", "hi", output_tokens=7, stream=False))


def test_shipped_slice_is_the_public_trace() -> None:
    rows = azure.shipped_slice()
    assert len(rows) == 2_000
    assert rows[0] == azure.TraceRow(at_s=0.0, prompt_tokens=1_098, output_tokens=407)
    assert all(earlier.at_s <= later.at_s for earlier, later in itertools.pairwise(rows))


def test_replay_scales_gaps_only_and_wraps_around() -> None:
    rows = azure.shipped_slice()
    plan = azure.replay(rows, rate_per_s=7, for_s=600, prefix="r", start=1_900)
    assert len(plan) == 7 * 600
    assert 595 < plan[-1].at_s < 600
    assert plan[0].at_s == 0.0
    assert all(earlier.at_s <= later.at_s for earlier, later in itertools.pairwise(plan))
    assert [item.prompt_tokens for item in plan[:100]] == [row.prompt_tokens for row in rows[1_900:]]
    assert plan[100].prompt_tokens == rows[0].prompt_tokens


def test_trace_that_is_none_says_which_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\nyesterday,1,2\n")
    with pytest.raises(TraceError, match=r"trace.csv, line 3: .*yesterday"):
        read_trace(path)
