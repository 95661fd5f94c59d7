"""A trained model in a folder: model, certificate and report appear together or not at all.

``model.joblib`` holds a `TableModel`. Loading a joblib file runs code, as any pickle does: load
only what you trust. ``certificate.json`` is for `lastiterate verify`; ``report.md`` for people;
``run.json`` says the same to programs, and is what `lastiterate report` reads.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib

from lastiterate.errors import DescriptionError
from lastiterate.models.schema import Schema
from lastiterate.models.table import read_table
from lastiterate.printing import printed


@dataclass(frozen=True)
class TableModel:
    """A fitted model and the schema that turns a table's rows into its features."""

    schema: Schema
    model: Any

    def predict(self, path: str | os.PathLike[str]) -> Any:
        """Predictions for every row of a CSV file; a target column is ignored."""
        return self.model.predict(self.schema.features(read_table(Path(path))))


@dataclass(frozen=True)
class Score:
    """How well a model predicts records that it was not trained on.

    The certificate says nothing about those records: their share of right answers is a release.
    """

    name: str
    value: float
    records: int

    @classmethod
    def of(cls, model: Any, X: Any, y: Any) -> Score:
        """Accuracy of a classifier, R squared of a regressor."""
        name = "accuracy" if hasattr(model, "classes_") else "R squared"
        return cls(name, float(model.score(X, y)), len(y))


def free(folder: Path) -> None:
    """Raise if the folder could not be made later: better before training than after."""
    if folder.exists():
        why = "an older model must not be mixed with a new certificate"
        raise DescriptionError("out", str(folder), "a folder that does not exist yet", why)
    if not folder.absolute().parent.is_dir():
        parent = str(folder.absolute().parent)
        raise DescriptionError("out", parent, "inside a folder that exists", "nothing is guessed")


def save(folder: Path, trained: TableModel, report: str, about: Mapping[str, Any]) -> None:
    """Write everything beside the folder first, then rename."""
    free(folder)
    parent = folder.absolute().parent
    try:
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=parent))
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        joblib.dump(trained, staging / "model.joblib")
        certificate = trained.model.certificate_
        if certificate is not None:
            certificate.save(staging / "certificate.json")
        (staging / "report.md").write_text(report, encoding="utf-8")
        text = json.dumps(about, indent=2, allow_nan=False)
        (staging / "run.json").write_text(text + "\n", encoding="utf-8")
        staging.chmod(0o755)
        os.rename(staging, folder)
    except BaseException as error:
        shutil.rmtree(staging, ignore_errors=True)
        if isinstance(error, OSError):
            raise _unwritable(folder, error) from None
        raise


def _unwritable(folder: Path, error: OSError) -> DescriptionError:
    why = "the model was trained but is nowhere; training again spends privacy again"
    return DescriptionError("out", f"{folder} ({error})", "a folder that can be written", why)


def about(
    trained: TableModel, records: int, warnings: Sequence[str], score: Score | None = None
) -> dict[str, Any]:
    """What is publicly known of the run, for programs; nothing in it is read off the records."""
    model, schema = trained.model, trained.schema
    return {
        "format": "lastiterate-run",
        "version": 1,
        "model": type(model).__name__,
        "target": schema.target_name,
        "records": records,
        "columns": len(schema.columns),
        "features": int(model.n_features_in_),
        "certified": model.certificate_ is not None,
        "delta": model.delta_,
        "training": model.training_.to_dict(),
        "loss": model.loss_.to_dict(),
        "choice": [list(reason) for reason in model.choice_.reasons],
        "warnings": list(warnings),
        "score": None if score is None else asdict(score),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("lastiterate", "numpy", "scipy", "scikit-learn")},
        },
    }


def report(
    trained: TableModel, records: int, warnings: list[str], score: Score | None = None
) -> str:
    """A page for people: what was trained, what it costs, what was chosen and why."""
    model, schema = trained.model, trained.schema
    certificate = model.certificate_
    lines = [f"# {type(model).__name__} of {schema.target_name!r}", ""]
    if certificate is None:
        lines.append(
            "**An experiment: the noise was seeded or absent, so there is no certificate.**"
        )
    else:
        lines += [
            f"Privacy: epsilon = {printed(certificate.epsilon)} at delta = "
            f"{printed(certificate.delta)}, "
            f"{certificate.adjacency} adjacency, by {certificate.theorem}.",
            "Check it: `lastiterate verify certificate.json`.",
        ]
    lines += [
        "",
        f"{records:,} records, {len(schema.columns)} columns, "
        f"{model.n_features_in_} features after encoding; {model._rows}.",
        _scored(score),
        "",
        "## What was chosen, and why",
        *(f"- {line}" for line in str(model.choice_).splitlines()),
        "",
        "## The run",
        f"{model.training_}; loss {model.loss_}.",
    ]
    if certificate is not None:
        lines += ["", "## It rests on", *(f"- {text}" for text in certificate.assumptions)]
        uncovered = certificate.content["not_covered"]
        lines += ["", "## Not covered", *(f"- {text}" for text in uncovered)]
    if warnings:
        lines += ["", "## Warnings", *(f"- {text}" for text in warnings)]
    lines += ["", "Load the model with `joblib.load` only if you trust this folder.", ""]
    return "\n".join(lines)


def _scored(score: Score | None) -> str:
    if score is None:
        return "Accuracy on the training records is not reported: it would be one more release."
    return (
        f"{score.name} on {score.records:,} other records: {score.value:.4f}. The certificate does "
        "not cover those records; this number is a release about them."
    )
