"""Certificates: privacy guarantees that travel, and that anybody can check.

`certify` seals what the accountant found and an independent check confirmed, `verify` recomputes a
certificate in ball arithmetic, `compose` joins several runs on the same data, `CertificateChain`
those that go on from each other's released models. A seal is a hash;
`Certificate.sign` adds who vouches for it.
"""

from lastiterate.certificate.certificate import Certificate
from lastiterate.certificate.chain import CertificateChain
from lastiterate.certificate.joint import compose
from lastiterate.certificate.signatures import make_key, revoke
from lastiterate.certificate.signing import certify
from lastiterate.verifier.refusals import (
    AuthenticityError,
    ClaimError,
    MalformedCertificateError,
    TamperedCertificateError,
    UnreadableCertificateError,
)
from lastiterate.verifier.verification import Verification, verify

__all__ = [
    "AuthenticityError",
    "Certificate",
    "CertificateChain",
    "ClaimError",
    "MalformedCertificateError",
    "TamperedCertificateError",
    "UnreadableCertificateError",
    "Verification",
    "certify",
    "compose",
    "make_key",
    "revoke",
    "verify",
]
