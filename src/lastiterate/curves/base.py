"""What every privacy curve can do.

A curve bounds how well anybody can tell two neighbouring datasets apart, in both orders of the
pair. Whatever its inner form (one Gaussian, an average of Gaussians, Renyi divergences, a
privacy-loss distribution), it answers the same three questions, and every answer is rounded up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod


class Curve(ABC):
    """An upper bound on the privacy loss, valid in both orders of the neighbouring pair."""

    @property
    def mu(self) -> float | None:
        """The parameter of Gaussian differential privacy, or None if this is not one Gaussian."""
        return None

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """The smallest delta this curve proves at ``epsilon`` (rounded up)."""

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 this curve proves at ``delta`` (rounded up; may be inf)."""

    @abstractmethod
    def rdp(self, order: float) -> float:
        """The Renyi divergence of ``order`` > 1 this curve proves (rounded up; may be inf)."""
