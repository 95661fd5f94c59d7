"""Data sets that lie on a cluster: Ray, Dask and Spark, through one small hook.

Parameters in, exact gradient sum out (`parts.Workers`). Clusters that are started here serve their
owner alone; names are loaded when first used, and no engine unless its data set is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastiterate._internal.lazy import loaded_on_use

_HOME = {
    "fit": "lastiterate.cluster.fitting",
    "local": "lastiterate.cluster.connections",
}

if TYPE_CHECKING:
    from lastiterate.cluster.connections import local
    from lastiterate.cluster.fitting import fit

__all__ = ["fit", "local"]

__getattr__ = loaded_on_use(__name__, _HOME)
