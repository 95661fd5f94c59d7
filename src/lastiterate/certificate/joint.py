"""One certificate for several runs on the same data."""

from __future__ import annotations

import math
from collections.abc import Iterable

from lastiterate._internal.formatting import printed
from lastiterate.certificate.certificate import Certificate
from lastiterate.curves.bracket import safe_end
from lastiterate.description.fields import checked_delta
from lastiterate.errors import CertificateError, DescriptionError
from lastiterate.verifier.balls import need_balls, precision
from lastiterate.verifier.document import FORMAT, VERSION, Document
from lastiterate.verifier.joint import composed_words, joint_profile
from lastiterate.verifier.profile import STANDARD_DELTAS, Judge
from lastiterate.verifier.verification import recomputed

_LARGEST_EPSILON = 1e7  # nobody needs a certificate beyond
_SMALLEST_EPSILON = 1e-12  # nor one that is nearer to the truth below


def compose(certificates: Iterable[Document], delta: float | None = None) -> Certificate:
    """The joint certificate of several runs on the same data, at ``delta`` (their smallest).

    Every claim of every part is recomputed, as `verify` does. Refused: different adjacency,
    different dataset labels, equal nonces of runs that cannot share a partition, and what was
    certified for somebody who left a run that went on: clean steps hide nothing from whoever saw
    another model. A composition may be composed again.

    A run may use what earlier ones released (adaptive composition). How many runs there are and
    what each costs must not depend on it: for that a bound is declared in advance and kept by
    refusing (`CertificateChain`, Lemma F).

    >>> from lastiterate import FullBatch, Loss, Training, certify
    >>> run = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> one = certify(run, Loss(smoothness=1.0), delta=1e-5, dataset="patients 2024")
    >>> both = compose([one, one])
    >>> round(both.mu / one.mu, 6), both.epsilon < 2 * one.epsilon
    (1.414214, True)
    """
    need_balls()
    given = list(certificates)
    for each in given:
        if not isinstance(each, Document):
            why = "Certificate.load(path) reads a file"
            raise DescriptionError("certificates", each, "a list of certificates", why)
    runs = [run for certificate in given for run in certificate.parts or (certificate,)]
    if not runs:
        why = "an empty composition says nothing"
        raise DescriptionError("certificates", [], "at least one certificate", why)
    with precision():
        profile = joint_profile(runs, [recomputed(run) for run in runs])
        records = max(run.training.records for run in runs if run.training is not None)
        delta = checked_delta(min(run.delta for run in runs) if delta is None else delta, records)
        judge = profile.judge(delta)
        epsilon = smallest_epsilon(judge, delta)
        if epsilon is None:
            raise CertificateError(f"No finite epsilon holds together at delta = {printed(delta)}.")
        curve = []
        for other in STANDARD_DELTAS:
            found = smallest_epsilon(judge, other) if other != delta else None
            if found is not None:
                curve.append([other, found])
    return Certificate.sealed(
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
            **composed_words(runs),
        }
    )


def smallest_epsilon(judge: Judge, delta: float) -> float | None:
    """A proved epsilon at ``delta``, the smallest up to one part in 10^7; None if none is."""
    delta = judge.asked(delta)
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
    while low < high / 2 and high > _SMALLEST_EPSILON:  # the tolerance is relative to the bracket
        low, high = (low, high / 2) if judge.holds(high / 2, delta) else (high / 2, high)
    return safe_end(excess, safe=high, unsafe=low, tolerance=1e-7)
