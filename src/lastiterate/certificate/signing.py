"""Sealing: from a description to a certificate that an independent check has already accepted.

The accountant proposes the numbers; the verifier recomputes them in ball arithmetic before they
are written down. Where its value is a little larger (it rounds coarser), the larger one is sealed.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lastiterate._internal.formatting import printed
from lastiterate._internal.progress import Working
from lastiterate.accounting import account
from lastiterate.accounting.guarantee import Guarantee
from lastiterate.certificate.certificate import Certificate
from lastiterate.curves.bracket import halved
from lastiterate.description import Loss, PrivacyUnit, TailAverage, Training
from lastiterate.description.fields import checked_delta
from lastiterate.errors import (
    AssumptionError,
    CertificateError,
    DescriptionError,
    UnsupportedError,
)
from lastiterate.theory import Bound, Proof, Run
from lastiterate.theory.coupling import STOPPED_COUPLING
from lastiterate.verifier.balls import need_balls, precision
from lastiterate.verifier.checks import CHECKS
from lastiterate.verifier.coupled import WIDEST
from lastiterate.verifier.document import FORMAT, VERSION, Head, Link, arrays, parameters_hash
from lastiterate.verifier.profile import STANDARD_DELTAS, Judge
from lastiterate.verifier.steps import Case
from lastiterate.verifier.witness import pack, unpack
from lastiterate.verifier.words import good_nonce, words


def certify(
    training: Training,
    loss: Loss,
    delta: float,
    *,
    dataset: str = "",
    parameters: Any = None,
    releases: Iterable[int] = (),
    unit: PrivacyUnit | None = None,
    seeded_noise: bool = False,
    nonce: str | None = None,
    follows: Head | None = None,
    started: str | None = None,
) -> Certificate:
    """A certificate of the run's privacy at ``delta``, checked before it is returned.

    Sealed is the tightest bound that has an independent check. All theorems of the ledger that can
    be tightest have one; that of the coupling bound covers runs whose steps are all alike.

    Args:
        training: the run.
        loss: what is known about the loss; "estimated" regularity is refused.
        delta: the probability with which the epsilon may fail.
        dataset: a label of the data. Certificates compose only under equal labels. Never derive it
            from the content of the data: that would leak.
        parameters: what the run released (arrays, or a list or dict of them); the certificate then
            holds their hash and `verify` can tell whether a model is the certified one. Only for
            descriptions that say what the machine rounded, those that a trainer returns, and only
            numbers that such a run can release: no more than its coordinates, on its grid.
        releases: steps after which a checkpoint was released as well.
        unit: whom it is for, as in `account`; whoever loads the data vouches for it.
        seeded_noise: whether the noise came from a seeded generator; that is refused.
        nonce: names the hidden partition. Give the same nonce to runs that share one (checkpoints,
            warm starts, a shared loader seed); otherwise leave it out and a fresh one is drawn.
        follows: of a run that goes on from a released model: ``CertificateChain.head``, or the
            ``head`` of that model's certificate. `CertificateChain.append` gives both of these.
        started: the hash of the model it started from, `Descent.started`.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=5, steps=200, step_size=0.1, noise=1.0, gradient_norm=2.0,
    ...                batches=FullBatch(), adjacency="replace")
    >>> certificate = certify(run, Loss(smoothness=1.0, strong_convexity=1.0), delta=1e-5)
    >>> print(f"{certificate.epsilon:.3f} by {certificate.theorem}")
    1.336 by Shifted interpolation (Bok, Su & Altschuler 2024)
    """
    need_balls()
    guarantee = account(training, loss, releases=releases, unit=unit)
    person = guarantee.unit
    delta = checked_delta(delta, training.records)
    if not isinstance(dataset, str):
        why = "it is a label that a person gives, compared letter by letter"
        raise DescriptionError("dataset", dataset, "a text", why)
    _refuse(loss, seeded_noise)
    _refuse_other_start(follows, started, parameters)
    if parameters is not None:
        _refuse_unrounded(training)
        if isinstance(parameters, Computed):
            parameters = parameters.values
        else:
            _refuse_others(training, parameters, len(guarantee.run.releases))
    with Working("certification"):
        bound = _best(guarantee, delta)
        proof = bound.at(delta)
        witness = pack(proof.witness)
        checkpoints = guarantee.run.releases[:-1]
        with precision():
            case = Case(training, loss, checkpoints, person)
            profile = CHECKS[bound.theorem.key](case, unpack(witness))
            judge = profile.judge(delta)
            epsilon = _confirmed_epsilon(judge, proof, delta)
            points = _points(judge, proof, delta)
            worst = profile.worst
    if follows is not None and worst is None:
        raise UnsupportedError(
            f"{bound.theorem.name} is no single Gaussian, so no bound holds for people who are "
            "used in several links of a chain that are chosen on the way. Use full, cyclic, "
            "shuffled or reshuffled batches."
        )
    return Certificate.sealed(
        {
            "format": FORMAT,
            "version": VERSION,
            "library": library(),
            "kind": "run",
            "dataset": dataset,
            "training": pack(training.to_dict()),
            "loss": {**pack(loss.to_dict()), "provenance": loss.provenance},
            "releases": list(checkpoints),
            **({} if person.default else {"unit": pack(person.to_dict())}),
            **({} if follows is None or worst is None else _link(follows, worst)),
            **words(training, loss, checkpoints, bound.theorem.key, person, follows),
            "witness": witness,
            "epsilon": epsilon,
            "delta": delta,
            "mu": profile.mu,
            "curve": points,
            "nonce": _nonce(training, nonce),
            "parameters": None if parameters is None else parameters_hash(parameters),
        }
    )


def _link(follows: Head, worst: float) -> dict[str, Any]:
    return {"link": Link(follows.sha256, follows.parameters, worst)._asdict()}


@dataclass(frozen=True)
class Computed:
    """A model that a trainer of this library computed from what its run released."""

    values: Any


def library() -> str:
    """The version that writes."""
    from lastiterate import __version__

    return __version__


def _refuse(loss: Loss, seeded_noise: bool) -> None:
    if seeded_noise:
        raise AssumptionError(
            "A run with seeded noise cannot be certified: whoever learns or guesses the seed can "
            "subtract the noise. Train again with the default, unpredictable noise."
        )
    if loss.provenance == "estimated":
        raise AssumptionError(
            "The regularity of the loss is only estimated, and a measurement on some points bounds "
            "nothing on the others: it cannot be certified. Prove or declare the constants, or use "
            "Loss.unknown(), which assumes none."
        )


def _refuse_other_start(follows: Head | None, started: str | None, parameters: Any) -> None:
    """A link starts from the very model that the certificate before it is bound to."""
    if follows is not None and not isinstance(follows, Head):
        why = "a link names what it follows"
        found = type(follows).__name__
        raise DescriptionError("follows", found, "the head of a chain or a certificate", why)
    before = None if follows is None else follows.parameters
    if started != before:
        raise AssumptionError(
            f"The run started from {started or 'no released model'}, but what it follows released "
            f"{before or 'none'}: whoever was used for that model pays for this one too, and no "
            "certificate would say so. Train with noisy_descent(..., continue_from=chain), and "
            "certify with follows=chain.head."
        )
    if follows is not None and parameters is None:
        raise AssumptionError(
            "A link of a chain is bound to the model that it releases, from which the next one "
            "starts: give parameters=."
        )


def _refuse_unrounded(training: Training) -> None:
    """A trained model has what floats rounded in it: its certificate must count that."""
    if training.of_real_numbers:
        raise AssumptionError(
            f"arithmetic = {training.arithmetic!r} speaks of real numbers, and parameters= is a "
            "model that a machine computed: what its sums round, and the low bits of plain doubles "
            "plus noise, tell of single records. Certify the description that the trainer returned "
            "(noisy_descent(...).training), or leave parameters out to certify the mathematics."
        )


def _refuse_others(training: Training, parameters: Any, releases: int) -> None:
    """Numbers that no run of this description releases were computed by something else.

    An average is off the grid by right, and so is what momentum makes of the noisy updates.
    """
    told, release = training.arithmetic, training.release
    if isinstance(told, str) or not told.grid:
        return
    window = release.window if isinstance(release, TailAverage) else 1
    most = told.coordinates * (releases + window - 1)
    many = sum(int(np.count_nonzero(each)) for each in arrays(parameters))
    if many > most:
        raise AssumptionError(
            f"parameters= holds {many:,} numbers that are not 0, and the description says that "
            f"{most:,} are rounded and get noise (arithmetic.coordinates): the rest was not "
            "accounted. Certify the description that the trainer returned, and what it released."
        )
    if release != "last" or training.momentum:
        return
    counts = (each / told.grid for each in arrays(parameters))
    if not all((count == np.rint(count)).all() for count in counts):
        raise AssumptionError(
            f"parameters= holds numbers that are no multiples of {told.grid!r}, the grid that the "
            "description says they live on: that run did not release them, and their low bits may "
            "tell of single records. Certify what the trainer returned "
            "(noisy_descent(...).parameters); what is computed from it needs no certificate."
        )


def checkable(run: Run, bound: Bound) -> bool:
    """Whether the verifier can follow: the coupling bound only where all steps are alike."""
    if bound.theorem.key != STOPPED_COUPLING.key:
        return bound.theorem.key in CHECKS
    c, s, nu = run.steps.one
    return run.steps.constant and c <= 1 and run.training.diameter + s < WIDEST * nu / 2


def _best(guarantee: Guarantee, delta: float) -> Bound:
    able = [bound for bound in guarantee.bounds if checkable(guarantee.run, bound)]
    if not able:
        names = ", ".join(bound.theorem.name for bound in guarantee.bounds)
        raise UnsupportedError(f"No independent check exists yet for {names}: use `account`.")
    best = min(able, key=lambda bound: bound.epsilon(delta))
    if not math.isfinite(best.epsilon(delta)):
        raise AssumptionError(
            f"There is nothing to certify: no finite epsilon holds at delta = {printed(delta)}. "
            f"A step "
            "that uses a record needs noise; add some, or ask for a larger delta."
        )
    return best


def _confirmed_epsilon(judge: Judge, proof: Proof, delta: float) -> float:
    proposed = proof.curve.epsilon(delta)
    found = _confirmed(judge, proposed, delta, proof.gap)
    if found is None:
        raise CertificateError(
            f"The independent check could not confirm epsilon = {printed(proposed, 6)} at delta "
            f"= {printed(delta)}, not even with {proof.gap:.0%} more. Nothing was sealed; please "
            "report this description."
        )
    return found


def _points(judge: Judge, proof: Proof, delta: float) -> list[list[float]]:
    points = []
    for other in STANDARD_DELTAS:
        proposed = proof.curve.epsilon(other) if other != delta else math.inf
        if math.isfinite(proposed):
            found = _confirmed(judge, proposed, other, proof.gap)
            if found is not None:
                points.append([other, found])
    return points


def _confirmed(judge: Judge, proposed: float, delta: float, gap: float) -> float | None:
    """The proposed epsilon if it is confirmed, else the smallest confirmed one a little above."""
    asked = judge.asked(delta)
    if judge.holds(proposed, asked):
        return proposed
    low, high = proposed, proposed * (1 + 1e-6) + 1e-12
    while not judge.holds(high, asked):
        if high > proposed * (1 + gap) + 1e-9:
            return None
        low, high = high, high + 4 * (high - proposed)
    if low == proposed:
        return high
    return halved(lambda epsilon: judge.holds(epsilon, asked), good=high, bad=low, rounds=8)


def _nonce(training: Training, given: str | None) -> str | None:
    """A name for what is drawn at random and kept secret; None where nothing is."""
    if not training.batches.hidden:
        return None
    if given is None:
        return secrets.token_hex(16)
    if not good_nonce(given):
        why = "a nonce that could be equal by chance would merge runs that share nothing"
        raise DescriptionError("nonce", given, "a text of 16 to 128 characters", why)
    return given
