"""Correlated noise (matrix mechanism, DP-FTRL): what insiders see, and what outsiders see.

Noise ν·Lξ with L lower triangular Toeplitz, l_0 = 1, l_d ≤ 0 for d ≥ 1, Σl_d ≥ 0
(`description.correlation`), C = L⁻¹ with coefficients c_k ≥ 0, b_j = l_0 + … + l_j ≥ 0,
S_m = b_0² + … + b_{m−1}².

**Theorem AS (docs/theory/correlated.md).** Shifts a_k of the noise that are feasible for the string
cost the shifts Ca of the independent ξ, so μ² = ν⁻²‖Ca‖² as C ≥ 0; shifts may depend on the past.

*Insiders* (all iterates): a_k = s at the uses t of the record, nothing is left over, no loss is
needed: μ² = (s/ν)²·Σ_i (Σ_{t ≤ i} c_{i−t})².

*Outsiders* (the last iterate, c ≤ 1): spread every impulse over all steps that are left, so that it
costs ξ as little as can be: u_i = s·b_{T−1−i}/S_{T−t} for i ≥ t. This is feasible: a = Lu ≥ 0,
because u rises in i, l_d ≤ 0 and b ≥ 0, and Σa = Σ_i u_i·b_{T−1−i} = s. Impulses add:

    μ² = (s/ν)²·Σ_i b²_{T−1−i}·(Σ_{t ≤ i} 1/S_{T−t})² = (s/ν)²·Σ_t (h_t + h_{t'}),

h_t the sum of 1/S_{T−t} over the uses up to t, t' the use before t (Abel). For a record that is
used once it is (s/ν)²/S_{T−t}: the noise still to come, and optimal for c = 1 (Cauchy-Schwarz).
Shifts that are feasible for c = 1 are more than is needed for c < 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np
import scipy

from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.description import Cyclic, FullBatch, Shuffled
from lastiterate.theory.dynamics import Array
from lastiterate.theory.registry import NON_EXPANSIVE, PUBLIC, Proof, Theorem
from lastiterate.theory.run import Run

_MOST_PRODUCTS = 2_000_000_000  # of a power series' inverse


@dataclass(frozen=True)
class Toeplitz:
    """The coefficients of L, and for how many steps.

    >>> half = Toeplitz((1.0, -0.5, -0.125, -0.0625), 4)
    >>> half.inverse.tolist(), half.still_to_come.tolist()
    ([1.0, 0.5, 0.375, 0.3125], [1.0, 1.25, 1.390625, 1.48828125])
    """

    coefficients: tuple[float, ...]
    steps: int

    @property
    def inverse(self) -> Array:
        """The coefficients of C, sums of products of numbers ≥ 0."""
        one = np.zeros(self.steps)
        one[:1] = 1.0
        return np.asarray(
            scipy.signal.lfilter([1.0], self.coefficients[: self.steps], one), dtype=np.float64
        )

    @property
    def sums(self) -> Array:
        """b_j, each rounded once: l_d of both signs nearly cancel."""
        found = [float(b) for b in accumulate(map(Fraction, self.coefficients[: self.steps]))]
        padded = np.full(self.steps, found[-1] if found else 1.0)
        padded[: len(found)] = found
        return padded

    @property
    def still_to_come(self) -> Array:
        """S_1, …, S_T."""
        return np.cumsum(self.sums**2)

    @property
    def room(self) -> float:
        """How far sums of numbers ≥ 0 can be off, relatively: of products of T sums of w terms."""
        return (self.steps * (len(self.coefficients) + 8) + 64) * 2.0**-51

    def insiders(self, batches: int) -> Array:
        """μ²ν²/s² of the first min(batches, T) positions if all iterates are public."""
        used = self.inverse
        for k in range(batches, self.steps):
            used[k] += used[k - batches]
        costs = np.cumsum(used**2)
        return np.asarray(costs[::-1][: min(batches, self.steps)] * (1 + self.room))

    def outsiders(self, batches: int) -> Array:
        """... if the last iterate alone is public, every impulse spread over all that is left."""
        S = np.append(0.0, self.still_to_come)  # S[m]
        found = []
        for j in range(min(batches, self.steps)):
            heights = np.cumsum(1 / S[np.arange(self.steps - j, 0, -batches)])
            found.append(float(2 * heights.sum() - heights[-1]))
        return np.array(found) * (1 + self.room)


def correlated_limits(run: Run) -> str | None:
    """What is special about it: real numbers, and sums that can be added up."""
    if np.any(run.rounding_drifts > 0):
        return "it is about real numbers, and what this run computes is rounded"
    T, width = run.training.steps, len(run.training.correlation or ())
    if T * min(T, width) > _MOST_PRODUCTS:
        return f"{T:,} steps with {width:,} coefficients are more than it can add up"
    return None


def correlated_composition_bound(run: Run) -> Proof:
    """All iterates: the worst position, or the average of the profiles."""
    return _bound(run, Toeplitz.insiders)


def correlated_last_iterate_bound(run: Run) -> Proof:
    """The last iterate: every sensitivity is spread over the noise that is still to come."""
    return _bound(run, Toeplitz.outsiders)


def _bound(run: Run, squares: Callable[[Toeplitz, int], Array]) -> Proof:
    training, batches = run.training, run.batches
    assert training.correlation is not None
    ratio = math.inf
    if training.steps == 0 or run.step_sensitivities[0] == 0:
        ratio = 0.0
    elif training.noises[0] > 0:
        ratio = float(run.step_sensitivities[0]) / float(training.noises[0]) * (1 + 2.0**-50)
    noise = Toeplitz(training.correlation, training.steps)
    roots = np.sqrt(squares(noise, batches)) if training.steps else np.zeros(1)
    mus = np.where(roots > 0, ratio * roots, 0.0) * (1 + 2.0**-50)
    if not training.batches.hidden:
        return Proof(Gaussian(float(mus.max())))
    unused = (batches - len(mus)) / batches
    weights = np.append(np.full(len(mus), 1 / batches), unused)
    return Proof(Mixture(np.append(mus, 0.0)[weights > 0], weights[weights > 0]))


CORRELATED_COMPOSITION = Theorem(
    key="correlated-composition",
    name="Matrix mechanism (Denisov, McMahan, Rush, Smith & Thakurta 2022)",
    reference="Denisov et al. 2022; adaptive by the Gaussian filter, docs/theory/correlated.md",
    statement=(
        "Noise nu L xi with L lower triangular Toeplitz, 1 on the diagonal, no positive entry "
        "below it, row sums of at least 0, C = L^-1. All iterates together are mu-GDP with mu = "
        "(s/nu) times the length of the sum of the columns of C at the uses of the record: the "
        "worst position (full batch, cyclic), the average of the profiles (shuffled)."
    ),
    schemes=(FullBatch, Cyclic, Shuffled),
    bound=correlated_composition_bound,
    limits=correlated_limits,
    supports=PUBLIC - {"momentum"},
    needs=frozenset({"correlated noise"}),
    assumptions=("per-record gradients are bounded", "constant steps and noise"),
    hidden_state=False,
)

CORRELATED_LAST_ITERATE = Theorem(
    key="correlated-last-iterate",
    name="Adapted shifts of correlated noise",
    reference="this library, docs/theory/correlated.md",
    statement=(
        "As the matrix mechanism, but the last iterate alone, with updates that drive no two runs "
        "apart (c <= 1). With b_j the sum of the first coefficients of L and S_m = b_0^2 + ... + "
        "b_{m-1}^2 a record that is used once, at step t of T, costs mu^2 = (s/nu)^2 / S_{T-t}; "
        "of several uses the shifts of the noise add up."
    ),
    schemes=(FullBatch, Cyclic, Shuffled),
    bound=correlated_last_iterate_bound,
    limits=correlated_limits,
    # It follows a helper process, so proximal steps and projections are covered.
    supports=NON_EXPANSIVE | {"schedules"},
    needs=frozenset({"correlated noise"}),
    assumptions=("convex, smooth and unclipped (c <= 1)", "constant steps and noise"),
)
