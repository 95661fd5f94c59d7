"""Certificates of forgetting with a ledger: their words, and their one number, budget/noise.

**Statement.** Given its batches and noise, what was released is a Gaussian of standard deviation
``noise`` around a point that is at most ``budget`` from where the run without the deleted records
ends, in both worlds on the same grid: mu = budget/noise (`lastiterate.unlearning.ledger`).
"""

from __future__ import annotations

import math
from typing import Any

from lastiterate.verifier.balls import arb
from lastiterate.verifier.document import Document
from lastiterate.verifier.profile import Profile
from lastiterate.verifier.refusals import ClaimError

_LARGEST_SCALE = 2.0**42  # what the sampler draws at

WORDS: dict[str, Any] = {
    "theorem": {
        "key": "ledger",
        "name": "Perturbation within the budget of a ledger",
        "reference": "this library, docs/how-to/erasing.md",
        "status": "sound",
    },
    "adjacency": "zero-out",
    "release": (
        "the perturbed model after the deletion, compared with the same run and perturbation "
        "without the deleted records from the start"
    ),
    "assumptions": [
        "budget and noise were fixed before the run [whoever trained it]",
        "the run is within the budget, or was repeated without the records under its own batches "
        "and noise [the trainer]",
        "the noise is Gaussian and unpredictable [the noise source]",
        "nobody saw how long the deletion took [whoever runs it]",
    ],
    "not_covered": [
        "models from before the deletion, and requests that were made because of one",
        "what the run tells about records that stay: see its own certificate",
        "copies of the data, of the ledger, logs and backups",
    ],
}


def unlearned_profile(certificate: Document) -> Profile:
    """What a certificate of forgetting proves, once its words and numbers were checked."""
    content = certificate.content
    for field, value in WORDS.items():
        if content[field] != value:
            raise ClaimError(f"The field {field!r} of the certificate does not fit its kind.")
    if "exposure" in content:
        raise ClaimError("A certificate of forgetting is for the deleted, and no other exposure.")
    budget, noise, grid = (float(content[name]) for name in ("budget", "noise", "grid"))
    if not (math.isfinite(budget) and budget >= 0 and math.isfinite(noise) and noise > 0):
        raise ClaimError("The budget or the noise of the certificate is none.")
    if not (grid > 0 and math.frexp(grid)[0] == 0.5 and noise / grid <= _LARGEST_SCALE):
        raise ClaimError("Nobody draws this noise on this grid.")
    if not 1 <= content["deleted"] <= content["records"]:
        raise ClaimError("As many records as the certificate says cannot have been deleted.")
    return Profile.gaussian((arb(budget) / arb(noise)) ** 2)
