"""The tuner of a written policy: `;tuner=calibrator`, with `;start=10/1` (RTT / queue weight) and `;box=tested`."""

from collections.abc import Sequence

from tradewind.core.tuner.box import AS_TESTED, PUBLISHED, SHIPPED, Box
from tradewind.lab.simulated.constants import UnknownPolicyError
from tradewind.lab.tuning.named import lab_tuner_named
from tradewind.model.tuning import Weights
from tradewind.sim.tuning import MakeTuner

BOXES = {"shipped": SHIPPED, "tested": AS_TESTED, "published": PUBLISHED}
DRIVER = "sim"
_KEYS = ("tuner", "start", "box")
_PUBLISHED = "es"  # the tuner that has the published box unless another one is written


def without_tuner(changes: Sequence[str]) -> list[str]:
    """The changes that are not about the tuner."""
    return [change for change in changes if change.partition("=")[0] not in _KEYS]


def tuner_maker(changes: Sequence[str], *, own: Weights) -> MakeTuner | None:
    """Makes the tuners of this written form, None without one. `own`: the policy's weights, where they start.

    Raises UnknownPolicyError.
    """
    found = {key: value for key, _, value in (change.partition("=") for change in changes) if key in _KEYS}
    name = found.get("tuner")
    if name is None:
        if found:
            raise UnknownPolicyError(f"{next(iter(found))}= goes with a tuner; write ;tuner=calibrator before it")
        return None
    box = _box(found.get("box", "published" if name == _PUBLISHED else "shipped"))
    start = _start(found["start"]) if "start" in found else box.clipped(own)
    try:
        lab_tuner_named(name, driver=DRIVER, seed=0, start=start, box=box)
    except ValueError as error:
        raise UnknownPolicyError(str(error)) from error
    return lambda seed: lab_tuner_named(name, driver=DRIVER, seed=seed, start=start, box=box)


def _box(written: str) -> Box:
    if written not in BOXES:
        raise UnknownPolicyError(f"unknown box {written!r}; known: {', '.join(BOXES)}")
    return BOXES[written]


def _start(written: str) -> Weights:
    rtt, _, queue = written.partition("/")
    try:
        return Weights(float(rtt), float(queue))
    except ValueError:
        raise UnknownPolicyError(f"start= takes RTT weight/queue weight, e.g. start=10/1, not {written!r}") from None
