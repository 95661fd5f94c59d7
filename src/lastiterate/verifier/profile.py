"""What a check proves: a profile, and how profiles compose.

A profile is a law of mu^2 (one Gaussian, or an average of Gaussians over something hidden), a
list of sampled steps, and a probability of failure. It answers one question: an upper bound on
delta at a given epsilon, in ball arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from lastiterate.errors import CertificateError
from lastiterate.kernel.balls import KernelError
from lastiterate.kernel.privacy_loss import Pair, Total, gaussian, labelled
from lastiterate.verifier.balls import Ball, above, arb, mixture_delta, precision
from lastiterate.verifier.thinned import Thinned

STANDARD_DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10)  # of every certificate's curve
_MOST_PRODUCTS = 4096  # of two averages that are multiplied out exactly
_LEVELS = 48  # different mus of an average that becomes a loss distribution


class Second(Protocol):
    """Another bound of the same release."""

    def delta(self, epsilon: float, sufficient: float = 0.0) -> Ball:
        """An upper bound on delta at this epsilon; in one go, one below ``sufficient`` will do."""


@dataclass(frozen=True, eq=False)
class Profile:
    """delta(eps) is at most that of: a label with ``weights``, given it mu^2 = ``squares``; then
    all ``steps``; or a failure. ``by_position``: the squares belong to the positions of an epoch,
    in order, all equally likely. ``coupled``: a second bound of the same release, by coupling, by
    exchange or of a law that is balanced; the smaller one counts. Only the first one is composed.
    """

    squares: tuple[Ball, ...]
    weights: tuple[Ball, ...]
    steps: tuple[tuple[Pair, int], ...] = ()
    failure: Ball | None = None
    by_position: bool = False
    coupled: Second | None = None

    @classmethod
    def gaussian(cls, square: Ball) -> Profile:
        """One Gaussian."""
        return cls((square,), (arb(1),))

    @classmethod
    def average(cls, squares: Sequence[Ball]) -> Profile:
        """All positions of an epoch, equally likely and hidden."""
        share = arb(1) / len(squares)
        return cls(tuple(squares), (share,) * len(squares), by_position=True)

    @classmethod
    def sampled(cls, steps: Sequence[tuple[Pair, int]], failure: Ball | None = None) -> Profile:
        """Sampled steps alone."""
        return cls((arb(0),), (arb(1),), tuple(steps), failure)

    @property
    def mu(self) -> float | None:
        """The one mu, rounded up, if this is one Gaussian."""
        if self.steps or self.failure is not None or len(self.squares) > 1 or self.coupled:
            return None
        return math.nextafter(float(above(self.squares[0].sqrt())), math.inf)

    @property
    def worst(self) -> float | None:
        """mu, rounded up, of one Gaussian that is no less private than this; None if none is known.

        Given what is hidden the release is one Gaussian, and the largest is no less than each.
        """
        if self.steps or self.failure is not None:
            return None
        roots = [float(above(square.sqrt())) for square in self.squares]
        return math.nextafter(max(roots), math.inf)

    def then(self, other: Profile) -> Profile:
        """Both releases, when their hidden randomness is independent."""
        steps = self.steps + other.steps
        failure = _added(self.failure, other.failure)
        if len(self.squares) * len(other.squares) <= _MOST_PRODUCTS:
            return Profile(
                tuple(a + b for a in self.squares for b in other.squares),
                tuple(a * b for a in self.weights for b in other.weights),
                steps,
                failure,
            )
        few, many = sorted((self, other), key=lambda profile: len(profile.squares))
        return Profile(many.squares, many.weights, (*steps, (few.labelled(), 1)), failure)

    def beside(self, other: Profile) -> Profile:
        """Both releases, when they share the hidden position: mu_j^2 adds for each j."""
        squares = tuple(a + b for a, b in zip(self.squares, other.squares, strict=True))
        return replace(self, squares=squares, coupled=None)

    def labelled(self) -> Pair:
        """The law of mu as one pair with a revealed label, on a few levels, rounded up."""
        ranked = sorted(
            zip(self.squares, self.weights, strict=True), key=lambda pair: float(above(pair[0]))
        )
        mus = [math.nextafter(float(above(square.sqrt())), math.inf) for square, _ in ranked]
        least, most = mus[0], mus[-1]
        width = max((most - least) / _LEVELS, 1e-12 * most)
        levels: dict[float, Ball] = {}
        for mu, (_, weight) in zip(mus, ranked, strict=True):
            level = min(least + math.ceil((mu - least) / width) * width, most) if width else mu
            levels[max(level, mu)] = levels.get(max(level, mu), arb(0)) + weight
        shares = [math.nextafter(float(above(weight)), math.inf) for weight in levels.values()]
        return labelled(zip(levels, shares, strict=True))

    def judge(self, delta: float) -> Judge:
        """Something that answers questions down to this delta, and to the standard ones."""
        return Judge(self, min(delta, STANDARD_DELTAS[-1]))


def _added(a: Ball | None, b: Ball | None) -> Ball | None:
    if a is None or b is None:
        return a if b is None else b
    return a + b


@dataclass(frozen=True, eq=False)
class Judge:
    """A profile with its convolution done once."""

    profile: Profile
    smallest_delta: float

    @cached_property
    def _total(self) -> Total:
        steps = list(self.profile.steps)
        if len(self.profile.squares) > 1:
            steps.append((self.profile.labelled(), 1))
        elif self.profile.squares[0] != 0:
            mu = math.nextafter(float(above(self.profile.squares[0].sqrt())), math.inf)
            steps.append((gaussian(mu), 1))
        try:
            return Total(steps, self.smallest_delta)
        except KernelError as error:
            raise CertificateError(str(error)) from None

    @cached_property
    def _thinned(self) -> Thinned | None:
        if self.profile.by_position:  # sealed to the last digit: nothing but the whole will do
            return None
        return Thinned.of(self.profile.squares, self.profile.weights)

    def delta(self, epsilon: float, sufficient: float = 0.0) -> Ball:
        """An upper bound on delta(epsilon), an exact number; one below ``sufficient`` will do."""
        point = arb(epsilon)
        if not all(square.is_finite() for square in self.profile.squares):
            return arb(1)
        if self.profile.steps:
            value = self._or_failed(self._total.delta(point))
        else:
            value = arb(1)
            if sufficient and self._thinned is not None:
                value = self._or_failed(self._thinned.delta(point))
        if self.profile.coupled is not None and not value <= sufficient:
            value = value.min(arb(self.profile.coupled.delta(epsilon, sufficient)))
        if not self.profile.steps and not value <= sufficient:
            mixed = mixture_delta(self.profile.squares, self.profile.weights, point)
            value = value.min(self._or_failed(mixed))
        return value

    def _or_failed(self, value: Ball) -> Ball:
        if self.profile.failure is None:
            return value
        with precision():
            return above(value + self.profile.failure).min(arb(1))

    def asked(self, delta: float) -> float:
        """What to prove of a claim at ``delta`` that is to hold on other machines too.

        Cells, and the products of couplings, are found in floats, whose last digit differs between
        machines: room is left for it.
        """
        return delta * (1 - 1e-6) if self.profile.steps or self.profile.coupled else delta

    def holds(self, epsilon: float, delta: float) -> bool:
        """Whether (epsilon, delta) is proved."""
        return bool(self.delta(epsilon, sufficient=delta) <= delta)
