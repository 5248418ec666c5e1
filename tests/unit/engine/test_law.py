"""The step-time law gives the reference's own figures."""

from dataclasses import replace

import pytest

from tradewind.engine.law import SlowDown, StepLoad, clock_slow_down, step_s, tensor_share, weights_s
from tradewind.engine.profiles import PROFILES, profile_named

RTX = PROFILES["rtx-pro-6000"]


def prefill(tokens: int) -> StepLoad:
    return StepLoad(prefill_tokens=tokens, decodes=0, kv_tokens=0, attention=tokens * tokens / 2)


def decode(sequences: int, context: int) -> StepLoad:
    return StepLoad(prefill_tokens=0, decodes=sequences, kv_tokens=sequences * context, attention=0.0)


def test_prefill_of_512_tokens_takes_what_the_reference_computes() -> None:
    # simulation reference 3.4: sqrt(24^2 + 256^2) + 3.5 = 261 ms, and 1.1 ms of attention.
    assert step_s(RTX, prefill(512)) == pytest.approx(0.2617, abs=0.001)


def test_a_light_decode_step_takes_about_28_ms() -> None:
    assert step_s(RTX, decode(1, 576)) == pytest.approx(0.0277, abs=0.0005)
    assert step_s(RTX, decode(6, 576)) == pytest.approx(0.0288, abs=0.001)


def test_a_cold_8k_prompt_takes_about_four_seconds() -> None:
    # simulation reference 0.5: 3.5 to 4.2 s; in chunks of 2048.
    chunks = [StepLoad(2048, 0, 0, 2048 * (2048 * index + 1024)) for index in range(4)]
    assert 3.5 < sum(step_s(RTX, chunk) for chunk in chunks) < 4.5


def test_the_moe_profile_reads_more_weights_as_the_batch_grows() -> None:
    profile = PROFILES["2xl40s"]
    itl_ms = [1e3 * step_s(profile, decode(n, 0)) for n in (2, 5, 16, 64)]
    assert itl_ms == pytest.approx([7.8, 9.4, 14.6, 25.0], rel=0.15)  # simulation reference 3.3, a row of +-40 %
    assert weights_s(profile, 1) < weights_s(profile, 64) < profile.w_s + profile.moe_w_s


def test_the_fast_profile_is_fast() -> None:
    fast = PROFILES["fast"]
    assert step_s(fast, prefill(512)) == pytest.approx(0.013, abs=0.001)
    assert step_s(fast, decode(4, 500)) == pytest.approx(0.005, abs=0.001)


def test_decodes_beside_a_prefill_read_their_context_less_well() -> None:
    mixed = replace(RTX, mixed=2.0)
    beside = StepLoad(prefill_tokens=300, decodes=20, kv_tokens=20_000, attention=1e6)
    assert step_s(mixed, beside) - step_s(RTX, beside) == pytest.approx(RTX.d_s * 20_000)
    assert step_s(mixed, decode(20, 1_000)) == step_s(RTX, decode(20, 1_000))


@pytest.mark.parametrize("term", ["w", "b", "c", "d", "e", "a0"])
def test_each_term_slows_down_on_its_own(term: str) -> None:
    load = StepLoad(prefill_tokens=300, decodes=20, kv_tokens=20_000, attention=1e6)
    healthy_s = step_s(RTX, load)
    assert step_s(RTX, load, SlowDown(**{term: 2.0})) > healthy_s
    assert step_s(RTX, load, SlowDown(ingest=9.0)) == healthy_s


def test_a_core_clock_throttle_hurts_prefill_and_spares_decode() -> None:
    # As power-capped H100s did: prefill +30 %, decode +0 % (simulation reference 3.2).
    slow = clock_slow_down(0.5)
    assert step_s(RTX, prefill(1024), slow) / step_s(RTX, prefill(1024)) > 1.9
    assert step_s(RTX, decode(8, 576), slow) / step_s(RTX, decode(8, 576)) < 1.06


def test_slow_downs_multiply() -> None:
    both = SlowDown(b=2.0).times(SlowDown(b=3.0, w=1.5))
    assert (both.b, both.w, both.c) == (6.0, 1.5, 1.0)


def test_tensor_share_is_high_in_prefill_and_low_in_decode() -> None:
    assert tensor_share(RTX, prefill(2048)) > 0.95
    assert tensor_share(RTX, decode(1, 100)) < 0.05


def test_unknown_profile_names_the_known_ones() -> None:
    with pytest.raises(KeyError, match="rtx-pro-6000"):
        profile_named("a100")
