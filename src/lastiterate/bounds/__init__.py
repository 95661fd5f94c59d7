"""The theorems, one family per file, and the ledger that lists them.

Every entry states what it assumes and what was corrected. Refuted claims are listed so that nobody
has to find out twice; they can never carry a guarantee.
``lastiterate.theorems()`` is this list.

>>> import lastiterate
>>> sorted({theorem.status for theorem in lastiterate.theorems()})
['corrected', 'refuted', 'sound']
"""

from lastiterate.bounds.adaptive_stretches import AdaptiveStretches
from lastiterate.bounds.allocated_batches import AllocationComposition, AllocationDeferral
from lastiterate.bounds.composition import Composition
from lastiterate.bounds.correlated import CorrelatedComposition, CorrelatedLastIterate
from lastiterate.bounds.coupling import StoppedCoupling
from lastiterate.bounds.cycle_law import CycleLaw
from lastiterate.bounds.known_groups import KnownGroups
from lastiterate.bounds.langevin_diffusion import (
    LangevinComposition,
    LangevinDynamics,
    LangevinSquaredLoss,
    LangevinStronglyConvex,
)
from lastiterate.bounds.ledger import Bound, Run, Theorem
from lastiterate.bounds.log_sobolev import LogSobolev, SharperLogSobolev
from lastiterate.bounds.ordered_batches import (
    BoundaryPolicy,
    EqualisedLastEpoch,
    Exchange,
    HiddenPosition,
    ReshuffledExchange,
    WorstPosition,
)
from lastiterate.bounds.output_perturbation import OutputPerturbation
from lastiterate.bounds.published_minibatch import PUBLISHED_MINIBATCH
from lastiterate.bounds.refuted import REFUTED
from lastiterate.bounds.replaced_in_poisson import (
    PoissonReplaceAbsorption,
    PoissonReplaceComposition,
)
from lastiterate.bounds.sampled_batches import (
    CorrectedWithoutReplacement,
    PoissonComposition,
    PoissonDeferral,
    WithoutReplacementComposition,
)
from lastiterate.bounds.shifted_divergence import HolderShiftedDivergence, ShiftedDivergence
from lastiterate.bounds.shifted_interpolation import ShiftedInterpolation
from lastiterate.bounds.superposed_groups import SuperposedGroups

LEDGER: tuple[Theorem, ...] = (
    ShiftedInterpolation(),
    StoppedCoupling(),
    WorstPosition(),
    Exchange(),
    HiddenPosition(),
    ReshuffledExchange(),
    BoundaryPolicy(),
    KnownGroups(),
    CycleLaw(),
    SuperposedGroups(),
    EqualisedLastEpoch(),
    AdaptiveStretches(),
    Composition(),
    AllocationDeferral(),
    AllocationComposition(),
    PoissonDeferral(),
    PoissonComposition(),
    PoissonReplaceAbsorption(),
    PoissonReplaceComposition(),
    CorrectedWithoutReplacement(),
    WithoutReplacementComposition(),
    CorrelatedLastIterate(),
    CorrelatedComposition(),
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

BY_KEY: dict[str, Theorem] = {theorem.key: theorem for theorem in LEDGER}

__all__ = ["BY_KEY", "LEDGER", "Bound", "Run", "Theorem"]
