"""Claims about hidden states as printed in the papers, for study only.

What was refuted is here so that its counterexample can be checked; nothing here rounds, and no
guarantee may use it.
"""

from __future__ import annotations


def output_perturbation_coefficient(diameter: float, noise: float) -> float:
    """Chien & Li 2025, Figure 1: R_alpha <= alpha·D²/(2ν²). Refuted: the gradient step moves before
    the noise.

    >>> output_perturbation_coefficient(1.0, 1.0)
    0.5
    """
    return diameter**2 / (2 * noise**2)


def clipped_softmax_contraction(step_size: float, regularization: float) -> float:
    """Ye & Shokri 2022, Proposition F.2: clipped softmax contracts by 1 − ηλ. Refuted for three or
    more classes.
    """
    return 1 - step_size * regularization
