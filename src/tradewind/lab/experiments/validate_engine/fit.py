"""Two coefficients, a0 and b, fitted on the first half of a run: Gauss-Newton on the logarithms of the nine figures."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tradewind.engine.profiles import Profile
from tradewind.lab.experiments.validate_engine.cases import Case
from tradewind.lab.experiments.validate_engine.compare import FITTED, nine, part_of
from tradewind.lab.experiments.validate_engine.model import simulated
from tradewind.workload.measured import MeasuredRequest

Vector = NDArray[np.float64]
START = (0.7, 1.2)  # of the case's a0 and b: the fit must find its way from elsewhere
_ROUNDS = 8
_STEP = 0.08  # batches are discrete: over less, a slope is noise
_LONGEST = 0.4  # of a move, in the logarithm
_HALVINGS = 3
_DONE = 0.005


def fitted(case: Case, measured: Sequence[MeasuredRequest]) -> Profile:
    """The case's profile with a0 and b as the first half says; of what arrived later, the times are not read."""
    half = part_of(measured, FITTED)
    wanted = _figures([measured[number] for number in half])

    def misses(at: Vector) -> Vector:
        run = simulated(case, measured, profile=_scaled(case.profile, at))
        found: Vector = _figures([run[number] for number in half]) - wanted
        return found

    at = np.log(np.asarray(START))
    here = misses(at)
    for _ in range(_ROUNDS):
        slope = np.column_stack([(misses(at + shift) - here) / _STEP for shift in np.eye(2) * _STEP])
        move = np.clip(np.linalg.lstsq(slope, -here, rcond=None)[0], -_LONGEST, _LONGEST)
        for _ in range(_HALVINGS):
            there = misses(at + move)
            if there @ there < here @ here:
                break
            move = move / 2
        else:
            break
        at, here = at + move, there
        if float(np.abs(move).max()) < _DONE:
            break
    return _scaled(case.profile, at)


def _scaled(profile: Profile, at: Vector) -> Profile:
    a0, b = np.exp(at)
    return replace(profile, a0_s=profile.a0_s * float(a0), b_s=profile.b_s * float(b))


def _figures(requests: Sequence[MeasuredRequest]) -> Vector:
    logarithms: Vector = np.log(np.asarray(list(nine(requests).values())))
    return logarithms
