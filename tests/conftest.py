"""What is collected here: tests. Shared laws and programs that tests start are imported or run."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples every time: a red run can be repeated. `make fuzz` draws its own.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach tests and the programs they start.

    A shell makes its background jobs (``nohup make test &``) ignore SIGINT; children inherit that.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_seed_of_another_test() -> None:
    """A loader that shuffles under a global seed is refused: no test inherits one."""
    if "torch" in sys.modules:
        sys.modules["torch"].seed()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Doctests are looked for in the package, not in the tests' own tools."""
    if collection_path.suffix == ".py" and not collection_path.name.startswith(("test_", "conf")):
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two processes must collect the same names: an address in one breaks the parallel run."""
    if named := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"give these cases ids of their own: {named[:5]}")
