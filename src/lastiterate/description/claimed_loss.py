"""What a caller may claim about the loss of a run that has already been made.

A run stores what it knows: the L2 term of its updates and, where the loss is one of this library,
its proved constants. A claim may add to a loss of which nothing is known, or say less than is
known. A claim that contradicts the run would describe a run that nobody made.
"""

from __future__ import annotations

import math
from dataclasses import replace

from lastiterate.description.loss import Loss
from lastiterate.errors import DescriptionError

_SAME = 1e-9  # relative: quotients such as prior_precision/records that were rounded differently


def accepted_loss(claimed: Loss | None, known: Loss) -> Loss:
    """Return the loss that a guarantee of a run may rest on; raises if the claim contradicts it.

    Args:
        claimed: what the caller says about the loss; None claims nothing.
        known: what the run knows, with the L2 term of its updates.

    >>> ran = Loss.unknown(regularization=0.1)
    >>> accepted_loss(Loss(smoothness=1.0, regularization=0.1), ran).smoothness
    1.0
    >>> accepted_loss(Loss.unknown(), ran).regularization
    0.1
    """
    if claimed is None:
        return known
    if not isinstance(claimed, Loss):
        why = "regularity decides how fast a run forgets"
        raise DescriptionError("loss", claimed, "a Loss, such as Loss.unknown()", why)
    silent = claimed.kind == "unknown" and claimed.regularization == 0
    l2 = known.regularization
    if not silent and not math.isclose(claimed.regularization, l2, rel_tol=_SAME, abs_tol=0.0):
        why = "it is the L2 term of the updates that were made"
        raise DescriptionError("loss.regularization", claimed.regularization, f"{l2!r}", why)
    if not _follows(claimed, known):
        allowed = f"left out, or claim no more than the run's own loss: {known}"
        why = "a guarantee holds for the loss that was trained"
        raise DescriptionError("loss", str(claimed), allowed, why)
    # Constants count as proved only where the run itself has the loss that they are proved for.
    own = claimed.origin is not None and claimed.origin == known.origin
    origin = claimed.origin if own else None
    return replace(claimed, regularization=l2, origin=origin)


def _follows(claimed: Loss, known: Loss) -> bool:
    """Whether what is known implies the claim, or says nothing about it."""
    if "unknown" in (claimed.kind, known.kind):
        return True
    if claimed.strong_convexity > known.strong_convexity:
        return False
    if claimed.kind == "holder" or known.kind == "holder":
        alike = claimed.kind == known.kind and claimed.exponent == known.exponent
    else:
        alike = known.convex or not claimed.convex
    return alike and (claimed.smoothness or 0.0) >= (known.smoothness or 0.0)
