"""A verified guarantee in a run of MLflow: numbers, words, and the certificate itself."""

from __future__ import annotations

from typing import Any

from mlflow.tracking import MlflowClient, fluent

from lastiterate.errors import DescriptionError
from lastiterate.frameworks.checked_claims import Source, checked, metrics

ARTIFACT = "privacy/certificate.json"


def log_guarantee(certificate: Source, run: Any = None) -> None:
    """Log a certificate to a run of MLflow, after it was verified.

    Metrics privacy/epsilon, privacy/delta and, where there is one, privacy/mu; tags with the
    adjacency, the release, the theorem and the hash; the file as the artifact
    privacy/certificate.json, which ``lastiterate verify`` reads.

    Args:
        certificate: a `Certificate`, or the path of one.
        run: a run of MLflow or its id; by default the active one.

    >>> log_guarantee("certificate.json")  # inside of mlflow.start_run()  # doctest: +SKIP
    """
    if run is None:
        run = fluent.active_run()
    if run is None:
        why = "a guarantee is logged beside the model that it is about"
        raise DescriptionError("run", None, "a run of MLflow, or an active one", why)
    name = run if isinstance(run, str) else run.info.run_id
    verified, client = checked(certificate), MlflowClient()
    for key, value in metrics(verified).items():
        client.log_metric(name, key, value)
    told = {
        "privacy.adjacency": verified.adjacency,
        "privacy.release": verified.release,
        "privacy.theorem": verified.theorem,
        "privacy.dataset": verified.dataset,
        "privacy.certificate.sha256": verified.sha256,
    }
    for key, text in told.items():
        client.set_tag(name, key, text)
    client.log_text(name, verified.to_json(), ARTIFACT)
