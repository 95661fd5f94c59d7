"""Shadow training: many models at once.

`LinearCohort` (NumPy) for linear models, `StackedCohort` (torch.func) for any network. Each is
called as (dataset, seed), and has ``cohort(dataset, seeds)``, which `audit` uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastiterate.lazy_names import loaded_on_use

_HOME = {
    "LinearCohort": "lastiterate.audit.shadow.linear",
    "StackedCohort": "lastiterate.audit.shadow.stacked",
}

if TYPE_CHECKING:
    from lastiterate.audit.shadow.linear import LinearCohort
    from lastiterate.audit.shadow.stacked import StackedCohort

__all__ = ["LinearCohort", "StackedCohort"]

__getattr__ = loaded_on_use(__name__, _HOME)
