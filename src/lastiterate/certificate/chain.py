"""A model that is updated and released again and again: its certificates, in a folder.

Each link is a folder of its own, with the certificate and the model that was released, which
appears whole or not at all: a process that is killed leaves the chain as it was before the link, or
after it. A link that would cost somebody more than was declared is refused before it exists.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._internal.atomic_write import write_whole
from lastiterate._internal.formatting import printed
from lastiterate._internal.safe_io import archived, read_arrays
from lastiterate.certificate.certificate import Certificate
from lastiterate.certificate.released import Released, certify_released
from lastiterate.certificate.signatures import private_key, signature_of
from lastiterate.curves import gaussian
from lastiterate.description import LifetimeBudget, Loss, PrivacyUnit
from lastiterate.errors import CertificateError, DescriptionError
from lastiterate.verifier.authenticity import Key, read_bounded
from lastiterate.verifier.chain import (
    MOST_BYTES,
    Terms,
    VerifiedChain,
    check_link,
    verify_chain,
)
from lastiterate.verifier.document import Head, parameters_hash
from lastiterate.verifier.refusals import TamperedCertificateError, UnreadableCertificateError
from lastiterate.verifier.verification import verify

Model = NDArray[np.float64] | dict[str, NDArray[np.float64]]

TERMS, _CERTIFICATE, _MODEL = "terms.json", "certificate.json", "parameters.npz"
_NAMED = "named."
_ALONE = "parameters"  # the name of a model that is one array; those of others have a prefix


class CertificateChain:
    """The links of a model that goes on from what it released before.

    Args:
        folder: what `CertificateChain.create` made.
        key: an Ed25519 private key, as for `Certificate.sign`, that signs every link that is added.

    >>> from lastiterate import CertificateChain, Cyclic, Training
    >>> from lastiterate.losses import Logistic
    >>> from lastiterate.train import noisy_descent
    >>> X, y = np.eye(40)[:, :3], np.resize([1.0, -1.0], 40)
    >>> day = Training(records=40, steps=20, step_size=1.0, noise=0.3, gradient_norm=1.0,
    ...                batches=Cyclic(2), adjacency="zero-out", schedule="equalised")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     chain = CertificateChain.create(Path(folder) / "model", epsilon=5.0, delta=1e-3, days=2)
    ...     for _ in range(3):
    ...         today = noisy_descent(Logistic(), X, day, labels=y, continue_from=chain)
    ...         link = chain.append(today, delta=1e-3)
    ...     len(chain.verify().links), f"{link.epsilon:.3f}", f"{chain.epsilon(1e-3):.3f}"
    (3, '0.952', '5.000')
    """

    def __init__(self, folder: str | os.PathLike[str], *, key: Key | None = None) -> None:
        self.folder = Path(folder)
        self._key = None if key is None else private_key(key)  # raises before anything is spent
        try:
            text = read_bounded(self.folder / TERMS, MOST_BYTES).decode("ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise UnreadableCertificateError(
                f"{self.folder} holds no chain ({type(error).__name__}). "
                "CertificateChain.create makes one."
            ) from None
        self.terms = Terms.from_json(text)

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        lifetime_budget: LifetimeBudget | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        days: int | None = None,
        key: Key | None = None,
    ) -> CertificateChain:
        """A new chain, with what one person may be charged for ever.

        Args:
            folder: where its links will be; it must not exist yet.
            lifetime_budget: what is declared; or give epsilon and delta.
            epsilon, delta: the same as (epsilon, delta), for somebody who is used on all ``days``.
                Each day may cost its share: mu/√days.
            days: nobody's data are used on more days; None: on all of them.
            key: an Ed25519 private key that signs the terms and every link that is added.
        """
        private = None if key is None else private_key(key)
        if (lifetime_budget is None) != (epsilon is not None and delta is not None):
            why = "what a person may be charged is declared before the first day, once"
            raise DescriptionError(
                "lifetime_budget", lifetime_budget, "given, or epsilon and delta", why
            )
        if lifetime_budget is None:
            assert epsilon is not None
            assert delta is not None
            mu = gaussian.mu(epsilon, delta)
            lifetime_budget = LifetimeBudget(mu, days)
            if days is not None:  # a little less, so that so many of them are not too much
                lifetime_budget = LifetimeBudget(mu, days, mu / np.sqrt(days) * (1 - 1e-12))
        path = Path(folder)
        try:
            path.mkdir(mode=0o755)
        except OSError as error:
            allowed = "a folder that does not exist yet, inside one that does"
            why = "an older chain is never mixed with a new one"
            raise DescriptionError("folder", f"{path} ({error.strerror})", allowed, why) from None
        terms = Terms(secrets.token_hex(16), lifetime_budget)
        if private is not None:
            terms = replace(terms, signatures=(signature_of(terms.payload, private),))
        write_whole(path / TERMS, terms.to_json().encode("ascii"), replace=False)
        return cls(path, key=private)

    @property
    def lifetime_budget(self) -> LifetimeBudget:
        """What was declared before the first link."""
        return self.terms.lifetime_budget

    def __len__(self) -> int:
        found = [path.name for path in self.folder.iterdir() if path.name.isdecimal()]
        if sorted(found) != [_name(k) for k in range(1, len(found) + 1)]:
            raise TamperedCertificateError(f"A link is missing in {self.folder}: {sorted(found)}.")
        return len(found)

    @property
    def links(self) -> tuple[Certificate, ...]:
        """The certificates, the oldest first."""
        return tuple(self._certificate(k) for k in range(1, len(self) + 1))

    @property
    def head(self) -> Head:
        """What the next link follows: `certify(..., follows=)`."""
        count = len(self)
        return self._certificate(count).head if count else self.terms.head

    @property
    def parameters(self) -> Model | None:
        """The model that was released last, which the next run starts from; None: none yet."""
        count = len(self)
        return self._model(count, self._certificate(count)) if count else None

    @property
    def remaining_mu(self) -> float:
        """The largest mu that the next link may cost."""
        return self.lifetime_budget.remaining_mu(_mus(self.links))

    def append(
        self,
        released: Released,
        delta: float,
        *,
        loss: Loss | None = None,
        dataset: str = "",
        releases: Iterable[int] = (),
        unit: PrivacyUnit | None = None,
    ) -> Certificate:
        """Certify what a run released and add it; nothing is added if it is refused.

        Args:
            released: of ``noisy_descent(..., continue_from=chain)``.
            delta, dataset, releases: as in `certify`.
            unit: as in `certify`; by default the person whom the run was made for (``groups``).
            loss: as in `Descent.certificate`.
        """
        certificate = certify_released(
            released,
            delta,
            loss=loss,
            dataset=dataset,
            releases=releases,
            unit=unit,
            follows=self.head,
        )
        return self.add(certificate, released.parameters)

    def add(self, certificate: Certificate, parameters: Any) -> Certificate:
        """Add a link that was certified with ``follows=chain.head``, and the model it is bound to.

        Returns it, signed with the chain's key if there is one. Publish the model after this, never
        before: what is refused must not have left.
        """
        links = self.links
        number = len(links) + 1
        head = links[-1].head if links else self.terms.head
        check_link(number, certificate, head, links[0] if links else certificate)
        verify(certificate, parameters=parameters)
        self.lifetime_budget.check(_mus((*links, certificate)))
        if self._key is not None:
            certificate = certificate.sign(self._key)
        self._write(number, certificate, parameters)
        return certificate

    def sign(self, key: Key) -> None:
        """Sign the terms and every link, after `verify`: for a chain that was begun without a key.

        Args:
            key: an Ed25519 private key, as for `Certificate.sign`.
        """
        private = private_key(key)
        checked = self.verify()
        own = signature_of(self.terms.payload, private)
        text = replace(self.terms, signatures=(*self.terms.signatures, own)).to_json()
        terms = Terms.from_json(text)  # raises where there are too many signatures
        for number, link in enumerate(checked.links, start=1):
            signed = Certificate(link.content).sign(private)
            signed.save(self.folder / _name(number) / _CERTIFICATE)
        write_whole(self.folder / TERMS, text.encode("ascii"))
        self.terms = terms

    def _write(self, number: int, certificate: Certificate, parameters: Any) -> None:
        """The whole link, or nothing; never over another one."""
        staging = Path(tempfile.mkdtemp(prefix=".link-", dir=self.folder))
        try:
            write_whole(staging / _MODEL, _written(parameters))
            write_whole(staging / _CERTIFICATE, certificate.to_json().encode("ascii"))
            staging.chmod(0o755)
            os.rename(staging, self.folder / _name(number))  # fails where the name is taken
        except BaseException as error:
            shutil.rmtree(staging, ignore_errors=True)
            if isinstance(error, OSError):
                raise CertificateError(
                    f"Link {number} could not be added to {self.folder} ({error.strerror}): "
                    "another one may have been added meanwhile. The model must not be released."
                ) from None
            raise

    def verify(
        self,
        *,
        trusted_keys: Iterable[Key] | None = None,
        revoked: Iterable[str | os.PathLike[str]] = (),
    ) -> VerifiedChain:
        """Recompute every link, their order, their models and what was spent, or raise.

        With ``trusted_keys`` the terms and every link must be signed by one of them, there must be
        a link, and ``revoked`` notes count: see `verify`.
        """
        links = self.links
        checked = verify_chain(self.terms, links, trusted_keys=trusted_keys, revoked=revoked)
        for number, link in enumerate(links, start=1):
            self._model(number, link)
        return checked

    def epsilon(self, delta: float, days: int | None = None) -> float:
        """For ever: for everybody who is used on at most so many days (None: as was declared)."""
        return gaussian.epsilon(self.lifetime_budget.person(days), delta)

    def __str__(self) -> str:
        links, most = self.links, self.lifetime_budget.days
        lines = [f"{len(links):,} links; declared before the first: {self.lifetime_budget}"]
        lines += [f"  for {link.unit}:" for link in links[:1]]
        for number, link in enumerate(links, start=1):
            at = f"at delta = {printed(link.delta)}"
            lines.append(f"  used in link {number} alone: epsilon <= {printed(link.epsilon)} {at}")
        for delta in sorted({link.delta for link in links}):
            many = "any number of" if most is None else f"at most {most:,}"
            promise = f"epsilon <= {printed(self.epsilon(delta))} at delta = {printed(delta)}"
            lines.append(f"  used in {many} links, for ever: {promise}")
        return "\n".join(lines)

    def _model(self, number: int, link: Certificate) -> Model:
        model = _read(self.folder / _name(number) / _MODEL)
        if parameters_hash(model) != link.content["parameters"]:
            raise TamperedCertificateError(
                f"The model of link {number} is not the one that its certificate is bound to."
            )
        return model

    def _certificate(self, number: int) -> Certificate:
        return Certificate.load(self.folder / _name(number) / _CERTIFICATE)


def _name(number: int) -> str:
    return f"{number:06d}"


def _mus(links: Iterable[Certificate]) -> list[float]:
    return [link.link.mu for link in links if link.link is not None]


def _written(parameters: Any) -> bytes:
    """Arrays as an archive, never a pickle."""
    if isinstance(parameters, Mapping):
        return archived({f"{_NAMED}{key}": value for key, value in parameters.items()})
    return archived({_ALONE: parameters})


def _read(path: Path) -> Model:
    try:
        arrays = read_arrays(path)
    except DescriptionError as error:
        raise UnreadableCertificateError(f"{path} holds no model: {error}") from None
    if set(arrays) == {_ALONE}:
        return arrays[_ALONE]
    return {name.removeprefix(_NAMED): values for name, values in arrays.items()}
