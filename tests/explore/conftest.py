"""One workshop for all tests of the explorer: its workers take a second to load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from dash import Dash

from lastiterate.explore.page import build
from lastiterate.explore.workshop import Workshop


@pytest.fixture(scope="session")
def workshop() -> Iterator[Workshop]:
    with Workshop() as found:
        assert found.wait_until_ready(120)
        yield found


@pytest.fixture(scope="session")
def app(workshop: Workshop) -> Dash:
    return build(workshop, patience=0.02)


@pytest.fixture
def client(app: Dash) -> Any:
    return app.server.test_client()
