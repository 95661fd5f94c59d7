"""Whether Triton is installed, and its compiler where it is."""

from __future__ import annotations

from typing import Any

try:
    import triton
except ImportError:  # builds of PyTorch without a GPU have none: the plain path is used
    triton = None

AVAILABLE: bool = triton is not None


def jit(function: Any) -> Any:
    """The function compiled by Triton; unchanged where Triton is not installed."""
    return function if triton is None else triton.jit(function)
