"""The sentences of a certificate, derived from the description alone.

The verifier derives them again: a certificate whose words were softened does not verify.
"""

from __future__ import annotations

from lastiterate.bounds import BY_KEY
from lastiterate.bounds.ledger import Bound, Run, Theorem
from lastiterate.curves.gaussian import Gaussian
from lastiterate.description import Loss, TailAverage, Training
from lastiterate.errors import CertificateError
from lastiterate.guarantee import NOT_COVERED, Guarantee, vouchers


def named_theorem(key: str) -> Theorem:
    """The ledger's entry of this key."""
    if key not in BY_KEY:
        raise CertificateError(f"The ledger has no theorem with the key {key!r}.")
    return BY_KEY[key]


def assumptions(
    training: Training, loss: Loss, releases: tuple[int, ...], theorem: str
) -> list[str]:
    """What the numbers rest on, and who vouches for it."""
    run = Run(training, loss, releases)
    bound = Bound(named_theorem(theorem), Gaussian(0.0))
    return [str(each) for each in Guarantee(run, (bound,), lambda delta: 0.0).assumptions]


def who_vouches(training: Training, loss: Loss, theorem: str) -> dict[str, str]:
    """The same for machines: one word each for regularity, gradient norm and sensitivity."""
    return vouchers(training, loss, hidden_state=named_theorem(theorem).hidden_state)


def not_covered() -> list[str]:
    """What no certificate says anything about."""
    return list(NOT_COVERED)


def release_model(training: Training, releases: tuple[int, ...]) -> str:
    """What may leave the building."""
    parts = [f"the iterate after step {step}" for step in releases]
    if isinstance(training.release, TailAverage):
        parts.append(f"the average of the last {training.release.window} iterates, or all of them")
    else:
        parts.append("the last iterate")
    return " and ".join(parts) + " released, every other iterate kept secret"
