"""Runs that are ready to look at: what people train, and the figures of the papers."""

from __future__ import annotations

from dataclasses import dataclass

from lastiterate.explore.fields import LOSS, PERSON, RELEASE, RUN, SGLD
from lastiterate.explore.state import State


@dataclass(frozen=True)
class Preset:
    """A named state and what there is to see in it."""

    name: str
    label: str
    words: str
    changes: str = ""  # name=text for every field that is not at its default
    paper: bool = True

    @property
    def values(self) -> State:
        """The fields it fills in: those of the run, or those of the SGLD panel."""
        fields = SGLD if self.name == "heller-fetaya" else (*RUN, *LOSS, *RELEASE, *PERSON)
        changed = dict(pair.split("=") for pair in self.changes.split())
        return {field.name: field.default for field in fields} | changed


_ALL = (
    Preset(
        "logistic",
        "Logistic regression, 60,000 records, shuffled",
        "40 batches of 1500, shuffled once, 50 epochs, an L2 term of 0.002: the state that is "
        "hidden forgets, and epsilon is a tenth of what publishing every iterate costs.",
        "told=multiplier",
        paper=False,
    ),
    Preset(
        "probe",
        "Linear probe on a million embeddings",
        "A linear head on embeddings of length 1, one pass in 1000 batches whose last epoch is "
        "equalised: small batches, few passes, where hiding the state helps most.",
        "told=multiplier records=1000000 size=1000 length=1 multiplier=0.15 clip=1 step_size=1 "
        "schedule=equalised regularization=0 delta=1e-7 adjacency=zero-out",
        paper=False,
    ),
    Preset(
        "network",
        "DP-SGD network",
        "Nothing is known of the loss of a network, so nothing is forgotten: the last iterate "
        "costs what all of them cost. The step size cancels and is not asked for.",
        "told=multiplier records=50000 batches=poisson rate=0.01 unit=steps length=2000 "
        "multiplier=1 clip=1 clipping=gradient loss=unknown regularization=0 adjacency=zero-out",
        paper=False,
    ),
    Preset(
        "chien-li-figure-1",
        "Chien & Li 2025, Figure 1",
        "Chien and Li 2025, Figure 1: L = m = 1, K = 2, sigma = 1, D = 1, n = 5, eta = 0.1, "
        "full batches. Composition grows for ever, the hidden state does not.",
        "records=5 unit=steps length=200 step_size=0.1 noise=1 gradient_norm=2 batches=full "
        "diameter=1 loss=convex smoothness=1 strong_convexity=1 regularization=0 adjacency=replace",
    ),
    Preset(
        "chourasia-figure-2",
        "Chourasia, Ye & Shokri 2021, Figure 2",
        "Chourasia, Ye and Shokri 2021, Figure 2: squared norm loss, sigma = 0.02, eta = 0.02, "
        "n = 5000, S_g = 4. Here the bound is exact: the lower reference meets it.",
        "records=5000 unit=steps length=400 step_size=0.02 noise=0.004 gradient_norm=2 "
        "batches=full loss=convex smoothness=1 strong_convexity=1 regularization=0 "
        "adjacency=replace",
    ),
    Preset(
        "mini-batch-logistic",
        "Logistic regression in mini-batches",
        "Regularised logistic regression, as Ye and Shokri 2022 bound it, with numbers of ours: "
        "MNIST, 40 batches in a known order, L2 term 0.002. The worst position counts.",
        "batches=cyclic adjacency=replace",
    ),
    Preset(
        "mnist-shuffled",
        "MNIST shuffled",
        "The same run, but the partition into batches is drawn once and kept secret: the "
        "profiles of all positions are averaged.",
        "adjacency=replace",
    ),
    Preset(
        "heller-fetaya",
        "Heller & Fetaya 2022",
        "Heller and Fetaya 2022: one sample of the posterior is private, and so is SGLD at the "
        "end; on its way there it is not. See the panel on SGLD at the end of the page.",
    ),
)
PRESETS = {preset.name: preset for preset in _ALL}
