"""Records with a budget of their own: what a record really did is charged to it, and no more.

Trainers that keep such budgets leave out the uses of a record that it cannot pay for
(`train.budgets`). The bound is that of public iterates: whose uses are left out jumps with the
iterates, and hidden ones tell it (docs/errata.md).
"""

from __future__ import annotations

from lastiterate.bounds.ledger import PRESENCE, Bound, Run, Theorem
from lastiterate.curves.gaussian import Gaussian
from lastiterate.description import Cyclic, FullBatch, Reshuffled, Shuffled


class IndividualFilter(Theorem):
    """Lemma F for every record by itself.

    *Statement.* Every record has a budget mu. At step e a record of the batch adds g_e, of
    impulse s_e = (eta_e/b)|g_e| + rounding, to the sum if the sum of (s/nu)^2 over its uses so far
    and this one is at most mu^2, and 0 otherwise. Zero-out neighbours. Then all iterates together
    are mu-GDP, whatever the loss.

    *Proof.* Given the batches, whose law does not depend on the data, and all iterates so far, both
    worlds know what every other record has spent and adds: the same. The one record adds g_e or 0
    in one world and 0 in the other, so the step is (s_e/nu_e)-GDP or tells nothing, s_e being a
    function of past iterates. The squares never add up to more than mu^2: Lemma F
    (`AdaptiveStretches`). Projections and proximal steps post-process; average over hidden batches
    by joint convexity. QED
    """

    key = "individual-filter"
    name = "Individual filter (Feldman & Zrnic 2021, by Gaussians)"
    reference = "this library, docs/theory/exposure.md; after Feldman & Zrnic 2021"
    statement = (
        "A use of a record counts as 0 if it would bring the sum of its realised (s_e/nu_e)^2 "
        "above mu^2. Zero-out: all iterates together are mu-GDP, for every loss and any batches "
        "that are drawn without looking at the data."
    )
    schemes = (FullBatch, Cyclic, Shuffled, Reshuffled)
    assumptions = ("the trainer leaves out what a record cannot pay for",)
    hidden_state = False
    filtered = True
    covers = PRESENCE  # who is there for a time, or pulls less, has no larger budget

    def objection(self, run: Run) -> str | None:
        return None if run.training.individual_budget is not None else "its records have no budgets"

    def prove(self, run: Run) -> Bound:
        budget = run.training.individual_budget
        assert budget is not None
        return Bound(self, Gaussian(budget))
