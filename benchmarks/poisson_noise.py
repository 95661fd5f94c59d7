"""The noise that composition of Poisson batches needs, fast enough for hundreds of settings.

Privacy losses of one step are put on a grid and convolved by FFT, both orders of the pair (Koskela
et al. 2020; Gopi, Lee and Wutschitz 2021). An estimate to about one part in a thousand, without
their bounds on its errors: good enough for a peer in a benchmark, and no guarantee.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from lastiterate.curves import gaussian

_CELLS, _GRID, _TAIL = 1 << 13, 1 << 16, 12.0


@functools.cache
def multiplier(rate: float, steps: int, epsilon: float, delta: float) -> float:
    """Noise over the clipping length with which so many steps are (epsilon, delta).

    >>> round(multiplier(1.0, 4, 1.0, 1e-5), 2)
    7.46
    """
    composed = math.sqrt(steps) / gaussian.mu(epsilon, delta)
    if rate == 1:
        return composed

    def excess(log: float) -> float:
        found = _delta(math.exp(log), rate, steps, epsilon)
        return math.log(max(found, 1e-300) / delta)

    return math.exp(brentq(excess, math.log(0.15), math.log(2 * composed), xtol=1e-4))


def _delta(noise: float, rate: float, steps: int, epsilon: float) -> float:
    edges = np.linspace(-_TAIL * noise, 1 + _TAIL * noise, _CELLS + 1)
    without, shifted = (np.diff(norm.cdf(edges, mean, noise)) for mean in (0, 1))
    joined = (1 - rate) * without + rate * shifted
    middle = (edges[1:] + edges[:-1]) / 2
    loss = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * middle - 1) / (2 * noise**2))
    return max(_composed(loss, joined, steps, epsilon), _composed(-loss, without, steps, epsilon))


def _composed(loss: np.ndarray, mass: np.ndarray, steps: int, epsilon: float) -> float:
    mean = float(mass @ loss)
    loss = loss - mean
    reach = float(np.abs(loss[mass > 1e-18]).max())
    width = 40 * math.sqrt(steps * float(mass @ loss**2)) + 2 * reach
    place = np.clip(loss / width, -0.49, 0.49) * _GRID + _GRID / 2
    low = np.floor(place).astype(int)
    law = np.bincount(low, mass * (1 - place + low), _GRID)
    law = law + np.bincount(low + 1, mass * (place - low), _GRID)
    spectrum = np.fft.rfft(np.fft.ifftshift(law))
    law = np.fft.fftshift(np.fft.irfft(spectrum**steps, _GRID))
    total = (np.arange(_GRID) / _GRID - 0.5) * width + steps * mean
    gain = -np.expm1(np.minimum(epsilon - total, 0.0))
    return float(law @ gain)
