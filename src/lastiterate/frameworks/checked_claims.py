"""What a certificate claims about a model, verified before it is written anywhere else."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from lastiterate.certificate import Certificate, verify
from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.verifier.verification import THEORY

Source = Certificate | str | os.PathLike[str]


def checked(certificate: Source) -> Certificate:
    """The certificate, recomputed; raises if a claim fails, or if it is about no trained model."""
    if isinstance(certificate, (str, os.PathLike)):
        certificate = Certificate.load(Path(certificate))
    if not isinstance(certificate, Certificate):
        found, why = type(certificate).__name__, "only what is verified is handed on"
        raise DescriptionError("certificate", found, "a Certificate or the path of one", why)
    verify(certificate)
    if certificate.of_real_numbers:
        raise AssumptionError(
            f"This certificate is {THEORY}. Train with this library and use its certificate."
        )
    return certificate


def guarantee_metrics(certificate: Source) -> dict[str, float]:
    """The numbers of a certificate as a plain dict, for any logger: ``wandb.log(...)`` and others.

    The certificate is verified first. Loggers that keep single precision would round to nearest:
    numbers here are rounded up to ones that single precision holds.

    Args:
        certificate: a `Certificate`, or the path of one.

    >>> from lastiterate import FullBatch, Training
    >>> from lastiterate.losses import Logistic
    >>> from lastiterate.train import noisy_descent
    >>> run = Training(records=40, steps=20, step_size=1.0, noise=0.3, gradient_norm=1.0,
    ...                batches=FullBatch(), adjacency="zero-out")
    >>> X, y = np.eye(40)[:, :3], np.resize([1.0, -1.0], 40)
    >>> certificate = noisy_descent(Logistic(), X, run, labels=y).certificate(delta=1e-5)
    >>> found = guarantee_metrics(certificate)
    >>> sorted(found), certificate.epsilon <= found["privacy/epsilon"] < 1.439
    (['privacy/delta', 'privacy/epsilon', 'privacy/mu'], True)
    """
    return metrics(checked(certificate))


def metrics(verified: Certificate) -> dict[str, float]:
    """Of a certificate that was verified."""
    found: dict[str, Any] = {
        "privacy/epsilon": verified.epsilon,
        "privacy/delta": verified.delta,
        "privacy/mu": verified.mu,
    }
    return {name: single(value) for name, value in found.items() if value is not None}


def single(value: float) -> float:
    """The smallest number of single precision that is not below.

    >>> single(0.1) >= 0.1, single(0.5), single(1e-300) > 0
    (True, 0.5, True)
    """
    with np.errstate(over="ignore", under="ignore"):
        near = np.float32(value)
        return float(near if float(near) >= value else np.nextafter(near, np.float32(math.inf)))
