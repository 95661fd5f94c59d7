"""The published mini-batch theorems as entries of the ledger, to be compared.

Y: Theorems D.4, 3.3, 4.2, 4.3, D.5; L: Theorem A.1, Corollary A.3. Their numerics live in
`langevin_minibatch` and `shifted_divergence_minibatch`. All are Renyi bounds and none is better
than shifted interpolation for the same batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from lastiterate.bounds import langevin_minibatch as y
from lastiterate.bounds import shifted_divergence_minibatch as el
from lastiterate.bounds.langevin_diffusion import unit
from lastiterate.bounds.ledger import Bound, Run, Theorem
from lastiterate.curves.renyi import Renyi, linear
from lastiterate.description import Batches, Cyclic, Shuffled, WithoutReplacement

_MOST_STEPS = 20_000  # these recursions are quadratic in places


class _Published(Theorem):
    """Constant parameters, only the last iterate released, one kind of batches."""

    schemes: ClassVar[tuple[type[Batches], ...]] = (Cyclic,)

    def objection(self, run: Run) -> str | None:
        training = run.training
        if not run.steps.constant:
            return "it is stated for constant step size and noise"
        if not run.last_only:
            return "more than the last iterate is released"
        if training.steps > _MOST_STEPS:
            return f"it is not evaluated beyond {_MOST_STEPS:,} steps"
        if training.noise == 0:
            return "it needs noise"
        return self.regularity_objection(run)

    def regularity_objection(self, run: Run) -> str | None:
        """What is missing in the loss."""
        if not run.loss.convex or run.training.clipping == "gradient":
            return "it needs a convex loss whose gradients are not clipped"
        if not run.etas[0] * run.roughness < 2:
            return "it needs step_size < 2/(smoothness + regularization)"
        return None


class _WholeEpochs(_Published):
    """Theorems of Ye & Shokri 2022 that count whole epochs."""

    def regularity_objection(self, run: Run) -> str | None:
        batches = run.training.batches_per_epoch or 1
        if run.training.steps % batches or run.training.steps == 0:
            return "it counts whole epochs"
        return super().regularity_objection(run)


class _StronglyConvex(_WholeEpochs):
    """Theorems of Ye & Shokri 2022 that need strong convexity."""

    def regularity_objection(self, run: Run) -> str | None:
        reason = super().regularity_objection(run)
        if reason is None and run.curvature <= 0:
            return "it needs strong convexity (strong_convexity or regularization above 0)"
        if reason is None and run.etas[0] * (run.curvature + run.roughness) >= 2:
            return "it needs step_size < 2/(strong convexity + smoothness of the step)"
        if reason is None and (run.training.batches_per_epoch or 1) < 2:
            return "it needs at least two batches per epoch"
        return reason


def _epochs(run: Run) -> tuple[int, int]:
    batches = run.training.batches_per_epoch or 1
    return batches, run.training.steps // batches


def _shrink(run: Run) -> float:
    return run.steps.one[0]


def _worst(price: Callable[[int], float], batches: int) -> float:
    """The coefficient at the dearest position."""
    return max(price(j) for j in range(batches))


class ConvexCyclic(_WholeEpochs):
    key = "ye-shokri-2022-d4"
    name = "Ye & Shokri 2022, Theorem D.4"
    reference = "Ye & Shokri 2022, Theorem D.4"
    statement = (
        "Convex, smooth, eta < 2/beta, K epochs of B batches, record in batch j: "
        "R_alpha <= alpha (s^2/2nu^2) ((K-1)/B + 1/(B-j)). It is the taut string at c = 1."
    )
    assumptions = ("cyclic batches, whole epochs", "convex, smooth")
    dominated_by = ("worst-position",)

    def prove(self, run: Run) -> Bound:
        batches, epochs = _epochs(run)
        return Bound(self, linear(y.convex(unit(run), batches, epochs, batches - 1)))


class StronglyConvexCyclic(_StronglyConvex):
    key = "ye-shokri-2022-3.3"
    name = "Ye & Shokri 2022, Theorem 3.3"
    reference = "Ye & Shokri 2022, Theorem 3.3, as printed"
    statement = (
        "Strongly convex, smooth, eta < 2/(lambda+beta): R_alpha <= alpha (e(floor(B/2)) "
        "(1-r^(K-1))/(1-r) + e(B-j)), r = (1 - eta lambda)^(2(B - floor(B/2)))."
    )
    assumptions = ("cyclic batches, whole epochs", "strongly convex, smooth")
    dominated_by = ("worst-position",)
    coefficient = staticmethod(y.strongly_convex_printed)

    def prove(self, run: Run) -> Bound:
        batches, epochs = _epochs(run)
        c, price = _shrink(run), unit(run)
        worst = _worst(lambda j: self.coefficient(price, c, batches, epochs, j), batches)
        return Bound(self, linear(worst))


class StronglyConvexCyclicRestored(StronglyConvexCyclic):
    key = "ye-shokri-2022-3.3-restored"
    name = "Ye & Shokri 2022, Theorem 3.3, factor restored"
    reference = "Ye & Shokri 2022, Theorem 3.3, line (106)"
    status = "corrected"
    correction = "Line (107) drops a factor r of the first term; the bound holds with it."
    coefficient = staticmethod(y.strongly_convex)


class StronglyConvexCyclicBestSplit(StronglyConvexCyclic):
    key = "ye-shokri-2022-3.3-best-split"
    name = "Ye & Shokri 2022, Theorem 3.3, best split"
    reference = "Ye & Shokri 2022, Theorem 3.3 with every split of the epoch tried"
    status = "corrected"
    correction = "The split floor(B/2) is optimal only for infinitely many epochs."
    coefficient = staticmethod(y.strongly_convex_best_split)

    def regularity_objection(self, run: Run) -> str | None:
        if (run.training.batches_per_epoch or 1) > 1000:
            return "trying every split of every position is not affordable beyond 1,000 batches"
        return super().regularity_objection(run)


class BalleCyclic(_StronglyConvex):
    key = "ye-shokri-2022-d5"
    name = "Ye & Shokri 2022, Theorem D.5"
    reference = (
        "Balle et al. 2019, Theorem 5, composed over epochs as in Ye & Shokri 2022, Theorem D.5"
    )
    statement = (
        "Strongly convex, smooth: each impulse costs (s^2/2nu^2) (1 - 2 eta beta lambda/(beta + "
        "lambda))^((B-j)/2)/(B-j-1), or s^2/2nu^2 in the last batch, composed over epochs."
    )
    assumptions = ("cyclic batches, whole epochs", "strongly convex, smooth")
    dominated_by = ("worst-position",)

    def prove(self, run: Run) -> Bound:
        batches, epochs = _epochs(run)
        eta, beta, lam = float(run.etas[0]), run.roughness, run.curvature
        price = unit(run)
        worst = _worst(lambda j: y.balle(price, eta, beta, lam, batches, epochs, j), batches)
        return Bound(self, linear(worst))


class ShuffledOnce(_StronglyConvex):
    key = "ye-shokri-2022-4.2"
    name = "Ye & Shokri 2022, Theorem 4.2"
    reference = "Ye & Shokri 2022, Theorem 4.2"
    status = "corrected"
    statement = (
        "One hidden partition, reused: R_alpha <= the first term of Theorem 3.3 plus "
        "log(avg_j exp((alpha-1) alpha e(B-j)))/(alpha-1)."
    )
    correction = "The factor lost in Theorem 3.3 is restored; eta < 2/(lambda+beta) is meant."
    assumptions = ("one hidden partition, whole epochs", "strongly convex, smooth")
    dominated_by = ("hidden-position",)
    schemes = (Shuffled,)

    def prove(self, run: Run) -> Bound:
        batches, epochs = _epochs(run)
        c, price = _shrink(run), unit(run)
        return Bound(self, Renyi(lambda order: y.shuffled_once(price, c, batches, epochs, order)))


class SampledBatches(_Published):
    key = "ye-shokri-2022-4.3"
    name = "Ye & Shokri 2022, Theorem 4.3"
    reference = "Ye & Shokri 2022, Theorem 4.3"
    status = "corrected"
    statement = (
        "Batches drawn afresh without replacement, replace adjacency, strongly convex: S <- q "
        "exp((alpha-1) alpha s^2/2nu^2) S + (1-q) S^((1-eta lambda)^2), R_alpha <= log S/(alpha-1)."
    )
    correction = (
        "Only for independent batches, never for shuffles; (157) is false between true divergences "
        "but holds for bounds that are linear in the order."
    )
    assumptions = ("independent batches without replacement", "strongly convex, smooth")
    schemes = (WithoutReplacement,)

    def regularity_objection(self, run: Run) -> str | None:
        if run.training.adjacency != "replace":
            return "it is stated for replace adjacency"
        reason = super().regularity_objection(run)
        if reason is None and run.etas[0] * (run.curvature + run.roughness) >= 2:
            return "it needs step_size < 2/(strong convexity + smoothness of the step)"
        return reason

    def prove(self, run: Run) -> Bound:
        training = run.training
        rate = training.batches.divisor(training.records) / training.records
        c, price, steps = _shrink(run), unit(run), training.steps

        def divergence(order: float) -> float:
            return y.sampled_batches(price, c, min(rate * (1 + 1e-15), 1.0), steps, order)

        return Bound(self, Renyi(divergence))


class FixedSequence(_Published):
    key = "chien-li-2025-a1"
    name = "Chien & Li 2025, Theorem A.1"
    reference = "Chien & Li 2025, Theorem A.1"
    status = "corrected"
    statement = (
        "The taut-string program for one known sequence of batches, with the extra demand that "
        "every impulse after the restart is paid in full when it arrives."
    )
    correction = "The proof is repaired as for Theorem 3.1; sums run over epochs 0..E-1."
    assumptions = ("cyclic batches", "updates are c-Lipschitz")
    dominated_by = ("worst-position",)

    def regularity_objection(self, run: Run) -> str | None:
        if not run.regular:
            return "it needs a smooth loss"
        if _shrink(run) == 0:
            return "it divides by the contraction, and one step forgets everything here"
        if (run.training.batches_per_epoch or 1) * run.training.steps > 400_000:
            return "it is not evaluated beyond 400,000 positions times steps"
        return None

    def prove(self, run: Run) -> Bound:
        training = run.training
        batches = training.batches_per_epoch or 1
        c, s, nu = run.steps.one
        worst = _worst(
            lambda j: el.fixed_sequence(
                c, s, nu, training.steps, range(j, training.steps, batches), training.diameter
            ),
            batches,
        )
        return Bound(self, linear(worst))


class AveragedSequences(FixedSequence):
    key = "chien-li-2025-corollary-a3"
    name = "Chien & Li 2025, Corollary A.3"
    reference = "Chien & Li 2025, Corollary A.3"
    statement = (
        "R_alpha <= log(E exp((alpha-1) eps(alpha, position)))/(alpha-1), Theorem A.1 inside."
    )
    correction = "Joint convexity is Lemma A.5, not that of Kullback and Leibler as cited."
    assumptions = ("one hidden partition", "updates are c-Lipschitz")
    dominated_by = ("hidden-position",)
    schemes = (Shuffled,)

    def prove(self, run: Run) -> Bound:
        training = run.training
        batches = training.batches_per_epoch or 1
        c, s, nu = run.steps.one

        def divergence(order: float) -> float:
            return el.shuffled(c, s, nu, training.steps, batches, order, training.diameter)

        return Bound(self, Renyi(divergence))


PUBLISHED_MINIBATCH: tuple[Theorem, ...] = (
    ConvexCyclic(),
    StronglyConvexCyclic(),
    StronglyConvexCyclicRestored(),
    StronglyConvexCyclicBestSplit(),
    BalleCyclic(),
    ShuffledOnce(),
    SampledBatches(),
    FixedSequence(),
    AveragedSequences(),
)
