"""A trained model in a folder: model, certificate and report appear together or not at all.

``model.joblib`` holds a `TableModel`. Loading a joblib file runs code, as any pickle does: load
only what you trust. ``certificate.json`` is for `lastiterate verify`; ``report.md`` for people.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib

from lastiterate.errors import DescriptionError
from lastiterate.models.schema import Schema
from lastiterate.models.table import read_table


@dataclass(frozen=True)
class TableModel:
    """A fitted model and the schema that turns a table's rows into its features."""

    schema: Schema
    model: Any

    def predict(self, path: str | os.PathLike[str]) -> Any:
        """Predictions for every row of a CSV file; a target column is ignored."""
        return self.model.predict(self.schema.features(read_table(Path(path))))


def free(folder: Path) -> None:
    """Raise if the folder could not be made later: better before training than after."""
    if folder.exists():
        why = "an older model must not be mixed with a new certificate"
        raise DescriptionError("out", str(folder), "a folder that does not exist yet", why)
    if not folder.absolute().parent.is_dir():
        parent = str(folder.absolute().parent)
        raise DescriptionError("out", parent, "inside a folder that exists", "nothing is guessed")


def save(folder: Path, trained: TableModel, report: str) -> None:
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


def report(trained: TableModel, records: int, warnings: list[str]) -> str:
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
            f"Privacy: epsilon = {certificate.epsilon:.6g} at delta = {certificate.delta:g}, "
            f"{certificate.adjacency} adjacency, by {certificate.theorem}.",
            "Check it: `lastiterate verify certificate.json`.",
        ]
    lines += [
        "",
        f"{records:,} records, {len(schema.columns)} columns, "
        f"{model.n_features_in_} features after encoding; {model._rows}.",
        "Accuracy on the training records is not reported: it would be one more release.",
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
