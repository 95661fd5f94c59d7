"""A certificate that can be signed and saved: the document that a verifier reads, for its maker.

Signatures, where there are any, stand outside of what they sign.
"""

from __future__ import annotations

import os
from pathlib import Path

from lastiterate._internal.atomic_write import write_whole
from lastiterate._internal.formatting import printed
from lastiterate._internal.notebook import html_table
from lastiterate.certificate.signatures import envelope, signature
from lastiterate.description.fields import large_delta
from lastiterate.verifier.authenticity import Key
from lastiterate.verifier.document import Document


class Certificate(Document):
    """What is claimed, about which run, and why. Make one with `certify` or `compose`."""

    def sign(self, key: Key) -> Certificate:
        """The same certificate with one signature more; `verify(..., trusted_keys=)` checks it.

        Args:
            key: an Ed25519 private key: a PEM file (`lastiterate keygen`), its bytes, or a key of
                the package `cryptography`.

        >>> import tempfile
        >>> from lastiterate import FullBatch, Loss, Training, certify, verify
        >>> from lastiterate.certificate import make_key
        >>> run = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
        ...                batches=FullBatch())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     private, public = Path(folder) / "signer.pem", Path(folder) / "signer.pub"
        ...     name = make_key(private, public)
        ...     signed = certify(run, Loss(smoothness=1.0), delta=1e-5).sign(private)
        ...     verify(signed, trusted_keys=[public]).signed_by == (name,)
        True
        """
        return Certificate({**self.content, "signatures": [*self.signatures, signature(self, key)]})

    def beside(self, sha256: str) -> Certificate:
        """The same claims, sealed anew together with the hash of the file that describes the run.

        What is said there (settings, schema, scores) is then under the seal, and under signatures
        that are made afterwards; earlier ones are gone.
        """
        kept = {k: v for k, v in self.content.items() if k not in ("sha256", "signatures")}
        return Certificate.sealed({**kept, "about": sha256})

    def envelope(self) -> str:
        """The signatures as a DSSE envelope around an in-toto statement, for a file of its own."""
        return envelope(self)

    def _repr_html_(self) -> str:
        rows = [
            ("adjacency", self.adjacency),
            ("released", self.release),
            ("by", self.theorem),
            ("dataset", self.dataset or "-"),
            *(("declared, not proved", text) for text in self.declarations),
            ("sha256", self.sha256),
        ]
        heading = (
            f"Certificate: epsilon <= {printed(self.epsilon)} at delta = {printed(self.delta)} "
            "(claimed: verify() recomputes it)"
        )
        resting = "\n".join(f"Rests on: {text}" for text in self.assumptions)
        missing = "\n".join(f"Not covered: {text}" for text in self.not_covered)
        return html_table(heading, rows, details=f"{resting}\n{missing}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the document; at every moment the path holds the old file or the whole new one."""
        write_whole(Path(path), self.to_json().encode("ascii"))


def weakness(document: Document) -> str | None:
    """Why its delta makes a small epsilon say little; None where that is below 1/records."""
    runs = [run.training for run in document.parts or (document,)]
    records = [run.records for run in runs if run is not None]
    return large_delta(document.delta, max(records or [document.content["records"]]))
