"""Checks of the kernel, for the time being called with what the other checks are called with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lastiterate.kernel.balls import Ball, KernelError, MalformedError, arb
from lastiterate.kernel.gaussians import Gaussians
from lastiterate.kernel.run import Run, read_run
from lastiterate.verifier.profile import Profile
from lastiterate.verifier.refusals import ClaimError, MalformedCertificateError
from lastiterate.verifier.steps import Case
from lastiterate.verifier.witness import pack


@dataclass(frozen=True, eq=False)
class Orders:
    """A bound from pairs of labels."""

    found: Gaussians

    def delta(self, epsilon: float, sufficient: float = 0.0) -> Ball:
        """An upper bound on delta at this epsilon; whatever is sufficient, in one go."""
        del sufficient
        return self.found.exchanged_delta(arb(epsilon))


def content_of(case: Case) -> dict[str, Any]:
    """The fields of a certificate that describe a run."""
    content = {
        "training": pack(case.training.to_dict()),
        "loss": {**pack(case.loss.to_dict()), "provenance": case.loss.provenance},
        "releases": list(case.releases),
        **({} if case.unit.default else {"unit": pack(case.unit.to_dict())}),
    }
    return json.loads(json.dumps(content))  # type: ignore[no-any-return]


def by_kernel(
    check: Callable[[Run, Mapping[str, Any]], Gaussians],
) -> Callable[[Case, Mapping[str, Any]], Profile]:
    """A check of the kernel as one of this package."""

    def checked(case: Case, witness: Mapping[str, Any]) -> Profile:
        try:
            found = check(read_run(content_of(case)), pack(witness))
        except MalformedError as error:
            raise MalformedCertificateError(str(error)) from None
        except KernelError as error:
            raise ClaimError(str(error)) from None
        squares, weights = tuple(found.squares), tuple(found.weights)
        second = Orders(found) if found.orders else None
        return Profile(squares, weights, by_position=found.by_position, coupled=second)

    return checked
