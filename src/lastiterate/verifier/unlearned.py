"""Certificates of forgetting with a ledger: their words, and their one number.

**Statement.** Given batches and noise of the run, and the models before it, each of the counted
models is a Gaussian of standard deviation ``noise`` around a point that is at most ``budget`` from
where the run without the deleted records ends, in both worlds on the same grid: together
mu = √models·budget/noise (`lastiterate.unlearning.ledger`).
"""

from __future__ import annotations

import math
from typing import Any

from lastiterate.verifier.balls import arb
from lastiterate.verifier.document import Document
from lastiterate.verifier.profile import Profile
from lastiterate.verifier.refusals import ClaimError

_LARGEST_SCALE = 2.0**42  # what the sampler draws at
_MOST_MODELS = 2**53

WORDS: dict[str, Any] = {
    "theorem": {
        "key": "ledger",
        "name": "Perturbation within the budget of a ledger",
        "reference": "this library, docs/how-to/erasing.md",
        "status": "sound",
    },
    "adjacency": "zero-out",
    "release": (
        "the perturbed models after each deletion, as many as are counted, and whatever is made of "
        "them and the remaining records; compared with the same runs and perturbations, each "
        "without all records that were deleted up to then from the start"
    ),
    "assumptions": [
        "budget and noise were fixed before the run [whoever trained it]",
        "the run is within the budget, or was repeated without the records under its own batches "
        "and noise [the trainer]",
        "the noise is Gaussian and unpredictable [the noise source]",
        "how long the deletion took does not tell whether the run was repeated [whoever runs it]",
    ],
    "not_covered": [
        "models of this run that are not counted, such as those from before the first deletion, "
        "and requests that were made because of one",
        "what a counted model tells of records that were deleted after it: for them it is one from "
        "before their deletion",
        "records that stay: the run's own certificate is about its own model, not about this one",
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
    if not 1 <= content["models"] <= _MOST_MODELS:
        raise ClaimError("As many models as the certificate counts were not released.")
    return Profile.gaussian(content["models"] * (arb(budget) / arb(noise)) ** 2)
