"""The theorems that can be tightest, one subject per file, and the registry that lists them.

Each row states what it assumes and what was corrected. Bounds of the literature that are never
tighter, and refuted claims, are rows of `lastiterate.published`; references that no bound can go
below are in `lastiterate.lower`.

>>> sorted({theorem.status for theorem in THEOREMS})
['corrected', 'sound']
"""

from lastiterate.theory import (
    adaptive_segments,
    allocation,
    allocation_replace,
    composition,
    correlated,
    coupling,
    exchange,
    full_batch,
    groups,
    ordered_batches,
    poisson,
    poisson_blocks,
    reshuffled,
    reshuffled_concave,
    reshuffled_exchange,
    without_replacement,
)
from lastiterate.theory.registry import Bound, Proof, Theorem, inapplicable_reason
from lastiterate.theory.run import Run

THEOREMS: tuple[Theorem, ...] = (
    full_batch.FULL_BATCH,
    coupling.STOPPED_COUPLING,
    ordered_batches.WORST_POSITION,
    exchange.EXCHANGE,
    ordered_batches.HIDDEN_POSITION,
    reshuffled_exchange.RESHUFFLED_EXCHANGE,
    reshuffled.BOUNDARY_POLICY,
    reshuffled_concave.CONCAVE_POLICY,
    groups.KNOWN_GROUPS,
    groups.CYCLE_LAW,
    groups.SUPERPOSED_GROUPS,
    adaptive_segments.ADAPTIVE_SEGMENTS,
    composition.COMPOSITION,
    allocation.ALLOCATION_PATHS,
    allocation.ALLOCATION_DEFERRAL,
    allocation.ALLOCATION_COMPOSITION,
    allocation_replace.ALLOCATION_REPLACE_PATHS,
    allocation_replace.ALLOCATION_REPLACE_COMPOSITION,
    poisson_blocks.POISSON_BLOCKS,
    poisson.POISSON_DEFERRAL,
    poisson.POISSON_COMPOSITION,
    poisson.POISSON_REPLACE_ABSORPTION,
    poisson.POISSON_REPLACE_COMPOSITION,
    without_replacement.WITHOUT_REPLACEMENT,
    without_replacement.WITHOUT_REPLACEMENT_COMPOSITION,
    correlated.CORRELATED_LAST_ITERATE,
    correlated.CORRELATED_COMPOSITION,
)

BY_KEY: dict[str, Theorem] = {theorem.key: theorem for theorem in THEOREMS}

__all__ = ["BY_KEY", "THEOREMS", "Bound", "Proof", "Run", "Theorem", "inapplicable_reason"]
