"""The bars of a recommendation: every alternative, best on top, both parts of its risk."""

from __future__ import annotations

import pytest

pytest.importorskip("plotly")

from lastiterate import recommend
from lastiterate.report import recommendation_bars


def test_bars_are_the_table():
    advice = recommend(records=3000, dimension=20, epsilon=1.0, delta=1e-5, epochs=4)
    figure = advice.plot()
    assert figure == recommendation_bars(advice)
    bias, noise, totals = figure.data
    names = [alternative.name for alternative in advice.alternatives]
    assert list(bias.y) == list(noise.y) == list(totals.y) == names[::-1]
    for k, alternative in enumerate(advice.alternatives[::-1]):
        assert bias.x[k] == alternative.risk.bias
        assert noise.x[k] == alternative.risk.noise
        assert totals.x[k] == pytest.approx(bias.x[k] + noise.x[k])
    assert noise.marker.pattern.shape == "/"  # the parts differ in black and white too
    assert "not a guarantee" in figure.layout.title.subtitle.text
    assert advice.alternatives[0].name in figure.layout.title.text
