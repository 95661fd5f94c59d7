"""Rounds are counted on disk before they are spent, whatever happens to the server."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from patience import HANG_SECONDS

from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.federated.budget import Budget
from lastiterate.federated.federation import Federation

RUN = Federation(
    clients=9, sampled=3, rounds=3, clip=1.0, noise_multiplier=6.0, adjacency="replace"
)

KILLED = """
import os, signal, sys
import numpy as np
from lastiterate.federated.budget import Budget
from lastiterate.federated.federation import Federation
run = Federation(
    clients=9, sampled=3, rounds=3, clip=1.0, noise_multiplier=6.0, adjacency="replace"
)
budget = Budget(sys.argv[1], run)
budget.spend()
budget.keep({"w": np.ones(2)})
budget.spend()
os.kill(os.getpid(), signal.SIGKILL)  # the second noise may have left, its model is lost
"""


def test_a_killed_server_has_spent_its_round(tmp_path: Path) -> None:
    path = tmp_path / "rounds.sqlite"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)], timeout=HANG_SECONDS, check=False
    )
    assert done.returncode == -signal.SIGKILL
    budget = Budget(path, RUN)
    assert (budget.spent, budget.kept, budget.left) == (2, 1, 1)
    model = budget.model()
    assert model is not None
    np.testing.assert_array_equal(model["w"], np.ones(2))
    assert budget.spend() == 3
    with pytest.raises(AssumptionError, match="All 3 rounds are spent"):
        budget.spend()
    assert budget.spent == 3


def test_two_servers_cannot_share_a_budget(tmp_path: Path) -> None:
    first = Budget(tmp_path / "b", RUN)
    with pytest.raises(AssumptionError, match="another server"):
        Budget(tmp_path / "b", RUN)
    first.close()
    Budget(tmp_path / "b", RUN).close()


def test_another_run_is_refused(tmp_path: Path) -> None:
    Budget(tmp_path / "b", RUN).close()
    with pytest.raises(DescriptionError, match="another description"):
        Budget(tmp_path / "b", RUN.replace(noise_multiplier=7.0))
    Budget(tmp_path / "b", RUN).close()  # the refusal has let go of the file


def test_a_file_that_is_no_budget_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("not a database, but long enough to look like one " * 100)
    with pytest.raises(AssumptionError, match="cannot be used"):
        Budget(tmp_path / "b", RUN)


def test_what_was_shown_is_remembered(tmp_path: Path) -> None:
    budget = Budget(tmp_path / "b", RUN)
    budget.show(2)
    budget.show(1)
    budget.spoil("seen by all")
    budget.spoil("a later reason")
    budget.close()
    budget = Budget(tmp_path / "b", RUN)
    assert budget.releases == (1, 2)
    assert budget.spoiled == "seen by all"


def test_one_seeded_server_makes_the_run_insecure_for_good(tmp_path: Path) -> None:
    Budget(tmp_path / "b", RUN).close()
    Budget(tmp_path / "b", RUN, secure=False).close()
    assert not Budget(tmp_path / "b", RUN).secure


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    Budget(tmp_path / "b", RUN).close()
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o600
