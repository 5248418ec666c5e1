"""Tensor activity that the cell's own token rates do not explain: foreign load shows before users feel it (line 17)."""

import math
from dataclasses import dataclass, field

_SIZE = 4  # 1, prompt tokens/s, generated tokens/s, running


@dataclass(slots=True)
class Regression:
    """Recursive least squares with slow forgetting; predicts one number from `_SIZE` features."""

    forget: float = 0.9999
    weights: list[float] = field(default_factory=lambda: [0.0] * _SIZE)
    spread: list[list[float]] = field(
        default_factory=lambda: [[1e3 if i == j else 0.0 for j in range(_SIZE)] for i in range(_SIZE)]
    )

    def predict(self, features: list[float]) -> float:
        """The value the past would expect."""
        return sum(weight * feature for weight, feature in zip(self.weights, features, strict=True))

    def learn(self, features: list[float], value: float) -> None:
        """Folds one observation in."""
        gain = [sum(a * x for a, x in zip(row, features, strict=True)) for row in self.spread]
        scale = self.forget + sum(x * g for x, g in zip(features, gain, strict=True))
        error = value - self.predict(features)
        self.weights = [weight + g * error / scale for weight, g in zip(self.weights, gain, strict=True)]
        self.spread = [
            [(a - gain[i] * gain[j] / scale) / self.forget for j, a in enumerate(row)]
            for i, row in enumerate(self.spread)
        ]


@dataclass(slots=True)
class TensorResidual:
    """z of the tensor activity against what this cell's own work explains; EWMA-smoothed."""

    regression: Regression = field(default_factory=Regression)
    variance: float = 0.01
    samples: int = 0
    z: float = 0.0

    def update(self, *, tensor: float, prompt_rate: float, token_rate: float, running: float, alpha: float) -> float:
        """Takes means over the last few seconds; the z after it. Outliers are judged, not learned."""
        features = [1.0, prompt_rate / 1e3, token_rate / 1e3, running / 10.0]
        residual = tensor - self.regression.predict(features)
        z = residual / math.sqrt(self.variance)
        self.z += alpha * (z - self.z)
        self.samples += 1
        steady = self.samples >= 60 and self.samples % 5  # learned well: one in five is enough, and cheap
        if not steady and (self.samples < 60 or abs(z) < 4.0):
            self.regression.learn(features, tensor)
            share = max(1.0 / self.samples, 1e-3)
            self.variance = max(1e-5, self.variance + share * (residual * residual - self.variance))
        return self.z
