"""Deletes records from a run's folder: clean steps on what remains, and a new certificate.

`erase` replaces the run's folder: killed at any moment, it is the old one or the new one. Where it
was killed between two renames, the next command that opens the folder puts the new one in place
(`folder_replacement`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._internal.file_lock import held
from lastiterate._internal.folder_replacement import finish_locked, replace_folder, replacement_lock
from lastiterate._internal.formatting import printed
from lastiterate.certificate import Certificate
from lastiterate.certificate.filed import ABOUT, CERTIFICATE, PARAMETERS, read_about
from lastiterate.description.fields import checked_delta, number
from lastiterate.errors import (
    AssumptionError,
    DescriptionError,
    LastIterateError,
    UnsupportedError,
)
from lastiterate.models.saved import TableModel, write_files
from lastiterate.models.table import Table, read_table
from lastiterate.unlearning import UnlearningPlan
from lastiterate.verifier.authenticity import Key

BEFORE = "certificate.before.json"  # in the run's: what was promised for the first model
_KNOWN = {ABOUT, CERTIFICATE, PARAMETERS, BEFORE, "report.md"}


@dataclass(frozen=True)
class Erased:
    """What was done to a run's folder.

    Attributes:
        deleted: how many records are deleted.
        plan: the clean steps, with the alternatives beside them.
        certificate: of the new model; None for experiments.
        remains: what is still kept, and where; for the operator alone.
    """

    deleted: int
    plan: UnlearningPlan
    certificate: Certificate | None
    remains: tuple[str, ...]


def erase(
    run: Path,
    named: Table,
    *,
    epsilon: float,
    delta: float,
    table: Path,
    signer: Key | None = None,
) -> Erased:
    """Delete the records that ``named`` lists, and put the new model in the place of the run's.

    By clean steps on what remains (`Erasing.unlearn`), where every update saw all records, once.

    Args:
        run: the folder that `lastiterate train` wrote.
        named: one column, called as a column of the table; all records with such a value go.
        epsilon, delta: what must hold for the deleted.
        table: the records as they were trained on, in the same order.
        signer: signs the new certificate.
    """
    run = run.resolve()
    asked = number("epsilon", epsilon, above=0.0)
    busy = AssumptionError(
        f"Another process unlearns records from {run}. Wait until it has ended; the folder serves "
        "one request, so name all records in it."
    )
    try:
        with held(replacement_lock(run), busy):
            finish_locked(run)
            return _erase(run, named, asked, delta, table, signer)
    except OSError as error:  # a full disk, say
        raise LastIterateError(
            f"The new model could not be written to {run} ({error}). Make room or allow writing "
            "beside the folder, and give the same command again."
        ) from None


def _erase(
    run: Path, named: Table, epsilon: float, delta: float, table: Path, signer: Key | None
) -> Erased:
    trained, (about, _) = TableModel.load(run), read_about(run)
    strangers = sorted({path.name for path in run.iterdir()} - _KNOWN)
    if strangers:
        why = "the folder is replaced as a whole, and they would be lost; move them away"
        raise DescriptionError("run", f"with {strangers[0]!r}", "what train wrote alone", why)
    delta = checked_delta(delta, int(about["records"]))
    _check_cleanable(about)
    plan, deleted = _cleaned(trained, about, read_table(table), named, epsilon, delta)
    certificate = trained.model.certificate_
    first = run / CERTIFICATE
    before = first.read_bytes() if first.is_file() else None
    public = {**about, **_described(trained), "erased": {"records": deleted}}

    def write(folder: Path) -> None:
        write_files(folder, trained, _report(trained, plan, deleted), public, signer)
        if before is not None:
            (folder / BEFORE).write_bytes(before)
            (folder / BEFORE).chmod(0o644)

    replace_folder(run, write)
    lines = f"in {table}: the records themselves; delete their lines"
    remains = [lines] if before is None else [lines, f"in {run / BEFORE}: the first certificate"]
    return Erased(deleted, plan, certificate, tuple(remains))


def _check_cleanable(about: Mapping[str, Any]) -> None:
    """Raise where clean steps are not possible."""
    if "erased" in about:
        raise UnsupportedError(
            "Records were deleted from this run folder already, and the folder does not store "
            "which: a second request cannot leave their lines out. Train again on what remains."
        )
    if about.get("radius") is None:
        raise UnsupportedError(
            "Clean steps are not possible here: only runs on tables without weights can continue. "
            "Train again on what remains."
        )


def _cleaned(
    trained: TableModel,
    about: Mapping[str, Any],
    rows: Table,
    named: Table,
    epsilon: float,
    delta: float,
) -> tuple[UnlearningPlan, int]:
    """Take the clean steps; the plan, and how many records were deleted."""
    model = trained.model
    if len(rows) != model.training_.records:
        why = "every line is a place, also one that is to be forgotten"
        allowed = f"the {model.training_.records:,} records that were trained on"
        raise DescriptionError("table", f"with {len(rows):,} records", allowed, why)
    X, y = trained.schema.encode(rows)
    indices = _indices(rows, named)
    model._erasable_run = (model.training_, float(about["radius"]))
    return model.unlearn(indices, X, y, epsilon=epsilon, delta=delta), len(indices)


def _described(trained: TableModel) -> dict[str, Any]:
    """What clean steps change in the description of a run."""
    model, certificate = trained.model, trained.model.certificate_
    changed = {
        "certified": certificate is not None,
        "score": None,
        "training": model.training_.to_dict(),
        "loss": model.loss_.to_dict(),
        "delta": model.delta_,
    }
    if certificate is not None:
        changed["unit"] = certificate.unit.to_dict()
    return changed


def _indices(rows: Table, named: Table) -> NDArray[np.int64]:
    """The places of all records with a listed value."""
    if len(named.names) != 1:
        why = "it says which column the values are looked up in"
        found = f"{len(named.names)} columns"
        raise DescriptionError("records", found, "one column, as in the table", why)
    if named.names[0] not in rows.names:  # without a header it is the first value: not shown
        allowed = "the name of a column of the table (neither is shown)"
        why = "the table has no such column, or the file has no header"
        raise DescriptionError("records, row 1", "another name", allowed, why)
    wanted = named.texts(named.names[0])
    places = dict[str, list[int]]()
    for index, text in enumerate(rows.column(named.names[0]).texts(named.names[0])):
        places.setdefault(text, []).append(index)
    for line, value in enumerate(wanted, named.columns[0].first):
        if value not in places:
            allowed = "a value of the table (this one is not shown: error messages travel)"
            why = "a record that is not found is not forgotten"
            raise DescriptionError(f"records, row {line}", "unknown", allowed, why)
    return np.array(sorted({index for value in wanted for index in places[value]}), np.int64)


def _report(trained: TableModel, plan: UnlearningPlan, deleted: int) -> str:
    model, certificate, count = trained.model, trained.model.certificate_, f"{deleted:,}"
    lines = [f"# {type(model).__name__} of {trained.schema.target_name!r}, {count} records erased"]
    lines += ["", "## What was erased, and what that means"]
    if certificate is None:
        lines.append("**An experiment: the run was seeded, so this model has no certificate.**")
    else:
        lines.append(
            f"Of {model.training_.records:,} records {count} were deleted. Whoever has only this "
            "model can hardly tell it from one that never used them: epsilon "
            f"= {printed(certificate.epsilon)} at delta = {printed(certificate.delta)}, by "
            f"{certificate.theorem}. Check it: `lastiterate verify certificate.json`."
        )
    lines += [
        "",
        f"How: {plan.steps:,} steps on what remains followed, with noise of {plan.noise:g}. The "
        "lines of the erased stay empty, so that nobody else's batch changed.",
        "",
        "- It does not take back what was released: whoever saw the model from before still knows "
        "what it told.",
        "- It is void if somebody asked to be erased because of a model from before.",
        "- Of those who stay it says nothing: for them this is one more model of their data. The "
        f"first one's certificate is {BEFORE}, if it had one.",
        "- It says nothing about copies of the data, logs, backups, or whether a law is met.",
        "",
        "What remains at whoever trained it: the records, until their lines are deleted.",
        "",
        "## The alternatives",
        "```text",
        *str(plan).splitlines(),
        "```",
    ]
    if certificate is not None:
        lines += ["", "## It rests on", *(f"- {text}" for text in certificate.assumptions)]
        lines += ["", "## Not covered", *(f"- {text}" for text in certificate.not_covered)]
    lines += ["", f"The model is in {PARAMETERS} and {ABOUT}: plain data, nothing in it runs.", ""]
    return "\n".join(lines)
