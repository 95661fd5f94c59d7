"""Heller & Fetaya 2022, Figure 1: SGLD is not private on its way to the posterior.

n = 17,864,389 records, prior precision 2, noise precision 1, x between 0.9 and 1.8, delta = 1e-3.
The caption does not determine the figure: the slope c is missing, and with Heller & Fetaya's step
2/A^2 the peak is at epoch 25 whatever c is, not at 48 as the text says. So two pictures: the
caption with the c that its n comes from (c = n^1.14558, Claim D.28), and the one simple setting
that matches the text, "not (38, 0.001)-DP after 48 epochs" (step 1/A^2, c = n^1.01; a fit, and
outside Heller & Fetaya's conditions). The lines are lower bounds; one exact sample from the
posterior is private all along.

    python examples/gallery_heller_fetaya_figure1.py [FOLDER]
"""

from __future__ import annotations

import math

import numpy as np
from gallery import keep, line_figure

from lastiterate.report import FigureData
from lastiterate.sampling import interim_privacy, posterior_privacy

RECORDS, PRIOR, NOISE, LOW, HIGH, DELTA = 17_864_389, 2.0, 1.0, 0.9, 1.8, 1e-3
SETTINGS = {
    "caption": {"slope": RECORDS**1.14558, "step_scale": 2.0, "epochs": 40},
    "text": {"slope": RECORDS**1.01, "step_scale": 1.0, "epochs": 80},
}


def figures(records: int = RECORDS) -> dict[str, FigureData]:
    drawn = {}
    for name, given in SETTINGS.items():
        interim = interim_privacy(records, PRIOR, NOISE, HIGH, delta=DELTA, **given)
        posterior = posterior_privacy(
            records, PRIOR, NOISE, LOW, HIGH, given["slope"], deviation=records**0.1
        )
        epochs, level = interim.epoch.tolist(), posterior.epsilon(DELTA)
        exact, chernoff = (np.where(v > 0, v, np.nan) for v in (interim.exact, interim.chernoff))
        drawn[f"heller_fetaya_figure1_{name}"] = line_figure(
            {
                "SGLD, exact mixture (at least)": (epochs, exact),
                "SGLD, Heller & Fetaya's Chernoff bound (at least)": (epochs, chernoff),
                "one posterior sample (at most)": (epochs, [level] * len(epochs)),
            },
            f"SGLD leaks most after epoch {interim.peak}: epsilon is at least "
            f"{math.floor(10 * np.max(interim.exact)) / 10:g}",
            "epoch",
            f"epsilon at delta = {DELTA:g}",
            log="y",
        )
    return drawn


if __name__ == "__main__":
    keep(figures(), __doc__)
