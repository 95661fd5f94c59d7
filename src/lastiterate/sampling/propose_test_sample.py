"""Release one posterior sample only after testing privately that it is safe.

Heller and Fetaya's Algorithm 1 (propose, test, sample) for Bayesian linear regression in one
dimension, with the guards and corrections it needs. Refusing is an ordinary output, not an error:
an exception would itself reveal something. The last step must be the exact posterior: with SGLD in
its place the guarantee is void, which :func:`swapped_for_sgld` demonstrates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate._internal.formatting import printed, printed_down
from lastiterate.description.fields import number, one_of
from lastiterate.errors import DescriptionError
from lastiterate.sampling.discrete_laplace import NoiseSource, SecureNoise, grid_for
from lastiterate.sampling.interim import interim_privacy

Floats = NDArray[np.float64]

_BITS = 18  # products of such pieces have 36 bits
_EXACT = 1 << 26  # ... and so many of them add up in 64


@dataclass(frozen=True)
class Release:
    """What left the mechanism. ``value`` is the sample, or None when the test refused."""

    value: float | None
    epsilon: float
    delta: float
    adjacency: Literal["add-remove", "replace"]

    def __str__(self) -> str:
        what = "refused" if self.value is None else f"released {self.value!r}"
        return (
            f"{what}; ({printed(self.epsilon)}, {printed(self.delta)})-differentially private, "
            f"{self.adjacency} one record"
        )


@dataclass(frozen=True)
class Proposal:
    """The public parameters of the mechanism, checked; data never enter here."""

    epsilon: float
    delta: float
    prior_precision: float
    noise_precision: float
    x_low: float
    x_high: float
    rho_1: float
    rho_2: float
    gamma: float

    def __post_init__(self) -> None:
        number("epsilon", self.epsilon, above=0)
        number("delta", self.delta, above=0, below=0.5)
        number("prior_precision", self.prior_precision, above=0)
        if not 0 < self.x_low < self.x_high < math.inf:
            allowed = "0 < x_low < x_high"
            why = "the sensitivity of the slope is bounded through them"
            raise DescriptionError("x_low, x_high", (self.x_low, self.x_high), allowed, why)
        number("noise_precision", self.noise_precision, "it is a precision", above=0)
        number("rho_1", self.rho_1, above=1, below=1.5)
        number("rho_2", self.rho_2, above=0, below=0.5)
        number("gamma", self.gamma, above=self.rho_2, below=0.5)

    @property
    def offset(self) -> int:
        """A whole number k with P(noise > k) <= delta for the discrete Laplace noise."""
        return math.ceil(math.log(1 / (2 * self.delta)) / self.epsilon)

    @property
    def order(self) -> float:
        return 1 + 2 * math.log(1 / self.delta) / self.epsilon

    def least_records(self, centre: float, size: float) -> float:
        """n_min: with so many records left, one posterior sample is (epsilon, delta)-private.

        Heller & Fetaya 2022, eq. (33) at m-breve = ``centre``, with the corrected condition of
        Lemma A.1 (n > 1 + 10 order x_high^2/x_low^2) and size^(rho_2/gamma) for
        n_1^(rho_2/gamma_1).
        """
        e, order, g = self.epsilon, self.order, self.gamma
        alpha, beta = self.prior_precision, self.noise_precision
        low, high = self.x_low**2, self.x_high**2
        mixed = 32 * order / e * high**2 * (alpha + high * beta) / (0.9 * low**2)
        square = 4 * order / e * (high * (alpha + high * beta)) ** 2 / (0.9 * low**3 * beta)
        least: float = max(
            math.nextafter(1 + 10 * order * high / low, math.inf),
            1 + high / low * 8 / e,
            1 + order * high / low * (1 + 8 * (order - 1) / e),
            (16 * order * beta * high**2 / (0.9 * e * low)) ** (1 / (1 - 2 * g)),
            (mixed * centre) ** (1 / (2 - g)),
            mixed ** (1 / (2 - 2 * g)),
            square ** (1 / 3) * (2 * centre) ** (2 / 3),
            (4 * square) ** (1 / (3 - 2 * g)),
            size ** (self.rho_2 / g),
        )
        return least


def propose_test_sample(
    x: ArrayLike,
    y: ArrayLike,
    *,
    epsilon: float,
    delta: float,
    prior_precision: float,
    noise_precision: float,
    x_low: float,
    x_high: float,
    rho_1: float = 1.01,
    rho_2: float = 0.12,
    gamma: float = 0.15,
    public_records: bool = False,
    outside: Literal["clip", "refuse"] = "clip",
    noise: NoiseSource | None = None,
) -> Release:
    """One sample of theta given y = theta x + N(0, 1/noise_precision), or a private refusal.

    Statement: the output is (5 epsilon, 2 delta)-private when a record is added or removed, and
    (4 epsilon, 2 delta)-private when one is replaced and the number of records is public
    (``public_records``). Reference: Heller & Fetaya 2022, Algorithm 1, Claim IV.8. Status:
    corrected: guards for a noisy size <= 0, a negative centre and empty sets; Lemma A.1's
    condition; the exact sensitivity of the slope, R x_high^2/((n_2-1) x_low^2 + x_high^2), half of
    Heller & Fetaya's; n_2 in n_min.

    Values outside [x_low, x_high], negative y and non-numbers are clipped, as part of the
    mechanism. ``outside="refuse"`` raises instead, which tells the caller about the data: only
    for checking a pipeline. Noise comes from the operating system and lies on a grid, so that
    no floating-point gap betrays the data; ``noise`` replaces it for experiments.

    Args:
        x, y: the records.
        epsilon, delta: of each part; the statement says what all of it costs.
        prior_precision: of the Gaussian prior on theta.
        noise_precision: of y given x.
        x_low, x_high: every record has x between them.
        rho_1, rho_2, gamma: slopes up to n^rho_1 and within n^rho_2 of their centre are kept; gamma
            bounds the deviation, |W|^gamma. The test passes for enough records if 1 + rho_2 >
            rho_1: the noise of the centre grows as n^(rho_1 - 1).
        public_records: whether the number of records is public.
        outside: "clip" values outside of the domain, or "refuse".
        noise: a source of noise, for experiments.

    >>> release = propose_test_sample([1.0] * 20, [1.0] * 20, epsilon=1.0, delta=1e-6,
    ...     prior_precision=1.0, noise_precision=4.0, x_low=0.9, x_high=1.0)
    >>> release.value is None, release.epsilon, release.delta
    (True, 5.0, 2e-06)
    """
    proposal = Proposal(
        epsilon, delta, prior_precision, noise_precision, x_low, x_high, rho_1, rho_2, gamma
    )
    xs, ys = _records(x, y, proposal, outside, public_records)
    source = SecureNoise() if noise is None else noise
    value = _sample(xs, ys, proposal, public_records, source)
    return Release(
        value,
        (4 if public_records else 5) * epsilon,
        2 * delta,
        "replace" if public_records else "add-remove",
    )


def _sample(
    x: Floats, y: Floats, proposal: Proposal, public_records: bool, noise: NoiseSource
) -> float | None:
    p, rate = proposal, Fraction(proposal.epsilon)
    slope = y / x

    # Propose: how many records, and which slopes are believable.
    size = x.size if public_records else x.size - p.offset + noise.laplace(rate)
    if size <= 0:
        return None
    largest = float(size) ** p.rho_1
    plausible = slope <= largest
    n_2 = int(plausible.sum()) - p.offset + noise.laplace(rate)
    if n_2 <= 1:
        return None

    # A private centre of the slopes; m moves by at most `sensitivity` if n_2 <= |V|.
    xv, yv = x[plausible], y[plausible]
    m = float((xv * yv).sum() / (xv * xv).sum()) if xv.size else 0.0
    sensitivity = largest * p.x_high**2 / ((n_2 - 1) * p.x_low**2 + p.x_high**2)
    grid = grid_for(sensitivity)
    # one more cell for rounding to the grid, and what two pairwise sums may be off (64 units)
    cells = math.ceil(sensitivity / grid) + 1 + math.ceil(2.0**-45 * largest / grid)
    centre = grid * (round(m / grid) + noise.laplace(rate / cells))
    centre = min(max(centre, 0.0), largest)

    # Test: enough records close to the centre?
    close = np.abs(slope - centre) <= float(n_2) ** p.rho_2
    n_close = int(close.sum()) - p.offset + noise.laplace(rate)
    if n_close < p.least_records(centre, float(n_2)) or not close.any():
        return None

    # Sample: the exact posterior in rational numbers, rounded to a public grid without error, so
    # that its last bits say nothing.
    xw, yw = x[close], y[close]
    beta = Fraction(p.noise_precision)
    precision = Fraction(p.prior_precision) + beta * exact_product(xw, xw)
    mean = beta * exact_product(xw, yw) / precision
    step = grid_for(1 / math.sqrt(p.prior_precision + p.noise_precision * p.x_high**2 * n_2))
    cell = Fraction(step)
    return step * noise.gaussian(mean / cell, 1 / (precision * cell * cell))


def exact_product(a: Floats, b: Floats) -> Fraction:
    """Σ aᵢbᵢ without rounding: significands in whole numbers, one sum for every exponent.

    >>> exact_product(np.array([1.0, 2.0**-60]), np.array([1.0, 1.0])) == 1 + Fraction(1, 2**60)
    True
    """
    (m, e), (n, f) = np.frexp(a), np.frexp(b)
    left, right = _pieces(m), _pieces(n)
    total, exponents = Fraction(0), e + f
    for exponent in np.unique(exponents):
        rows = np.flatnonzero(exponents == exponent)
        for some in np.array_split(rows, -(-rows.size // _EXACT)):
            whole = sum(
                int(u[some] @ v[some]) << (_BITS * (i + j))
                for i, u in enumerate(left)
                for j, v in enumerate(right)
            )
            total += whole * Fraction(2) ** (int(exponent) - 106)
    return total


def _pieces(significands: Floats) -> tuple[NDArray[np.int64], ...]:
    """Significands of 53 bits as whole numbers, in three pieces of 18 bits, the lowest first."""
    whole, mask = (2.0**53 * significands).astype(np.int64), (1 << _BITS) - 1
    return whole & mask, (whole >> _BITS) & mask, whole >> (2 * _BITS)


def _records(
    x: ArrayLike,
    y: ArrayLike,
    proposal: Proposal,
    outside: Literal["clip", "refuse"],
    public_records: bool,
) -> tuple[Floats, Floats]:
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if xs.ndim != 1 or xs.shape != ys.shape:
        raise DescriptionError(
            "x, y", (xs.shape, ys.shape), "two lists of equal length", "one pair is one record"
        )
    if xs.size == 0 and public_records:
        raise DescriptionError("x", "empty", "at least one record", "there is nothing to protect")
    one_of("outside", outside, ("clip", "refuse"))
    if outside == "refuse":
        inside = (xs >= proposal.x_low) & (xs <= proposal.x_high)
        if not np.all(inside):
            allowed = f"in [{proposal.x_low:g}, {proposal.x_high:g}]"
            why = "the guarantee is for records within these bounds"
            raise DescriptionError("x", float(xs[~inside][0]), allowed, why)
        if not np.all((ys >= 0) & np.isfinite(ys)):
            raise DescriptionError("y", "negative or not finite", "at least 0", "slopes are >= 0")
    xs = np.clip(np.where(np.isnan(xs), proposal.x_low, xs), proposal.x_low, proposal.x_high)
    ys = np.clip(np.where(np.isnan(ys), 0.0, ys), 0.0, 1e300)
    return xs, ys


@dataclass(frozen=True)
class SwapDemonstration:
    """What happens when the last line samples by SGLD instead of from the posterior."""

    records: int
    epoch: int
    claimed_epsilon: float
    claimed_delta: float
    attained_epsilon: float
    reaches_the_sample: float

    def __str__(self) -> str:
        """The epsilon that does not hold and the probability are known from below."""
        delta = printed(self.claimed_delta)
        return (
            f"claimed ({printed(self.claimed_epsilon)}, {delta}); with SGLD stopped after epoch "
            f"{self.epoch} on {self.records:,} records not ({printed_down(self.attained_epsilon)}, "
            f"{delta})-private (the sample is reached with probability at least "
            f"{printed_down(self.reaches_the_sample, 6)})"
        )


def swapped_for_sgld(
    records: int,
    *,
    epsilon: float,
    delta: float,
    prior_precision: float = 1.0,
    noise_precision: float = 4.0,
    x_low: float = 0.5,
    x_high: float = 1.0,
    rho_1: float = 1.12,
    rho_2: float = 0.24,
    gamma: float = 0.25,
    slope_exponent: float = 1.1,
    epochs: int = 200,
) -> SwapDemonstration:
    """Algorithm 1 with SGLD (step 1/A^2) as its last line is not private: Heller & Fetaya 2022,
    Claim IV.9.

    Datasets: ``records`` equal records (x_high, n^slope_exponent x_high), and the same with one
    of half the length. Nothing is simulated: the probability that all tests pass with every
    record kept is bounded by the exact tails of the noise, and the law of SGLD is known.
    The claim is for n large enough, and for the paper's algorithm: sums are exact, where doubles
    round them beyond 10^13 records. If the sample is reached with probability p, then for every
    event S p P(S) - 2 delta <= e^(eps') P'(S): eps' >= ln p + (interim epsilon at 2 delta / p).

    Args:
        records: n.
        epsilon, delta: of each part; the statement says what all of it costs.
        prior_precision: of the Gaussian prior on theta.
        noise_precision: of y given x.
        x_low, x_high: every record has x between them.
        rho_1, rho_2, gamma: slopes up to n^rho_1 and within n^rho_2 of their centre are kept; gamma
            bounds the deviation, |W|^gamma.
        slope_exponent: the slope is n to this power.
        epochs: how many of SGLD are looked at.

    >>> demo = swapped_for_sgld(10**10, epsilon=0.2, delta=1e-3)
    >>> demo.claimed_epsilon, demo.attained_epsilon > 100
    (1.0, True)
    """
    p = Proposal(
        epsilon, delta, prior_precision, noise_precision, x_low, x_high, rho_1, rho_2, gamma
    )
    slope = float(records) ** slope_exponent
    # each count is n - offset + noise; with |noise| <= swing all are in [least, most]
    swing = p.offset + math.ceil(30 / epsilon)
    missed = 3 * 2 * math.exp(-epsilon * (swing + 1)) / (1 + math.exp(-epsilon))
    least, most = records - p.offset - swing, records - p.offset + swing
    if least < 2 or float(least) ** rho_1 < slope:
        reached = 0.0
    else:
        sensitivity = float(most) ** rho_1 * x_high**2 / ((least - 1) * x_low**2 + x_high**2)
        radius = float(least) ** rho_2
        # the grid adds at most sensitivity/2^19 to the error, the cells 2^-17 to the noise scale
        room = max(radius / sensitivity - 2.0**-18, 0.0) * (1 - 2.0**-16) * epsilon
        missed += math.exp(-room)
        enough = least >= p.least_records(slope + radius, float(most))
        reached = max(0.0, 1 - missed) if enough else 0.0
    attained, epoch = 0.0, 0
    if 2 * delta < reached:
        model = (records, prior_precision, noise_precision, x_high, slope)
        bound = interim_privacy(*model, epochs, 2 * delta / reached, step_scale=1.0)
        attained = max(0.0, float(np.max(bound.exact)) + math.log(reached))
        epoch = bound.peak
    return SwapDemonstration(records, epoch, 5 * epsilon, 2 * delta, attained, reached)
