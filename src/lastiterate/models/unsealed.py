"""What a certificate will say, fixed when the run ends and sealed when somebody asks for it.

Proving a number a second time takes longer than everything else that `fit` does beside training.
Whoever only predicts does not wait for it; whoever asks gets the certificate of the run as it was,
whatever happened to the fitted attributes since.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.certificate import Certificate, certify, compose
from lastiterate.certificate.signing import Computed
from lastiterate.description import Loss
from lastiterate.train import Descent
from lastiterate.verifier.document import Head


@dataclass(frozen=True, eq=False)
class Unsealed:
    """A run that ended, the parameters it released, and what was paid before it."""

    released: Descent
    loss: Loss
    delta: float
    parameters: Mapping[str, NDArray[Any]]
    nonce: str
    before: tuple[Certificate | Unsealed, ...] = ()
    follows: Head | None = None

    @classmethod
    def of(
        cls,
        released: Descent,
        loss: Loss,
        delta: float,
        parameters: Mapping[str, NDArray[Any]],
        before: Sequence[Certificate | Unsealed] = (),
        follows: Head | None = None,
    ) -> Unsealed:
        """Copies the parameters; copies of a model seal one certificate, with one nonce."""
        kept = {name: np.array(value) for name, value in parameters.items()}
        nonce = released.partition_nonce or secrets.token_hex(16)
        return cls(released, loss, delta, kept, nonce, tuple(before), follows)

    def seal(self) -> Certificate:
        """The certificate, checked before it is returned."""
        own = certify(
            self.released.training,
            self.loss,
            self.delta,
            parameters=Computed(self.parameters),
            nonce=self.nonce,
            unit=self.released.unit,
            follows=self.follows,
            started=None if self.follows is None else self.follows.parameters,
        )
        paid = [each.seal() if isinstance(each, Unsealed) else each for each in self.before]
        return compose([*paid, own]) if paid else own


class SealedWhenRead:
    """``certificate_`` of a fitted estimator: held unsealed until somebody reads it."""

    @property
    def certificate_(self) -> Certificate | None:
        """The privacy that was spent, sealed when it is first read; None for experiments."""
        if "certificate_" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no certificate_: it is not fitted")
        held = self.__dict__["certificate_"]
        if isinstance(held, Unsealed):
            held = self.__dict__["certificate_"] = held.seal()
        return held  # type: ignore[no-any-return]

    @certificate_.setter
    def certificate_(self, certificate: Certificate | Unsealed | None) -> None:
        self.__dict__["certificate_"] = certificate
