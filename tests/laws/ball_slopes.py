"""The slope of `BallSoftmax` with many digits, held against Lagrange's conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mpmath


def ball_slope(scores: Sequence[Any], y: int, radius: float) -> list[Any]:
    """p − e_y where ⟨p − e_y, scores⟩ + entropy(p) is largest, ‖p − e_y‖ at most the radius."""
    scores, c = [mpmath.mpf(s) for s in scores], mpmath.mpf(radius)
    others = [s for j, s in enumerate(scores) if j != y]
    top = max(scores)
    weights = [mpmath.exp(s - top) for s in scores]
    plain = [w / mpmath.fsum(weights) - (j == y) for j, w in enumerate(weights)]
    if mpmath.fsum(s * s for s in plain) <= c * c:
        return plain
    top = max(others)

    def shares(t: Any) -> list[Any]:
        return [mpmath.lambertw(t * mpmath.exp(t + s - top)).real / t for s in others]

    def length(r: list[Any]) -> Any:
        return mpmath.sqrt(mpmath.fsum(v * v for v in r) + mpmath.fsum(r) ** 2)

    def left_of(t: Any) -> Any:
        r = shares(t)
        total, n = mpmath.fsum(r), length(r)
        left = mpmath.log(1 - c * total / n) + mpmath.log(n / c)
        return left + top - scores[y] - t * (1 + total)

    low, high = mpmath.mpf(10) ** -60, (top - scores[y] + 2 + mpmath.log(2 * len(scores) / c)) + 1
    for _ in range(60):
        middle = mpmath.sqrt(low * high) if high > 4 * low else (low + high) / 2
        low, high = (middle, high) if left_of(middle) > 0 else (low, middle)
    t = mpmath.findroot(
        left_of, (low, high), solver="illinois", tol=mpmath.mpf(10) ** -70, verify=False
    )
    r = shares(t)
    n = length(r)
    wrong = [c * v / n for v in r]
    p = [*wrong[:y], 1 - mpmath.fsum(wrong), *wrong[y:]]
    multiplier = t * n / c
    sides = [
        mpmath.log(q) + multiplier * (q - (j == y)) - s
        for j, (q, s) in enumerate(zip(p, scores, strict=True))
    ]
    assert multiplier > 0
    assert all(q > 0 for q in p)
    scale = 1 + max(abs(s) for s in scores) + multiplier
    assert max(sides) - min(sides) < scale * mpmath.mpf(10) ** -30
    return [q - (j == y) for j, q in enumerate(p)]
