"""One pool for all tests of the explorer: its workers take a second to load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from dash import Dash
from patience import HANG_SECONDS

from lastiterate.explore.page import build
from lastiterate.explore.pool import Pool


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    # Limits of the page are guards here: other tests keep the machine busy.
    with Pool(slack=HANG_SECONDS / 8.0) as found:
        assert found.wait_until_ready(HANG_SECONDS)
        yield found


TOKEN = "the-token-of-these-tests"


@pytest.fixture(scope="session")
def app(pool: Pool) -> Dash:
    return build(pool, TOKEN, patience=0.02)


@pytest.fixture
def client(app: Dash) -> Any:
    """Somebody who was let in."""
    found = app.server.test_client()
    found.environ_base["HTTP_AUTHORIZATION"] = f"token {TOKEN}"
    return found
