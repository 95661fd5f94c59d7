"""What a clipped sampler hands out, as an accountant sees it.

A sampler returns many iterates of many chains. Every draw that is returned is a release, so is the
final iterate, and chains on the same data compose. A number for one last iterate of one chain says
nothing about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lastiterate.accounting import account
from lastiterate.accounting.guarantee import Guarantee
from lastiterate.curves.repeated import repeated
from lastiterate.description import Loss, TailAverage, Training
from lastiterate.description.loss import accepted_loss
from lastiterate.errors import UnsupportedError
from lastiterate.theory import Bound, Proof


@dataclass(frozen=True)
class ChainsGuarantee(Guarantee):
    """The guarantee of several chains together; ``heading`` says how ``training`` means them."""

    chains: int = 1
    heading: str = ""

    def words(self, *deltas: float) -> str:
        """The guarantee in plain words, after what the chains are."""
        return f"{self.heading}\n{super().words(*deltas)}"


@dataclass(frozen=True)
class Returned:
    """Which iterates of how many chains leave.

    Attributes:
        chain: one chain, as if its last iterate alone were released.
        releases: after how many updates an iterate of each chain is returned; the last included.
        chains: how many there are, each with noise of its own.
        regularization: the L2 term of every update, prior_precision / records for a Gaussian
            prior; None for any other prior: nothing bounds how far its gradient drives two chains
            apart, so that all iterates are accounted as released.

    >>> from lastiterate.sampling import sgld_training
    >>> from lastiterate import FullBatch
    >>> one = sgld_training(1000, 20, 1e-4, clip=1.0, batches=FullBatch())
    >>> two = [Returned(one, tuple(range(1, 21)), chains=c).guarantee().mu for c in (1, 4)]
    >>> round(two[1] / two[0], 6)
    2.0
    """

    chain: Training
    releases: tuple[int, ...]
    chains: int = 1
    regularization: float | None = 0.0

    @property
    def training(self) -> Training | None:
        """A description that by itself covers all that is returned; None for several chains.

        Its release covers every iterate from the first returned one on, also those that thinning
        left out; every iterate for a prior that is not Gaussian.
        """
        if self.chains > 1:
            return None
        window = self.chain.steps - self._shown[0] + 1
        return self.chain if window == 1 else self.chain.replace(release=TailAverage(window))

    def guarantee(self, loss: Loss | None = None, adjacency: str | None = None) -> Guarantee:
        """The tightest sound guarantee for everything that is returned.

        Args:
            loss: what is known about the loss of one record; its regularization must be that of
                the run, and for a prior that is not Gaussian nothing can be known.
            adjacency: "replace" or "zero-out"; that of the chain by default.

        A sampler looks at no row and charges nothing for what scores round: what is known of the
        loss is known from whoever asks, also if this library proves it for short rows.
        """
        chain = self.chain
        if adjacency is not None and adjacency != chain.adjacency:
            chain = chain.replace(adjacency=adjacency, sensitivity=None)
        loss = self._accepted(loss)
        if self.chains == 1:
            return account(chain, loss, releases=self._shown)
        one = account(chain, loss, releases=self._shown)
        together = _repeated(one.bounds, self.chains)
        heading = f"{self.chains:,} chains of the run below, all of them released."
        return ChainsGuarantee(one.run, together, one.lower_reference, self.chains, heading)

    @property
    def _shown(self) -> tuple[int, ...]:
        """The releases that are accounted."""
        if self.regularization is None:
            return tuple(range(1, self.chain.steps + 1))
        return self.releases

    def _accepted(self, loss: Loss | None) -> Loss:
        if self.regularization is not None:
            return accepted_loss(loss, Loss.unknown(regularization=self.regularization))
        if loss is not None and loss.kind != "unknown":
            raise UnsupportedError(
                "The prior of this run is a prior_gradient, about which nothing is known: no "
                "constants of a loss describe its updates. Leave loss out (all iterates are then "
                "accounted as released), or use prior_precision."
            )
        return Loss.unknown()


def _repeated(bounds: Sequence[Bound], times: int) -> tuple[Bound, ...]:
    """Every bound that can be composed with itself, so composed: each is a bound by itself."""
    composed = []
    note = f"It holds for one chain and is composed over {times:,} independent ones."
    for bound in bounds:
        try:
            curve = repeated(bound.curve, times)
        except UnsupportedError:
            continue
        composed.append(Bound(bound.theorem, Proof(curve, note=f"{bound.note} {note}".strip())))
    if not composed:
        raise UnsupportedError(
            "No bound of this run can be composed over several chains. Run one chain, or ask for "
            "the guarantee without a loss."
        )
    return tuple(composed)
