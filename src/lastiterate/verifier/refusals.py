"""Why a certificate is not accepted."""

from __future__ import annotations

from lastiterate.errors import CertificateError


class UnreadableCertificateError(CertificateError):
    """The file is not a certificate that this version can read."""


class MalformedCertificateError(UnreadableCertificateError):
    """The file says that it is a certificate, but what it holds cannot be one."""


class TamperedCertificateError(CertificateError):
    """The content does not match its own hash, or not the model it is said to belong to."""


class ClaimError(CertificateError):
    """A number that the certificate claims does not hold."""


class AuthenticityError(CertificateError):
    """No trusted key signed the certificate, or it was changed after that."""
