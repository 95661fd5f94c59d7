"""Checking a certificate without trusting whoever wrote it, nor the accountant.

Every claim is recomputed from the description and the witness in ball arithmetic. This package
imports descriptions, errors and python-flint, and none of the code that proposed the numbers.
"""

from lastiterate.verifier.verification import Verification, verify

__all__ = ["Verification", "verify"]
