"""Certificates: privacy guarantees that travel, and that anybody can check.

`certify` signs what the accountant found and an independent check confirmed, `verify` recomputes a
certificate in ball arithmetic, `compose` joins several runs on the same data.
"""

from lastiterate.certificate.certificate import Certificate
from lastiterate.certificate.joint import compose
from lastiterate.certificate.refusals import (
    ClaimError,
    MalformedCertificateError,
    TamperedCertificateError,
    UnreadableCertificateError,
)
from lastiterate.certificate.signing import certify
from lastiterate.certificate.verification import Verification, verify

__all__ = [
    "Certificate",
    "ClaimError",
    "MalformedCertificateError",
    "TamperedCertificateError",
    "UnreadableCertificateError",
    "Verification",
    "certify",
    "compose",
    "verify",
]
