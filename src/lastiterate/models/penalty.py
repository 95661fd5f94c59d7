"""`penalty=` as in scikit-learn: its L2 term is part of the loss, its L1 term a proximal step."""

from __future__ import annotations

from lastiterate.description import L1
from lastiterate.description.fields import number, one_of
from lastiterate.errors import DescriptionError

_WHY = "it is how strongly models are pulled to zero"


def penalised(
    penalty: str, regularization: float | None, l1_ratio: float | None, *, spared: int
) -> tuple[float | None, L1 | None]:
    """The L2 coefficient (None: to be chosen) and the proximal step of the rest, if there is any.

    ρ = l1_ratio: regularization·(ρ·Σ|θ_i| + (1 − ρ)/2·‖θ‖²). The L1 term leaves out so many last
    rows, the L2 term does not.

    >>> penalised("elasticnet", 0.5, 0.25, spared=1)
    (0.375, L1(weight=0.125, spared=1))
    >>> penalised("l2", None, None, spared=1)
    (None, None)
    """
    one_of("penalty", penalty, ("l2", "l1", "elasticnet"), _WHY)
    if penalty == "elasticnet":
        ratio = number("l1_ratio", l1_ratio, at_least=0, at_most=1)
    else:
        if l1_ratio is not None:
            why = f"penalty={penalty!r} has one term"
            raise DescriptionError("l1_ratio", l1_ratio, "absent unless 'elasticnet'", why)
        ratio = 1.0 if penalty == "l1" else 0.0
    if penalty == "l2":
        return regularization, None
    if regularization is None:
        why = "it decides which coefficients are zero, and must not be found on the private data"
        raise DescriptionError("regularization", None, f"given with penalty={penalty!r}", why)
    whole = number("regularization", regularization, _WHY, at_least=0.0)
    return whole * (1 - ratio), L1(whole * ratio, spared)
