"""Every theorem has a key for files and code, and a name for people."""

import re

import pytest

from lastiterate import (
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    Training,
    WithoutReplacement,
)
from lastiterate.bounds import BY_KEY, LEDGER
from lastiterate.bounds.ledger import Run
from lastiterate.description.batches import SCHEMES
from lastiterate.verifier.checks import CHECKS


def test_keys_name_one_theorem_each():
    assert len(BY_KEY) == len(LEDGER) == len({theorem.name for theorem in LEDGER})
    for key, theorem in BY_KEY.items():
        assert key == theorem.key
        assert re.fullmatch(r"[a-z][a-z0-9.]*(-[a-z0-9.]+)*", key), key


def test_what_refers_to_a_theorem_uses_its_key():
    for theorem in LEDGER:
        for key in theorem.dominated_by:
            assert BY_KEY[key].status != "refuted"
    assert set(CHECKS) <= set(BY_KEY)
    assert all(BY_KEY[key].status != "refuted" for key in CHECKS)


@pytest.mark.parametrize(
    "batches",
    [FullBatch(), Cyclic(2), Shuffled(2), Reshuffled(2), Poisson(0.5), WithoutReplacement(2)],
)
def test_a_theorem_covers_its_schemes_alone(batches):
    run = Run(Training(8, 4, 0.1, 1.0, 1.0, batches), Loss(smoothness=1.0))
    for theorem in LEDGER:
        if type(batches) not in theorem.schemes:
            word = "refuted" if theorem.status == "refuted" else "stated for"
            assert word in theorem.obstacle(run), theorem
    assert any(theorem.obstacle(run) is None for theorem in LEDGER)


def test_every_theorem_says_which_schemes_it_covers():
    """One that says nothing covers nothing."""
    for theorem in LEDGER:
        assert theorem.status == "refuted" or theorem.schemes, theorem
        assert set(theorem.schemes) <= set(SCHEMES.values())
