"""The hash of a model, which binds a certificate to it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def parameters_hash(parameters: Any) -> str:
    """SHA-256 of a model: an array, or a list or dict of them, with shapes, as doubles.

    >>> parameters_hash([1.0, 2.0]) == parameters_hash(np.array([1.0, 2.0]))
    True
    """
    digest = hashlib.sha256()
    for name, value in _named(parameters, ""):
        array = np.asarray(value, dtype=np.float64)
        digest.update(f"{name}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    return digest.hexdigest()


def _named(parameters: Any, name: str) -> Iterable[tuple[str, Any]]:
    if isinstance(parameters, Mapping):
        for key in sorted(parameters):
            yield from _named(parameters[key], f"{name}/{key}")
    elif isinstance(parameters, (list, tuple)) and not _numeric(parameters):
        for index, item in enumerate(parameters):
            yield from _named(item, f"{name}/{index}")
    else:
        yield name, parameters


def _numeric(values: list[Any] | tuple[Any, ...]) -> bool:
    return all(isinstance(value, (int, float, np.number)) for value in values)
