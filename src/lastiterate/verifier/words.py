"""What a certificate says in words, derived from its description, its loss and a theorem's key.

`certify` writes these sentences and `verify` derives them again, in `kernel.assumptions`: a
certificate whose words were softened does not verify. A test holds the table against the ledger.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lastiterate.description import Loss, PrivacyUnit, TailAverage, Training
from lastiterate.description.assumptions import assumptions, not_covered, provenances
from lastiterate.verifier.refusals import ClaimError


class Named(NamedTuple):
    """A theorem that has an independent check."""

    name: str
    reference: str
    status: str = "sound"
    hidden_state: bool = True  # whether intermediate iterates must stay secret
    covers: frozenset[str] = frozenset()  # fields of a unit that its check knows about


PRESENCE = frozenset({"first_step", "last_step", "gradient_norm"})

THEOREMS: dict[str, Named] = {
    "taut-string": Named(
        "Shifted interpolation (Bok, Su & Altschuler 2024)",
        "Bok, Su & Altschuler 2024; exact optimum and tightness: docs/theory",
        covers=PRESENCE | {"records"},
    ),
    "stopped-coupling": Named("Stopped coupling", "this library, docs/theory/coupling.md"),
    "worst-position": Named(
        "Worst position",
        "shifted interpolation with impulses once per epoch; c = 1: Ye & Shokri 2022, Theorem D.4",
        covers=PRESENCE,
    ),
    "hidden-position": Named(
        "Hidden position",
        "joint convexity over the positions; verified against exact Gaussian mixtures",
        covers=PRESENCE,
    ),
    "exchange": Named(
        "Exchange of positions",
        "this library, docs/theory/exchange.md; level family of masses",
        covers=PRESENCE,
    ),
    "reshuffled-exchange": Named(
        "Exchange in the last epoch",
        "this library, docs/theory/exchange.md; levels and level family of masses",
        covers=PRESENCE,
    ),
    "boundary-policy": Named(
        "Boundary policy",
        "this library: independent epoch costs under fixed boundary levels",
        covers=PRESENCE,
    ),
    "boundary-policy-concave": Named(
        "Boundary policy, concave moduli",
        "this library, docs/theory/holder.md: the boundary policy with Theorem SI's moduli",
        covers=PRESENCE,
    ),
    "known-groups": Named(
        "Worst placement of a person's records",
        "this library, docs/how-to/people.md: superposition of strings; closed bound",
        covers=PRESENCE | {"records", "per_batch"},
    ),
    "cycle-law": Named(
        "Cycle law of hidden places",
        "this library, docs/theory/privacy-units.md",
        covers=PRESENCE | {"records", "per_batch"},
    ),
    "superposed-groups": Named(
        "Superposition over hidden places",
        "this library, docs/theory/privacy-units.md",
        covers=PRESENCE | {"records", "per_batch"},
    ),
    "gaussian-composition": Named(
        "Composition (Dong, Roth & Su 2022)",
        "Dong, Roth & Su 2022 (Gaussian composition); per position for cyclic batches",
        hidden_state=False,
        covers=PRESENCE | {"records", "per_batch"},
    ),
    "allocation-composition": Named(
        "Random allocation",
        "this library, docs/theory/allocation.md; balls in bins: Chua et al. 2024",
        hidden_state=False,
        covers=frozenset({"gradient_norm"}),
    ),
    "allocation-deferral": Named(
        "Random allocation, deferred",
        "this library, docs/theory/allocation.md",
        covers=frozenset({"gradient_norm"}),
    ),
    "poisson-composition": Named(
        "Poisson composition (Zhu, Dong & Wang 2022)",
        "sampled Gaussian mechanism; Zhu, Dong & Wang 2022; privacy-loss distributions",
        hidden_state=False,
        covers=PRESENCE | {"records"},
    ),
    "poisson-deferral": Named(
        "Poisson deferral",
        "this library, docs/theory/poisson.md",
        covers=PRESENCE | {"records"},
    ),
    "poisson-replace-composition": Named(
        "Poisson replace composition",
        "this library, docs/theory/poisson.md; double mixtures as in dp-accounting",
        hidden_state=False,
    ),
    "poisson-replace-absorption": Named(
        "Poisson replace absorption", "this library, docs/theory/poisson.md"
    ),
    "chien-li-2025-3.12": Named(
        "Chien & Li 2025, Theorem 3.12, corrected",
        "corrects Chien & Li 2025, Theorem 3.12; docs/theory/without-replacement.md",
        status="corrected",
    ),
    "without-replacement-composition": Named(
        "Without-replacement composition (Balle, Barthe & Gaboardi 2018)",
        "advanced joint convexity, Balle, Barthe & Gaboardi 2018; attained at one step",
        hidden_state=False,
    ),
    "correlated-composition": Named(
        "Matrix mechanism (Denisov, McMahan, Rush, Smith & Thakurta 2022)",
        "Denisov et al. 2022; adaptive by the Gaussian filter, docs/theory/correlated.md",
        hidden_state=False,
    ),
    "correlated-last-iterate": Named(
        "Adapted shifts of correlated noise", "this library, docs/theory/correlated.md"
    ),
}


def named(key: str) -> Named:
    """The theorem of this key."""
    if key not in THEOREMS:
        raise ClaimError(f"No independent check exists for a theorem with the key {key!r}.")
    return THEOREMS[key]


def words(
    training: Training,
    loss: Loss,
    releases: tuple[int, ...],
    theorem: str,
    unit: PrivacyUnit,
    head: tuple[str, str | None] | None = None,
) -> dict[str, Any]:
    """The fields of a certificate that are words.

    ``theorem`` is a key, ``head`` what a link of a chain follows (`document.Head`).
    """
    hidden = named(theorem).hidden_state
    rests_on = assumptions(training, loss, hidden_state=hidden, unit=unit, head=head)
    return {
        "theorem": theorem_words(theorem),
        "adjacency": training.adjacency,
        "release": release_model(training, releases),
        "assumptions": [str(each) for each in rests_on],
        "provenance": provenances(training, loss, hidden_state=hidden),
        "not_covered": list(not_covered(training)),
    }


def theorem_words(key: str) -> dict[str, str]:
    """What a certificate says about its theorem."""
    found = named(key)
    names = ("name", "reference", "status")
    return {"key": key, **{name: getattr(found, name) for name in names}}


def release_model(training: Training, releases: tuple[int, ...]) -> str:
    """What may be seen by others."""
    parts = [f"the iterate after step {step}" for step in releases]
    if isinstance(training.release, TailAverage):
        parts.append(f"the average of the last {training.release.window} iterates, or all of them")
    else:
        parts.append("the last iterate")
    return " and ".join(parts) + " released, every other iterate kept secret"


def good_nonce(nonce: Any) -> bool:
    """Whether two runs cannot have this name by chance.

    >>> good_nonce("partition of May 2024"), good_nonce("batches")
    (True, False)
    """
    return isinstance(nonce, str) and 16 <= len(nonce) <= 128
