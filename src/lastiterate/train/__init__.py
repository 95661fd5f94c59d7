"""Noisy gradient descent that runs exactly the `Training` it is given.

`noisy_descent` is the engine under the estimators; what it returns says what ran, so that what is
certified is what was trained.
"""

from lastiterate.train.checkpoint import Checkpoint, EncryptedCheckpoint, MemoryCheckpoint
from lastiterate.train.descent import noisy_descent
from lastiterate.train.features import bound_rows
from lastiterate.train.filed import FiledRecords
from lastiterate.train.result import Descent
from lastiterate.train.spread import Records

__all__ = [
    "Checkpoint",
    "Descent",
    "EncryptedCheckpoint",
    "FiledRecords",
    "MemoryCheckpoint",
    "Records",
    "bound_rows",
    "noisy_descent",
]
