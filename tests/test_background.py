"""The suite in the background: a shell makes such jobs ignore SIGINT."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from patience import HANG_SECONDS

ROOT = Path(__file__).parents[1]
INTERRUPTED = "tests/cli/test_cli.py::test_ctrl_c_leaves_without_a_traceback"


@pytest.mark.skipif(os.name == "nt", reason="signals differ")
def test_tests_that_send_sigint_pass_where_it_is_ignored() -> None:
    program = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'pytest', '-q', sys.argv[1]])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, INTERRUPTED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_sigint_is_not_ignored_here() -> None:
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
