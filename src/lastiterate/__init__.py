"""The privacy of the last iterate.

Describe a run (`Training`, `Loss`, batches), ask `account` for the tightest sound guarantee, see
which theorem gave it. Names are loaded when they are first used, so that importing the package
stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastiterate._internal.lazy import loaded_on_use

__version__ = "1.0.0rc1"

_PACKAGES = {
    "lastiterate.description": (
        "L1 LifetimeBudget Arithmetic Box Cyclic PrivacyUnit FullBatch GroupLasso Loss Poisson "
        "RandomAllocation Reshuffled Shuffled Simplex TailAverage Training WithoutReplacement"
    ),
    "lastiterate.accounting": (
        "Guarantee account calibrate compare excess_risk individual_epsilons plateau "
        "predicted_risk recommend theorems"
    ),
    "lastiterate.certificate": "Certificate CertificateChain certify compose",
    "lastiterate.verifier": "verify",
    "lastiterate.errors": (
        "LifetimeBudgetError AssumptionError CertificateError DescriptionError EstimateWarning "
        "LastIterateError TargetError UnsupportedError"
    ),
}
_HOME = {name: package for package, names in _PACKAGES.items() for name in names.split()}

if TYPE_CHECKING:
    from lastiterate.accounting import (
        Guarantee,
        account,
        calibrate,
        compare,
        excess_risk,
        individual_epsilons,
        plateau,
        predicted_risk,
        recommend,
        theorems,
    )
    from lastiterate.certificate import Certificate, CertificateChain, certify, compose
    from lastiterate.description import (
        L1,
        Arithmetic,
        Box,
        Cyclic,
        FullBatch,
        GroupLasso,
        LifetimeBudget,
        Loss,
        Poisson,
        PrivacyUnit,
        RandomAllocation,
        Reshuffled,
        Shuffled,
        Simplex,
        TailAverage,
        Training,
        WithoutReplacement,
    )
    from lastiterate.errors import (
        AssumptionError,
        CertificateError,
        DescriptionError,
        EstimateWarning,
        LastIterateError,
        LifetimeBudgetError,
        TargetError,
        UnsupportedError,
    )
    from lastiterate.verifier import verify

__all__ = [
    "L1",
    "Arithmetic",
    "AssumptionError",
    "Box",
    "Certificate",
    "CertificateChain",
    "CertificateError",
    "Cyclic",
    "DescriptionError",
    "EstimateWarning",
    "FullBatch",
    "GroupLasso",
    "Guarantee",
    "LastIterateError",
    "LifetimeBudget",
    "LifetimeBudgetError",
    "Loss",
    "Poisson",
    "PrivacyUnit",
    "RandomAllocation",
    "Reshuffled",
    "Shuffled",
    "Simplex",
    "TailAverage",
    "TargetError",
    "Training",
    "UnsupportedError",
    "WithoutReplacement",
    "account",
    "calibrate",
    "certify",
    "compare",
    "compose",
    "excess_risk",
    "individual_epsilons",
    "plateau",
    "predicted_risk",
    "recommend",
    "theorems",
    "verify",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


__getattr__ = loaded_on_use(__name__, _HOME)
