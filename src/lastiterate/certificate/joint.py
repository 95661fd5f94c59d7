"""One certificate for several runs on the same data.

One Gaussian each: mu^2 adds. Otherwise the privacy-loss distributions are convolved. Hidden
partitions must be independent, or the same; the nonces say which.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from lastiterate.certificate import statements
from lastiterate.certificate.certificate import FORMAT, VERSION, Certificate, sealed
from lastiterate.curves.bracket import safe_end
from lastiterate.description.failure import promised_delta
from lastiterate.errors import CertificateError, DescriptionError, UnsupportedError
from lastiterate.printing import printed
from lastiterate.verifier.balls import need_balls, precision
from lastiterate.verifier.profile import STANDARD_DELTAS, Judge, Profile
from lastiterate.verifier.refusals import ClaimError

THEOREM = {
    "key": "certificate-composition",
    "name": "Composition of certificates",
    "reference": "Dong, Roth, Su 2022: adaptive composition of trade-off functions",
    "status": "sound",
}
_LARGEST_EPSILON = 1e7  # nobody needs a certificate beyond
_ADAPTIVE = (
    "each run may use what the earlier ones released, and nothing else that depends on the data"
)


def compose(certificates: Iterable[Certificate], delta: float | None = None) -> Certificate:
    """The joint certificate of several runs on the same data, at ``delta`` (their smallest).

    Refused: different adjacency, different dataset labels, equal nonces of runs that cannot share
    a partition. A composition may be composed again.

    >>> from lastiterate import FullBatch, Loss, Training, certify
    >>> run = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> one = certify(run, Loss(smoothness=1.0), delta=1e-5, dataset="patients 2024")
    >>> both = compose([one, one])
    >>> round(both.mu / one.mu, 6), both.epsilon < 2 * one.epsilon
    (1.414214, True)
    """
    need_balls()
    runs = [run for certificate in certificates for run in certificate.parts or (certificate,)]
    if not runs:
        why = "an empty composition says nothing"
        raise DescriptionError("certificates", [], "at least one certificate", why)
    from lastiterate.certificate.verification import check

    with precision():
        profile = _joint(runs, [check(run) for run in runs])
        records = max(run.training.records for run in runs if run.training is not None)
        delta = promised_delta(min(run.delta for run in runs) if delta is None else delta, records)
        judge = profile.judge(delta)
        epsilon = _smallest_epsilon(judge, delta)
        if epsilon is None:
            raise CertificateError(f"No finite epsilon holds together at delta = {printed(delta)}.")
        curve = []
        for other in STANDARD_DELTAS:
            found = _smallest_epsilon(judge, other) if other != delta else None
            if found is not None:
                curve.append([other, found])
    return sealed(
        {
            "format": FORMAT,
            "version": VERSION,
            "library": runs[0].content["library"],
            "kind": "composition",
            "parts": [run.unsigned().content for run in runs],
            "epsilon": epsilon,
            "delta": delta,
            "mu": profile.mu,
            "curve": curve,
            **_words(runs),
        }
    )


def _smallest_epsilon(judge: Judge, delta: float) -> float | None:
    """A proved epsilon at ``delta``, the smallest up to one part in 10^7; None if none is."""
    if judge.holds(0.0, delta):
        return 0.0
    goal = math.log(delta)

    def excess(epsilon: float) -> float:
        found = judge.delta(epsilon)
        if found <= delta:
            return min(float((found / delta).log()), 0.0) if found > 0 else -50.0
        return max(float(found.log()) - goal, 1e-300)

    low, high = 0.0, 1.0
    while not judge.holds(high, delta):
        if high > _LARGEST_EPSILON:
            return None
        low, high = high, 2 * high
    return safe_end(excess, safe=high, unsafe=low, tolerance=1e-7)


def _words(runs: Sequence[Certificate]) -> dict[str, Any]:
    """What a composition says in words, all of it taken from its parts."""
    together = {text: None for run in runs for text in run.assumptions}
    return {
        "dataset": runs[0].dataset,
        "adjacency": runs[0].adjacency,
        "release": "; ".join(f"run {k + 1}: {run.release}" for k, run in enumerate(runs)),
        "theorem": dict(THEOREM),
        "assumptions": [*together, _ADAPTIVE],
        "not_covered": statements.not_covered(),
    }


def composed_profile(certificate: Certificate, profiles: Sequence[Profile]) -> Profile:
    """The verifier's side: the words follow from the parts, the profile from theirs."""
    runs = certificate.parts
    if not runs:
        raise ClaimError("The composition has no parts.")
    for field, value in _words(runs).items():
        if certificate.content[field] != value:
            raise ClaimError(f"The field {field!r} does not follow from the composed certificates.")
    return _joint(runs, profiles)


def _joint(runs: Sequence[Certificate], profiles: Sequence[Profile]) -> Profile:
    for field in ("adjacency", "dataset"):
        values = sorted({str(run.content[field]) for run in runs})
        if len(values) > 1:
            raise UnsupportedError(
                f"Certificates of different {field} cannot be composed: {', '.join(values)}. "
                "They speak about different neighbours or different people; certify the runs "
                "alike, or give the same label if the data is the same."
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


def _shareable(
    runs: Sequence[Certificate], profiles: Sequence[Profile], group: Sequence[int]
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
