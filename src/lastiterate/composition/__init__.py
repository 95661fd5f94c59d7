"""How several (epsilon, delta) guarantees on the same data add up.

``optimal`` (equal rounds, exact) and ``heterogeneous`` (unequal rounds, a certified bracket) are
what to use; the closed forms stand beside them for comparison.
"""

from lastiterate.composition.closed_forms import (
    KairouzForms,
    Pair,
    advanced,
    basic,
    chernoff,
    kairouz,
    kairouz_forms,
    kairouz_heterogeneous,
    log_chernoff,
    pure_composition,
    pure_kl,
)
from lastiterate.composition.heterogeneous import Bracket, heterogeneous
from lastiterate.composition.homogeneous import OptimalComposition, optimal

__all__ = [
    "Bracket",
    "KairouzForms",
    "OptimalComposition",
    "Pair",
    "advanced",
    "basic",
    "chernoff",
    "heterogeneous",
    "kairouz",
    "kairouz_forms",
    "kairouz_heterogeneous",
    "log_chernoff",
    "optimal",
    "pure_composition",
    "pure_kl",
]
