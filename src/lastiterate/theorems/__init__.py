"""The theorems, one family per file, and the ledger that lists them.

Every entry states what it assumes and what was corrected. Refuted claims are listed so that nobody
has to find out twice; they can never carry a guarantee. The package itself is callable:
``lastiterate.theorems()`` is the ledger.

>>> import lastiterate
>>> sorted({theorem.status for theorem in lastiterate.theorems()})
['corrected', 'refuted', 'sound']
"""

import sys
from types import ModuleType

from lastiterate.theorems.composition import Composition
from lastiterate.theorems.coupling import StoppedCoupling
from lastiterate.theorems.langevin_diffusion import (
    LangevinComposition,
    LangevinDynamics,
    LangevinSquaredLoss,
    LangevinStronglyConvex,
)
from lastiterate.theorems.ledger import Bound, Run, Theorem
from lastiterate.theorems.log_sobolev import LogSobolev, SharperLogSobolev
from lastiterate.theorems.ordered_batches import (
    BoundaryPolicy,
    EqualisedLastEpoch,
    HiddenPosition,
    WorstPosition,
)
from lastiterate.theorems.output_perturbation import OutputPerturbation
from lastiterate.theorems.published_minibatch import PUBLISHED_MINIBATCH
from lastiterate.theorems.refuted import REFUTED
from lastiterate.theorems.replaced_in_poisson import (
    PoissonReplaceAbsorption,
    PoissonReplaceComposition,
)
from lastiterate.theorems.sampled_batches import (
    CorrectedWithoutReplacement,
    PoissonComposition,
    PoissonDeferral,
    WithoutReplacementComposition,
)
from lastiterate.theorems.shifted_divergence import HolderShiftedDivergence, ShiftedDivergence
from lastiterate.theorems.shifted_interpolation import ShiftedInterpolation

LEDGER: tuple[Theorem, ...] = (
    ShiftedInterpolation(),
    StoppedCoupling(),
    WorstPosition(),
    HiddenPosition(),
    BoundaryPolicy(),
    EqualisedLastEpoch(),
    Composition(),
    PoissonDeferral(),
    PoissonComposition(),
    PoissonReplaceAbsorption(),
    PoissonReplaceComposition(),
    CorrectedWithoutReplacement(),
    WithoutReplacementComposition(),
    OutputPerturbation(),
    LangevinComposition(),
    LangevinDynamics(),
    LangevinStronglyConvex(),
    LangevinSquaredLoss(),
    LogSobolev(),
    SharperLogSobolev(),
    ShiftedDivergence(),
    HolderShiftedDivergence(),
    *PUBLISHED_MINIBATCH,
    *REFUTED,
)


class _CallableLedger(ModuleType):
    def __call__(self) -> tuple[Theorem, ...]:
        """Every theorem, with its name, reference, status, statement and correction."""
        return LEDGER


sys.modules[__name__].__class__ = _CallableLedger

__all__ = ["LEDGER", "Bound", "Run", "Theorem"]
