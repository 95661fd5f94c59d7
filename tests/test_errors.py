"""Errors keep their words and their class when another process raised them."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

import lastiterate
from lastiterate import Cyclic, DescriptionError, LastIterateError
from lastiterate.errors import MissingExtraError


def every_kind() -> list[type[LastIterateError]]:
    """Ours, and those of rooms that need no library to be imported."""
    for module in pkgutil.walk_packages(lastiterate.__path__, "lastiterate."):
        if module.name.split(".")[1] in ("certificate", "audit", "errors", "federated"):
            try:
                importlib.import_module(module.name)
            except ImportError:  # an extra that is not here
                continue
    found, left = [], [LastIterateError]
    while left:
        kind = left.pop()
        found.append(kind)
        left += kind.__subclasses__()
    return sorted(set(found), key=lambda kind: kind.__name__)


def made(kind: type[LastIterateError]) -> LastIterateError:
    if issubclass(kind, DescriptionError):
        return kind("records", 0, "at least 1", "no records, no run")
    if issubclass(kind, MissingExtraError):
        return kind("A figure", "matplotlib.figure", "report")
    return kind("what was wrong, why, what to do")


@pytest.mark.parametrize("kind", every_kind(), ids=lambda kind: kind.__name__)
def test_every_error_survives_a_journey(kind: type[LastIterateError]) -> None:
    error = made(kind)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert str(again) == str(error)
        assert vars(again) == vars(error)
        assert getattr(again, "name", None) == getattr(error, "name", None)


def test_a_worker_that_is_refused_says_why() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        with pytest.raises(DescriptionError, match=r"^batches\.size must"):
            pool.submit(Cyclic, 0).result()
        assert pool.submit(Cyclic, 5).result() == Cyclic(5)  # the pool is not broken
