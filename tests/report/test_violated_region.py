"""The picture shows the claim where it fails, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from lastiterate.published.composition import violated_region
from lastiterate.report import violated_region_figure

pytest.importorskip("plotly")


def test_map_of_the_violated_region():
    region = violated_region([0.1, 1.0], [10, 1000], [1e-5], [1e-6])
    picture = violated_region_figure(region).data[0]
    below = np.asarray(picture.z) < 1
    assert below.any()
    assert not below.all()
    assert (below == (np.asarray(picture.text) == "false")).all()
