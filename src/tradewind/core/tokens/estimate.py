"""Tokens of a prompt from its shape, by weights that each model's `usage.prompt_tokens` corrects.

A Kalman filter on relative errors: tokens = sum(weight x count). It starts from weights that suit the vocabularies of
current models, trusts them as `PRIOR_SPREAD` says, lets them wander, and limits what one answer may change. An estimate
stays within [1/4, 4] times that of the start weights: an engine that reports nonsense cannot make prompts look empty or
endless.
"""

from collections import OrderedDict
from collections.abc import Sequence
from operator import mul

from tradewind.core.tokens.shape import FEATURES, PromptShape

# In the order of FEATURES. Fitted to two public vocabularies of 130,000 and 200,000 tokens over prose, source code,
# Chinese, and mixtures; the spreads cover older and smaller ones.
PRIOR = (0.05, 0.14, 0.37, 0.48, -0.85, 0.77, -0.1, 0.26, 0.73, -0.45, 0.68, 0.33, 4.0, 3.0)
PRIOR_SPREAD = (
    0.03,
    0.1,
    0.2,
    0.2,
    0.4,
    0.3,
    0.4,
    0.2,
    0.3,
    0.3,
    0.3,
    0.2,
    3.0,
    10.0,
)  # one standard deviation of each
NOISE = 0.06  # one standard deviation of what the form itself misses, relative
DRIFT = 0.01  # of its spread, by which a weight is taken to wander between two answers
MAX_SURPRISE = 0.5  # relative error of one answer beyond which it counts as this much
LEAST, MOST = 0.25, 4.0  # of the start estimate
LONGEST_TOKEN_BYTES = 16.0  # on average over a prompt, whatever its text
EAGER_ANSWERS = 256  # a model learns from each of these, and later from one in `LATER_EVERY`
LATER_EVERY = 8
MAX_MODELS = 256
_SIZE = len(FEATURES)
_DRIFT = tuple((DRIFT * spread) ** 2 for spread in PRIOR_SPREAD)

assert len(PRIOR) == len(PRIOR_SPREAD) == _SIZE, "one weight per feature"


class TokenEstimator:
    """Weights per model name; the model not used for longest is forgotten when there are too many."""

    def __init__(self, *, max_models: int = MAX_MODELS) -> None:
        self._max_models = max_models
        self._fits: OrderedDict[str, _Fit] = OrderedDict()

    def estimate(self, model: str, shape: PromptShape) -> int:
        """Tokens of a prompt of this shape, at least 1."""
        if shape.exact:
            return max(1, round(shape.fixed_tokens))
        fit = self._fits.get(model)
        start = _dot(PRIOR, shape.counts)
        tokens = start if fit is None else _dot(fit.weights, shape.counts)
        least = max(LEAST * start, shape.text_bytes / LONGEST_TOKEN_BYTES)
        return max(1, round(shape.fixed_tokens + max(least, min(MOST * start, tokens))))

    def observe(self, model: str, shape: PromptShape, prompt_tokens: int) -> None:
        """An engine counted this many tokens for a prompt of this shape."""
        counted = prompt_tokens - shape.fixed_tokens
        if shape.exact or counted <= 0 or counted < shape.fixed_tokens:
            return  # nothing to learn, or the rule for images would hide it
        fit = self._fits.get(model)
        if fit is None:
            fit = self._fits[model] = _Fit()
            if len(self._fits) > self._max_models:
                self._fits.popitem(last=False)
        self._fits.move_to_end(model)
        fit.learn(shape.counts, counted)


class _Fit:
    """One model's weights, and how sure they are."""

    __slots__ = ("answers", "covariance", "weights")

    def __init__(self) -> None:
        self.answers = 0
        self.weights = list(PRIOR)
        self.covariance = [[PRIOR_SPREAD[i] ** 2 if i == j else 0.0 for j in range(_SIZE)] for i in range(_SIZE)]

    def learn(self, counts: tuple[float, ...], counted: float) -> None:
        """A step of a Kalman filter whose state are the weights and whose measurement is 1 = sum(weight x row)."""
        self.answers += 1
        if self.answers > EAGER_ANSWERS and self.answers % LATER_EVERY:
            return
        row = [count / counted for count in counts]
        error = 1.0 - _dot(self.weights, row)
        error = min(MAX_SURPRISE, max(-MAX_SURPRISE, error))
        gains = [_dot(line, row) for line in self.covariance]
        spread = _dot(gains, row) + NOISE**2
        self.weights = [weight + gain * error / spread for weight, gain in zip(self.weights, gains, strict=True)]
        self.covariance = [
            [value - gain * other / spread for value, other in zip(line, gains, strict=True)]
            for line, gain in zip(self.covariance, gains, strict=True)
        ]
        for i, drift in enumerate(_DRIFT):
            self.covariance[i][i] = min(self.covariance[i][i] + drift, PRIOR_SPREAD[i] ** 2)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    total: float = sum(map(mul, left, right))
    return total
