"""Shadow training: many models at once.

`LinearCohort` (NumPy) for linear models, `StackedCohort` (torch.func) for any network. Each is
called as (dataset, seed), and has ``cohort(dataset, seeds)``, which `audit` uses.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "LinearCohort": "lastiterate.audit.shadow.linear",
    "StackedCohort": "lastiterate.audit.shadow.stacked",
}

if TYPE_CHECKING:
    from lastiterate.audit.shadow.linear import LinearCohort
    from lastiterate.audit.shadow.stacked import StackedCohort

__all__ = ["LinearCohort", "StackedCohort"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value
