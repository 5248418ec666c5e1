"""Tokens of a prompt from its shape, by weights that each model's `usage.prompt_tokens` corrects.

A recursive least-squares fit of relative errors: tokens = sum(weight x count). It starts from weights that suit the
large vocabularies of current models, trusts them as `PRIOR_SPREAD` says, forgets slowly, limits what one answer may
change, and never leaves [1/4, 4] times the start: an engine that reports nonsense cannot make a prompt look empty or
endless.
"""

from collections import OrderedDict

from tradewind.core.tokens.shape import FEATURES, PromptShape

# Tokens per byte (letters ... other), per character (wide), per message and per prompt, in the order of FEATURES.
PRIOR = (0.17, 0.12, -0.05, 0.55, 0.5, 0.5, 0.65, 0.3, 4.0, 3.0)
PRIOR_SPREAD = (0.08, 0.15, 0.15, 0.3, 0.5, 0.3, 0.3, 0.2, 4.0, 15.0)  # one standard deviation of each
NOISE = 0.06  # one standard deviation of what the form itself misses, relative
FORGET = 0.997
MAX_SURPRISE = 0.5  # relative error of one answer beyond which it counts as this much
LEAST, MOST = 0.25, 4.0  # of the start estimate
MAX_MODELS = 256
_SIZE = len(FEATURES)

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
        return max(1, round(shape.fixed_tokens + _bounded(_PRIOR if fit is None else fit.weights, shape.counts)))

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


_PRIOR = list(PRIOR)


class _Fit:
    """Recursive least squares on relative errors, with forgetting that stops at the prior's own uncertainty."""

    __slots__ = ("covariance", "weights")

    def __init__(self) -> None:
        self.weights = list(PRIOR)
        self.covariance = [[PRIOR_SPREAD[i] ** 2 if i == j else 0.0 for j in range(_SIZE)] for i in range(_SIZE)]

    def learn(self, counts: tuple[float, ...], counted: float) -> None:
        row = [count / counted for count in counts]
        error = 1.0 - sum(map(float.__mul__, self.weights, row))
        error = min(MAX_SURPRISE, max(-MAX_SURPRISE, error))
        gains = [sum(map(float.__mul__, line, row)) for line in self.covariance]
        spread = sum(map(float.__mul__, gains, row)) + NOISE**2
        self.weights = [weight + gain * error / spread for weight, gain in zip(self.weights, gains, strict=True)]
        for i, (line, gain) in enumerate(zip(self.covariance, gains, strict=True)):
            kept = gain / spread
            self.covariance[i] = [(value - kept * other) / FORGET for value, other in zip(line, gains, strict=True)]
            self.covariance[i][i] = min(self.covariance[i][i], PRIOR_SPREAD[i] ** 2)


def _bounded(weights: list[float], counts: tuple[float, ...]) -> float:
    start = sum(map(float.__mul__, _PRIOR, counts))
    return min(MOST * start, max(LEAST * start, sum(map(float.__mul__, weights, counts))))
