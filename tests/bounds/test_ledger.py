"""Every theorem has a key for files and code, and a name for people."""

import re

from lastiterate.bounds import BY_KEY, LEDGER
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
