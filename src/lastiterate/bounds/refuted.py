"""Published claims that are false, kept so that nobody has to find out twice.

Each names its counterexample, which is a test of this library. None can carry a guarantee; the
formulas as printed are in `lastiterate.published`, for study.
"""

from __future__ import annotations

from typing import NoReturn

from lastiterate.bounds.ledger import Run, Theorem
from lastiterate.errors import AssumptionError


class RefutedClaim(Theorem):
    """A claim with a counterexample."""

    status = "refuted"
    counterexample: str

    def objection(self, run: Run) -> str | None:
        return "it is refuted"

    def prove(self, run: Run) -> NoReturn:
        raise AssumptionError(f"{self.name} is refuted: {self.counterexample}.")


class OutputPerturbationPrinted(RefutedClaim):
    key = "chien-li-2025-figure-1"
    name = "Chien & Li 2025, Figure 1, output perturbation"
    reference = "Chien & Li 2025, Figure 1 and appendix A.13"
    statement = "On a domain of diameter D the last iterate has R_alpha <= alpha D^2/(2 nu^2)."
    counterexample = (
        "two runs at opposite ends of [0, D] take one more gradient step outwards before noise and "
        "projection; with D = 1, nu = 0.5, s = 0.5 the atoms at the end points have "
        "mu = (D + s)/nu = 3 where D/nu = 2 is claimed"
    )
    correction = "Use (g(D) + s)/nu: see Output perturbation."


class WithoutReplacementPrinted(RefutedClaim):
    key = "chien-li-2025-3.12-printed"
    name = "Chien & Li 2025, Theorem 3.12, as printed"
    reference = "Chien & Li 2025, Definition 3.11 and Theorem 3.12"
    statement = "Batches without replacement cost S_alpha, the divergence of N from the mixture."
    counterexample = (
        "the divergence is taken in the wrong direction and never exceeds log 1/(1-q); n = 2, "
        "batch 1, one step, impulse/noise 2, order 2: claimed 0.4385, true 2.6672"
    )
    correction = "The corrected theorem charges the subsampled Gaussian profile in both orders."


class ClippedSoftmaxPrinted(RefutedClaim):
    key = "ye-shokri-2022-f2"
    name = "Ye & Shokri 2022, Proposition F.2 and Corollary 5.3"
    reference = "Ye & Shokri 2022, Propositions 5.2 = F.2, Corollary 5.3"
    statement = "Clipped softmax regression with an L2 term lambda contracts by 1 - eta lambda."
    counterexample = (
        "three classes, one feature x = 3, logits 0, 5, 6.6, lambda = 0.05, eta = 0.353: the "
        "update expands by 1.037 where 0.982 is claimed"
    )
    correction = "True for two classes. Otherwise do not clip, or use the clipped-convex constant."


class IterativeCompositionPrinted(RefutedClaim):
    key = "he-wang-tao-2020-4"
    name = "He, Wang & Tao 2020, Theorems 4 and 6, Corollary 2"
    reference = "He, Wang & Tao 2020, Theorems 4 and 6, Corollary 2"
    statement = "A closed form for delta' of T-fold composition of (epsilon, delta) mechanisms."
    counterexample = (
        "each round reveals the bit with probability delta: delta' is at least 1-(1-delta)^T; "
        "epsilon = 1, T = 1000, delta = 1e-5: claimed 8.267e-3, optimal 9.950e-3"
    )
    correction = "Use the exact optimum, lastiterate.composition.optimal."


class MomentCompositionPrinted(RefutedClaim):
    key = "he-wang-tao-2020-corollary-3"
    name = "He, Wang & Tao 2020, Corollary 3"
    reference = "He, Wang & Tao 2020, Corollary 3"
    statement = "A Chernoff form of delta'' for pure mechanisms."
    counterexample = (
        "the sign of an exponent is wrong; epsilon = 0.1, T = 100: claimed 1.1e-12, optimal 6.2e-8"
    )
    correction = "With the sign corrected it is sound: 4.8e-6 in the same example."


class SgldPrinted(RefutedClaim):
    key = "he-wang-tao-2020-7"
    name = "He, Wang & Tao 2020, Theorems 7 and 8"
    reference = "He, Wang & Tao 2020, Theorems 7 (SGLD) and 8 (federated averaging)"
    statement = "Closed forms for the privacy of SGLD and of agnostic federated learning."
    counterexample = (
        "the Gaussian step loses a factor of 2; mu = 3, q = 1e-3, T = 1e4: claimed (15.03, 1e-4), "
        "true delta at least 4.6e-3"
    )
    correction = "Compose the exact one-step profile as a privacy-loss distribution."


class PosteriorSamplingPrinted(RefutedClaim):
    key = "heller-fetaya-2022-a1"
    name = "Heller & Fetaya 2022, Lemma A.1"
    reference = "Heller & Fetaya 2022, Lemmas A.1, IV.3, IV.4"
    statement = "RDP of one posterior sample if n > 1 + 10 (x_h/x_l)^2 nu/beta."
    counterexample = (
        "beta = 10, nu = 20, x_l = x_h = 1, n = 23: exact 835.7 above the claimed 257.4"
    )
    correction = "The condition must not be divided by beta."


REFUTED: tuple[RefutedClaim, ...] = (
    OutputPerturbationPrinted(),
    WithoutReplacementPrinted(),
    ClippedSoftmaxPrinted(),
    IterativeCompositionPrinted(),
    MomentCompositionPrinted(),
    SgldPrinted(),
    PosteriorSamplingPrinted(),
)
