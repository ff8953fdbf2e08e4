"""Exact confidence intervals for shares, from nothing but the standard library."""

from __future__ import annotations

from math import exp, lgamma, log, log1p

_TINY = 1e-300


def beta_cdf(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function, by its continued fraction."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - beta_cdf(1.0 - x, b, a)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d or _TINY)
    whole = d
    for m in range(1, 500):
        for top in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / ((1.0 + top * d) or _TINY)
            c = (1.0 + top / c) or _TINY
            whole *= c * d
        if abs(c * d - 1.0) < 1e-12:
            break
    return front * whole


def beta_quantile(p: float, a: float, b: float) -> float:
    """Where the beta distribution reaches ``p``, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if beta_cdf(middle, a, b) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def clopper_pearson(hits: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact interval of a share of which ``hits`` in ``count`` were seen; (0, 1) where nothing was."""
    if not count:
        return 0.0, 1.0
    tail = (1.0 - confidence) / 2
    low = beta_quantile(tail, hits, count - hits + 1) if hits else 0.0
    high = beta_quantile(1.0 - tail, hits + 1, count - hits) if hits < count else 1.0
    return low, high


def quantile(values: list[float], share: float) -> float | None:
    """The value below which ``share`` of the values lie; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
