"""Shadow training: many models at once.

`LinearCohort` (NumPy) trains linear models. It is called as (dataset, seed), and has
``cohort(dataset, seeds)``, which `audit` uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastiterate._internal.lazy import loaded_on_use

_HOME = {
    "LinearCohort": "lastiterate.audit.shadow.linear",
}

if TYPE_CHECKING:
    from lastiterate.audit.shadow.linear import LinearCohort

__all__ = ["LinearCohort"]

__getattr__ = loaded_on_use(__name__, _HOME)
