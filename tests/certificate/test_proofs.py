"""The witness comes from the proof: what the accountant found is not searched for again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from lastiterate import (
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Training,
    WithoutReplacement,
    account,
    certify,
)
from lastiterate.theory import coupling, reshuffled, without_replacement
from lastiterate.theory import poisson_paths as poisson
from lastiterate.theory.registry import Bound
from lastiterate.verifier import coupled

DELTA = 1e-4
RIDGE = Loss(smoothness=1.0, regularization=0.3)


def run(batches: Any, **changes: Any) -> Training:
    plain = {"records": 40, "steps": 24, "step_size": 0.3, "noise": 0.2, "gradient_norm": 1.0}
    return Training(**{**plain, "batches": batches, "adjacency": "zero-out", **changes})


SEARCHES: dict[str, tuple[Training, Callable[..., Any]]] = {
    "poisson": (run(Poisson(0.1)), poisson.best_segments_of_one),
    "poisson replace": (run(Poisson(0.1), adjacency="replace"), without_replacement.best_segments),
    "without replacement": (run(WithoutReplacement(4)), without_replacement.best_segments),
    "reshuffled": (run(Reshuffled(20)), reshuffled.reshuffled),
}


def searched(training: Training, delta: float) -> Bound:
    (bound,) = (b for b in account(training, RIDGE).bounds if b.proof.search is not None)
    assert bound.curve.epsilon(delta) > 0
    return bound


def calls(function: Callable[..., Any], act: Callable[[], object]) -> int:
    """How often ``act`` enters ``function``."""
    code, found = function.__code__, 0  # type: ignore[attr-defined]

    def see(frame: FrameType, event: str, _: Any) -> None:
        nonlocal found
        found += event == "call" and frame.f_code is code

    sys.setprofile(see)
    try:
        act()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("name", SEARCHES)
def test_certifying_searches_once(name: str) -> None:
    training, search = SEARCHES[name]
    assert calls(search, lambda: certify(training, RIDGE, DELTA)) == 1


@pytest.mark.parametrize("name", SEARCHES)
def test_one_search_for_all_stretches(name: str) -> None:
    """Between released checkpoints: they are chosen together."""
    training, search = SEARCHES[name]
    assert calls(search, lambda: certify(training, RIDGE, DELTA, releases=(8, 16))) == 1


@pytest.mark.parametrize("name", SEARCHES)
def test_the_proof_is_the_one_that_answered(name: str) -> None:
    training, search = SEARCHES[name]
    bound = searched(training, DELTA)
    answered = bound.curve.epsilon(DELTA)
    assert calls(search, lambda: bound.at(DELTA)) == 0
    assert bound.at(DELTA).curve.epsilon(DELTA) == answered
    assert calls(search, lambda: bound.at(DELTA / 2)) == 1  # another question, another proof


def test_a_bound_without_parameters_has_one_proof() -> None:
    bound = account(run(FullBatch()), RIDGE).best
    assert bound.proof.search is None
    assert bound.at(1e-3).curve is bound.at(1e-9).curve is bound.curve
    assert bound.at(1e-3).witness is bound.witness


def test_the_grid_of_a_coupling_fits_the_verifier() -> None:
    assert coupling.MOST_CHECKED == coupled.MOST_CELLS
