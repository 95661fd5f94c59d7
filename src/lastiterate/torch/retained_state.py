"""What a network, its hooks and its loss keep between two calls, apart from parameters and buffers.

A layer or a loss that counts its calls knows how many batches there were, and how many chunks these
had: then what a record contributes depends on other records. ``torch.func`` itself refuses
parameters and buffers that are written in place.
"""

from __future__ import annotations

import functools
import io
import pickle
import types
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from torch import Tensor, nn

_OF_EVERY_LAYER = {*vars(nn.Module()), "autograd_grad_sample_hooks"}  # the last one is Opacus'
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_FIXED = ("torch.", "opacus.")  # their functions keep nothing
_MOST = 1 << 20  # numbers of a tensor that are compared; of others, whether they were written


def state_of(*called: Any) -> list[bytes]:
    """What layers, hooks and functions keep: attributes, closures, defaults and globals they use.

    >>> passes = []
    >>> def loss(scores, labels):
    ...     passes.append(None)
    >>> before = state_of(loss)
    >>> loss(0.0, 1)
    >>> state_of(loss) == before
    False
    """
    found = []
    for value in _contents(list(called), set()):
        with suppress(Exception):  # locks, generators: nobody can compare them
            stream = io.BytesIO()
            _Compared(stream).dump(value)
            found.append(stream.getvalue())
    return found


class _Compared(pickle.Pickler):
    """Writes large tensors by their name and how often they were written."""

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.numel() > _MOST:
            return id(value), value._version
        return None


def _contents(called: list[Any], seen: set[int]) -> Iterator[Any]:
    while called:
        one = called.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        match one:
            case nn.Module():
                for part in one.modules():
                    held = vars(part)
                    yield from (held[name] for name in sorted(held.keys() - _OF_EVERY_LAYER))
                    called += [hook for name in _HOOKS for hook in held[name].values()]
                    called.append(type(part).forward)
            case functools.partial():
                yield from (one.args, one.keywords)
                called.append(one.func)
            case types.MethodType():
                called += [one.__self__, one.__func__]
            case types.FunctionType() if not one.__module__.startswith(_FIXED):
                values = _values(one)
                yield from values
                called += filter(callable, values)
            case _ if not isinstance(one, type) and hasattr(one, "__dict__"):
                yield vars(one)


def _values(function: types.FunctionType) -> list[Any]:
    """What a function can change: its closure, its defaults, and the globals that it names."""
    values: list[Any] = [function.__defaults__, function.__kwdefaults__]
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # a name that is bound later
            values.append(cell.cell_contents)
    named = (function.__globals__.get(name) for name in function.__code__.co_names)
    values += [value for value in named if not isinstance(value, types.ModuleType | type)]
    return values
