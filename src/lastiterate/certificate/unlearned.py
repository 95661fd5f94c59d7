"""The certificate of a model that has forgotten records with a ledger."""

from __future__ import annotations

from typing import Any, Protocol

from lastiterate.certificate.certificate import Certificate
from lastiterate.certificate.joint import smallest_epsilon
from lastiterate.certificate.signing import library
from lastiterate.description.failure import promised_delta
from lastiterate.errors import AssumptionError, CertificateError, DescriptionError
from lastiterate.printing import printed
from lastiterate.verifier.balls import arb, need_balls, precision
from lastiterate.verifier.document import FORMAT, UNLEARNING, VERSION, parameters_hash
from lastiterate.verifier.profile import STANDARD_DELTAS, Profile
from lastiterate.verifier.unlearned import WORDS


class Perturbed(Protocol):
    """What was released, and how."""

    @property
    def budget(self) -> float: ...
    @property
    def noise(self) -> float: ...
    @property
    def grid(self) -> float: ...
    @property
    def deleted(self) -> int: ...
    @property
    def records(self) -> int: ...
    @property
    def models(self) -> int: ...
    @property
    def experiment(self) -> bool: ...


def certify_unlearned(model: Perturbed, delta: float, dataset: str, parameters: Any) -> Certificate:
    """The certificate of what `lastiterate.train.unlearn` released, or of what was made of it."""
    need_balls()
    if model.experiment:
        raise AssumptionError(
            "The run was an experiment (seeded, or its sums have no proved error): what it forgot "
            "has no certificate. Train again without random_state, with a new Ledger."
        )
    if not isinstance(dataset, str):
        why = "it is a label that a person gives, compared letter by letter"
        raise DescriptionError("dataset", dataset, "a text", why)
    delta = promised_delta(delta, model.records)
    with precision():
        profile = Profile.gaussian(model.models * (arb(model.budget) / arb(model.noise)) ** 2)
        judge = profile.judge(delta)
        epsilon = smallest_epsilon(judge, delta)
        if epsilon is None:
            raise CertificateError(f"No finite epsilon holds at delta = {printed(delta)}.")
        curve = []
        for other in STANDARD_DELTAS:
            found = smallest_epsilon(judge, other) if other != delta else None
            if found is not None:
                curve.append([other, found])
    return Certificate.sealed(
        {
            "format": FORMAT,
            "version": VERSION,
            "library": library(),
            "kind": UNLEARNING,
            "dataset": dataset,
            **WORDS,
            "budget": model.budget,
            "noise": model.noise,
            "grid": model.grid,
            "deleted": model.deleted,
            "records": model.records,
            "models": model.models,
            "epsilon": epsilon,
            "delta": delta,
            "mu": profile.mu,
            "curve": curve,
            "parameters": parameters_hash(parameters),
        }
    )
