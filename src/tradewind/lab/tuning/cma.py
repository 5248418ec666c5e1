"""CMA-ES in the two log weights, after Hansen's "The CMA Evolution Strategy: A Tutorial" with its default constants."""

import random
from math import exp, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tradewind.core.tuner.adjust import Difference
from tradewind.core.tuner.box import Box
from tradewind.model.tuning import Weights

NAME = "cma"
REQUESTS = 200  # per child: 100 beside 100 of the parent's
SIGMA, ARMS, BEST = 0.5, 6, 3
N = 2
CHI = sqrt(N) * (1.0 - 1.0 / (4.0 * N) + 1.0 / (21.0 * N**2))  # expected length of a standard normal

Vector = NDArray[np.floating[Any]]


def _shares() -> Vector:
    raw = np.log(BEST + 0.5) - np.log(np.arange(1, BEST + 1))
    return np.asarray(raw / raw.sum())


SHARES = _shares()
MASS = 1.0 / float((SHARES**2).sum())
C_SIGMA = (MASS + 2.0) / (N + MASS + 5.0)
D_SIGMA = 1.0 + 2.0 * max(0.0, sqrt((MASS - 1.0) / (N + 1.0)) - 1.0) + C_SIGMA
C_PATH = (4.0 + MASS / N) / (N + 4.0 + 2.0 * MASS / N)
C_ONE = 2.0 / ((N + 1.3) ** 2 + MASS)
C_BEST = min(1.0 - C_ONE, 2.0 * (MASS - 2.0 + 1.0 / MASS) / ((N + 2.0) ** 2 + MASS))


class Cma:
    """Six children around the parent; the better half moves the parent, the step and its shape."""

    def __init__(self, rng: random.Random, box: Box) -> None:
        self._rng = rng
        self._box = box
        self._sigma = SIGMA
        self._shape: Vector = np.eye(N)
        self._path_sigma: Vector = np.zeros(N)
        self._path: Vector = np.zeros(N)
        self._told: list[tuple[float, Vector]] = []  # change of log TTFT, step in units of sigma

    def ask(self, parent: Weights) -> Weights:
        """One child."""
        values, vectors = np.linalg.eigh(self._shape)
        normal = np.array([self._rng.gauss(0.0, 1.0) for _ in range(N)])
        step = self._sigma * (vectors @ (np.sqrt(np.maximum(values, 1e-12)) * normal))
        rtt, queue = (
            exp(log(weight) + float(moved)) for weight, moved in zip(parent, np.clip(step, -9, 9), strict=True)
        )
        return self._box.clipped(Weights(rtt, queue))

    def tell(self, parent: Weights, child: Weights, seen: Difference) -> Weights | None:
        """The parent moves when all six were seen. Steps count as they were after the box cut them."""
        step = np.array([log(after / before) for before, after in zip(parent, child, strict=True)]) / self._sigma
        self._told.append((seen.change, step))
        if len(self._told) < ARMS:
            return None
        best = np.array([step for _, step in sorted(self._told, key=lambda told: told[0])[:BEST]])
        self._told.clear()
        mean = SHARES @ best
        moved = [exp(log(weight) + self._sigma * float(each)) for weight, each in zip(parent, mean, strict=True)]
        self._adapt(mean, best)
        return self._box.clipped(Weights(*moved))

    def _adapt(self, mean: Vector, best: Vector) -> None:
        values, vectors = np.linalg.eigh(self._shape)
        whitened = vectors @ ((vectors.T @ mean) / np.sqrt(np.maximum(values, 1e-12)))
        self._path_sigma = (1.0 - C_SIGMA) * self._path_sigma + sqrt(C_SIGMA * (2.0 - C_SIGMA) * MASS) * whitened
        length = float(np.linalg.norm(self._path_sigma))
        straight = length < (1.4 + 2.0 / (N + 1.0)) * CHI
        self._path = (1.0 - C_PATH) * self._path + straight * sqrt(C_PATH * (2.0 - C_PATH) * MASS) * mean
        ranked = sum(share * np.outer(step, step) for share, step in zip(SHARES, best, strict=True))
        self._shape = (1.0 - C_ONE - C_BEST) * self._shape + C_ONE * np.outer(self._path, self._path) + C_BEST * ranked
        self._sigma = min(3.0, self._sigma * exp(C_SIGMA / D_SIGMA * (length / CHI - 1.0)))
