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

from lastiterate.description import Allowance
from lastiterate.errors import AllowanceError, LastIterateError
from lastiterate.verifier.authenticity import Key
from lastiterate.verifier.balls import need_balls
from lastiterate.verifier.document import Document, Head, canonical, fingerprint
from lastiterate.verifier.refusals import (
    AuthenticityError,
    ClaimError,
    TamperedCertificateError,
    UnreadableCertificateError,
)
from lastiterate.verifier.verification import verify
from lastiterate.verifier.words import good_nonce

FORMAT = "lastiterate-chain"
VERSION = 1
_MOST_TEXT = 10_000


@dataclass(frozen=True)
class Terms:
    """What was declared before the first link; ``name`` tells the chain from all others."""

    name: str
    allowance: Allowance

    def to_json(self) -> str:
        """The canonical text."""
        table = {"name": self.name, "allowance": self.allowance.to_dict()}
        return canonical({"format": FORMAT, "version": VERSION, **table})

    @classmethod
    def from_json(cls, text: str) -> Terms:
        """Read the canonical text; anything else is refused."""
        try:
            table: Any = json.loads(text) if len(text) <= _MOST_TEXT else None
            terms = cls(table["name"], Allowance.from_dict(table["allowance"]))
        except (ValueError, TypeError, KeyError, RecursionError, LastIterateError) as error:
            why = f"These are no terms of a chain: {error!r}."
            raise UnreadableCertificateError(why[:300]) from None
        if not good_nonce(terms.name) or terms.to_json() != text:
            raise TamperedCertificateError("The terms of the chain are not in their one form.")
        return terms

    @property
    def head(self) -> Head:
        """What the first link follows."""
        return Head(fingerprint(json.loads(self.to_json())), None)


@dataclass(frozen=True)
class VerifiedChain:
    """A chain whose every claim was recomputed and holds."""

    terms: Terms
    links: tuple[Document, ...]

    @property
    def mus(self) -> tuple[float, ...]:
        """What each link costs somebody who is used in it, whatever is hidden in it."""
        return tuple(link.link.mu for link in self.links if link.link is not None)

    def __str__(self) -> str:
        whom = [f", for {link.exposure}" for link in self.links[:1] if not link.exposure.default]
        return f"verified: {len(self.links):,} links, {self.terms.allowance}{''.join(whom)}"


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
        trusted_keys: as in `verify`; then every link must be signed by one of them.
        revoked: as in `verify`; a chain with a link that is revoked is refused as a whole, as
            everything after that link rests on it.
    """
    need_balls()
    keys = None if trusted_keys is None else list(trusted_keys)
    notes = list(revoked)
    if notes and keys is None:  # also where there is no link yet
        raise AuthenticityError("Notes of revocation say nothing without a trusted key.")
    head = terms.head
    for number, link in enumerate(links, start=1):
        check_link(number, link, head, links[0])
        try:
            verify(link, trusted_keys=keys, revoked=notes)
        except AuthenticityError as error:
            raise AuthenticityError(f"Link {number}: {error}") from None
        head = link.head
    checked = VerifiedChain(terms, tuple(links))
    try:
        terms.allowance.check(checked.mus)
    except AllowanceError as error:
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
    for field in ("adjacency", "dataset", "exposure"):
        if getattr(link, field) != getattr(first, field):
            raise ClaimError(
                f"Link {number} has another {field} than the first one: the chain would speak of "
                "different neighbours or different people."
            )
    if link.exposure.timed:
        raise ClaimError(
            f"Link {number} speaks of {link.exposure}: a chain speaks of everybody in a link."
        )
