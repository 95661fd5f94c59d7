"""Runs that follow each other, each from the model that the one before released.

Every link names the certificate before it and the model that it started from; the first one names
the terms: what one person may be charged for ever, declared before anything was released. So links
that are missing, in another order or of another chain are told, and so is a chain that spent more.
What a person pays follows from the terms alone, however later links were chosen from earlier
releases (the Gaussian filter, docs/how-to/every-day.md).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lastiterate.description import LifetimeBudget, PrivacyUnit
from lastiterate.errors import LastIterateError, LifetimeBudgetError
from lastiterate.verifier.authenticity import Key, Signature, terms_payload, trusted_signers
from lastiterate.verifier.balls import need_balls
from lastiterate.verifier.document import (
    Document,
    Head,
    are_signatures,
    canonical,
    fingerprint,
)
from lastiterate.verifier.refusals import (
    AuthenticityError,
    ClaimError,
    TamperedCertificateError,
    UnreadableCertificateError,
)
from lastiterate.verifier.verification import THEORY, verify
from lastiterate.verifier.words import good_nonce

FORMAT = "lastiterate-chain"
VERSION = 1
MOST_BYTES = 10_000  # of the terms


@dataclass(frozen=True)
class Terms:
    """What was declared before the first link; ``name`` tells the chain from all others.

    The hash that the first link names, and the signatures, cover everything but ``signatures``.
    """

    name: str
    lifetime_budget: LifetimeBudget
    signatures: tuple[Signature, ...] = ()

    @property
    def content(self) -> dict[str, Any]:
        """The terms as plain values, without their signatures."""
        own = {"name": self.name, "lifetime_budget": self.lifetime_budget.to_dict()}
        return {"format": FORMAT, "version": VERSION, **own}

    @property
    def payload(self) -> bytes:
        """The bytes that a signature of the terms covers."""
        return terms_payload(self.content, self.head.sha256)

    def to_json(self) -> str:
        """The canonical text."""
        signed = {"signatures": list(self.signatures)} if self.signatures else {}
        return canonical({**self.content, **signed})

    @classmethod
    def from_json(cls, text: str) -> Terms:
        """Read the canonical text; anything else is refused."""
        try:
            table: Any = json.loads(text) if len(text) <= MOST_BYTES else None
            lifetime_budget = LifetimeBudget.from_dict(table["lifetime_budget"])
            signatures = table.get("signatures", [])
            if signatures and not are_signatures(signatures):
                raise ValueError("malformed signatures")
            terms = cls(table["name"], lifetime_budget, tuple(signatures))
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
            LastIterateError,
        ) as error:
            why = f"These are no terms of a chain: {error!r}."
            raise UnreadableCertificateError(why[:300]) from None
        if not good_nonce(terms.name) or terms.to_json() != text:
            raise TamperedCertificateError("The terms of the chain are not in their one form.")
        return terms

    @property
    def head(self) -> Head:
        """What the first link follows."""
        return Head(fingerprint(self.content), None)


@dataclass(frozen=True)
class VerifiedChain:
    """A chain whose every claim was recomputed and holds."""

    terms: Terms
    links: tuple[Document, ...]
    signed_by: tuple[str, ...] = ()  # trusted keys; together they signed the terms and every link

    @property
    def mus(self) -> tuple[float, ...]:
        """What each link costs somebody who is used in it, whatever is hidden in it."""
        return tuple(link.link.mu for link in self.links if link.link is not None)

    @property
    def unit(self) -> PrivacyUnit | None:
        """Whom every link speaks of; None of a chain without links."""
        return self.links[0].unit if self.links else None

    def __str__(self) -> str:
        whom = "" if self.unit is None else f", for {self.unit}"
        names = ", ".join(self.signed_by)
        by = f", terms and links signed by the trusted key {names}" if names else ""
        return f"verified: {len(self.links):,} links, {self.terms.lifetime_budget}{whom}{by}"


def verify_chain(
    terms: Terms,
    links: Sequence[Document],
    *,
    trusted_keys: Iterable[Key] | None = None,
    revoked: Iterable[str | os.PathLike[str]] = (),
) -> VerifiedChain:
    """Recompute every link, and that together they keep to the terms; raise what fails.

    Args:
        terms: what was declared before the first link.
        links: all certificates, the oldest first.
        trusted_keys: as in `verify`; then the terms and every link must be signed by one of them,
            and there must be a link.
        revoked: as in `verify`; a chain with a link that is revoked is refused as a whole, as
            everything after that link rests on it.
    """
    need_balls()
    keys = None if trusted_keys is None else list(trusted_keys)
    notes = list(revoked)
    if notes and keys is None:  # also where there is no link yet
        raise AuthenticityError("Notes of revocation say nothing without a trusted key.")
    signers: set[str] = set()
    if keys is not None:
        declared_by = trusted_signers(terms.payload, keys, terms.signatures, "file terms.json")
        signers.update(declared_by)
        if not links:
            raise AuthenticityError(
                "The chain has no links: there is no certificate that a trusted key could have "
                "signed. Ask for the whole folder, or check it without trusted keys."
            )
    head = terms.head
    for number, link in enumerate(links, start=1):
        check_link(number, link, head, links[0])
        try:
            signers.update(verify(link, trusted_keys=keys, revoked=notes).signed_by)
        except AuthenticityError as error:
            raise AuthenticityError(f"Link {number}: {error}") from None
        head = link.head
    checked = VerifiedChain(terms, tuple(links), tuple(sorted(signers)))
    try:
        terms.lifetime_budget.check(checked.mus)
    except LifetimeBudgetError as error:
        raise ClaimError(f"The chain spent more than its terms allow. {error}") from None
    return checked


def check_link(number: int, link: Document, head: Head, first: Document) -> None:
    """That a certificate is the next link after ``head``, and speaks of the same people."""
    place = link.link
    if place is None or place.former != head.sha256:
        raise TamperedCertificateError(
            f"Link {number} does not follow the one before it: a link is missing, in another "
            "place, or of another chain."
        )
    if place.start != head.parameters:
        raise TamperedCertificateError(
            f"Link {number} did not start from the model that the link before it released."
        )
    for field in ("adjacency", "dataset", "unit"):
        if getattr(link, field) != getattr(first, field):
            raise ClaimError(
                f"Link {number} has another {field} than the first one: the chain would speak of "
                "different neighbours or different people."
            )
    if link.of_real_numbers:
        raise ClaimError(f"Link {number} is {THEORY}. Train again.")
    if link.unit.timed:
        raise ClaimError(
            f"Link {number} speaks of {link.unit}: a chain speaks of everybody in a link."
        )
