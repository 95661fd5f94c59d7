"""Several runs on the same data: what their certificates prove together.

One Gaussian each: mu^2 adds. Otherwise the privacy-loss distributions are convolved. Hidden
partitions must be independent, or the same; the nonces say which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from lastiterate.errors import UnsupportedError
from lastiterate.verifier.document import Document
from lastiterate.verifier.profile import Profile
from lastiterate.verifier.refusals import ClaimError

THEOREM = {
    "key": "certificate-composition",
    "name": "Composition of certificates",
    "reference": "Dong, Roth, Su 2022: adaptive composition of trade-off functions",
    "status": "sound",
}
_ADAPTIVE = (
    "each run may use what the earlier ones released, and nothing else that depends on the data"
)
# Costs that earlier releases chose need a bound declared in advance (`CertificateChain`): a sum
# that is read off at the end bounds nothing.
_FIXED = "how many runs there are and what each costs was settled before any of them was released"


def composed_words(runs: Sequence[Document]) -> dict[str, Any]:
    """What a composition says in words, all of it taken from its parts."""
    together = {text: None for run in runs for text in run.assumptions}
    outside = {text: None for run in runs for text in run.not_covered}
    whom = {} if runs[0].unit.default else {"unit": runs[0].unit.to_dict()}
    return {
        **whom,
        "dataset": runs[0].dataset,
        "adjacency": runs[0].adjacency,
        "release": "; ".join(f"run {k + 1}: {run.release}" for k, run in enumerate(runs)),
        "theorem": dict(THEOREM),
        "assumptions": [*together, _ADAPTIVE, _FIXED],
        "not_covered": list(outside),
    }


def composed_profile(certificate: Document, profiles: Sequence[Profile]) -> Profile:
    """The verifier's side: the words follow from the parts, the profile from theirs."""
    runs = certificate.parts
    if not runs:
        raise ClaimError("The composition has no parts.")
    expected: dict[str, Any] = {"unit": None, "link": None, **composed_words(runs)}
    for field, value in expected.items():
        if certificate.content.get(field) != value:
            raise ClaimError(f"The field {field!r} does not follow from the composed certificates.")
    return joint_profile(runs, profiles)


def joint_profile(runs: Sequence[Document], profiles: Sequence[Profile]) -> Profile:
    """What several runs on the same data release together."""
    if any(run.link is not None for run in runs):
        raise UnsupportedError(
            "Links of a chain are not composed: what a later one costs may have been chosen by "
            "what an earlier one released, and then their sum bounds nothing. The chain's "
            "lifetime budget does: CertificateChain(folder).verify()."
        )
    for field in ("adjacency", "dataset", "unit"):
        values = {getattr(run, field) for run in runs}  # as they are: texts round
        if len(values) > 1:
            told = ", ".join(sorted(map(repr if field == "unit" else str, values)))
            raise UnsupportedError(
                f"Certificates of different {field} cannot be composed: {told}. "
                "They speak about different neighbours or different people; certify the runs "
                "alike, or give the same label if the data is the same."
            )
    if len(runs) > 1 and any(map(_went_on_without, runs)):
        raise UnsupportedError(
            f"A certificate for {runs[0].unit} counts the steps without them, which holds "
            "towards somebody who saw no model from before, and only if no request was made "
            "because of one: it is not composed with that of another model. Models of one run are "
            "certified together: certify(..., releases=). For several runs certify each without "
            "last_step=, which counts every use of the records."
        )
    groups: dict[str, list[int]] = {}
    for index, run in enumerate(runs):
        groups.setdefault(run.nonce or f"run {index}", []).append(index)
    joint = [
        reduce(Profile.beside, (_shareable(runs, profiles, group)[i] for i in group))
        if len(group) > 1
        else profiles[group[0]]
        for group in groups.values()
    ]
    return replace(reduce(Profile.then, joint), coupled=None)


def _went_on_without(run: Document) -> bool:
    """Whether the run took steps after those whom the certificate speaks of had left."""
    left = run.unit.last_step
    return left is not None and run.training is not None and left < run.training.steps


def _shareable(
    runs: Sequence[Document], profiles: Sequence[Profile], group: Sequence[int]
) -> Sequence[Profile]:
    """Runs with one nonce share one partition: that is covered for shuffled runs alone."""
    shapes = set()
    for index in group:
        training = runs[index].training
        assert training is not None
        shapes.add((training.records, training.batches))
        if training.batches.name != "shuffled" or not profiles[index].by_position:
            raise UnsupportedError(
                f"Two certificates share a nonce, but {training.batches.name} batches that two "
                "runs share are not covered: only one partition, drawn once (Shuffled), is. Draw "
                "fresh batches for each run and certify each with its own nonce."
            )
    if len(shapes) > 1:
        raise UnsupportedError(
            "Two certificates share a nonce but not the number of records and the batch size, so "
            "they cannot share a partition. Certify each run with its own nonce."
        )
    return profiles
