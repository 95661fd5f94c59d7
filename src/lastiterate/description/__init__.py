"""The description of a run: what is known before a single number is computed.

`Training` says what the algorithm does, the batch classes how the loader picks records, `Loss`
what is known about the objective. Everything is frozen, validated and round-trips through text.
"""

from lastiterate.description.arithmetic import Arithmetic
from lastiterate.description.batches import (
    Batches,
    Cyclic,
    FullBatch,
    Poisson,
    RandomAllocation,
    Reshuffled,
    Shuffled,
    WithoutReplacement,
)
from lastiterate.description.correlation import fractional
from lastiterate.description.lifetime_budget import LifetimeBudget
from lastiterate.description.loss import Loss, Origin
from lastiterate.description.proximal import L1, Box, GroupLasso, Simplex
from lastiterate.description.release import TailAverage
from lastiterate.description.schedule import Schedule
from lastiterate.description.training import Training
from lastiterate.description.unit import PrivacyUnit

__all__ = [
    "L1",
    "Arithmetic",
    "Batches",
    "Box",
    "Cyclic",
    "FullBatch",
    "GroupLasso",
    "LifetimeBudget",
    "Loss",
    "Origin",
    "Poisson",
    "PrivacyUnit",
    "RandomAllocation",
    "Reshuffled",
    "Schedule",
    "Shuffled",
    "Simplex",
    "TailAverage",
    "Training",
    "WithoutReplacement",
    "fractional",
]
