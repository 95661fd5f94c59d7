"""A run's folder that forgets records, and what is kept so that it can.

The folder is handed on; what makes forgetting possible is not. The ledger has a folder of its own,
encrypted, and beside it lies how the run was described and where its table is (`note`). `erase`
replaces the run's folder: killed at any moment, it is the old one or the new one. Where it was
killed between two renames it has no name for the moment, and the next call gives it back. The
ledger writes a model down before it leaves, and asking again gets the same one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lastiterate.certificate import Certificate
from lastiterate.certificate.filed import ABOUT, CERTIFICATE, PARAMETERS, read_about
from lastiterate.curves.gaussian import Gaussian
from lastiterate.description import Training
from lastiterate.description.failure import promised_delta
from lastiterate.description.validation import number
from lastiterate.errors import (
    AssumptionError,
    DescriptionError,
    LastIterateError,
    UnsupportedError,
)
from lastiterate.holding import held
from lastiterate.models.saved import TableModel, write_files
from lastiterate.models.table import Table, read_table
from lastiterate.plain_files import read_json
from lastiterate.printing import printed
from lastiterate.train import EncryptedCheckpoint, Forgotten
from lastiterate.unlearning import Ledger
from lastiterate.verifier.authenticity import Key
from lastiterate.verifier.document import parameters_hash
from lastiterate.whole_files import write_whole

NOTES = "run.json"  # in the ledger's folder
BEFORE = "certificate.before.json"  # in the run's: what was promised for the first model
_KNOWN = {ABOUT, CERTIFICATE, PARAMETERS, BEFORE, "report.md"}


def ledger_key(path: Path, *, new: bool = False) -> bytes:
    """The key of a ledger: 64 hexadecimal digits in a file; ``new``: made if there is none yet."""
    why = "whoever reads it and the ledger knows the run, and who loses it forgets nobody any more"
    try:
        if new and not path.exists():
            text = EncryptedCheckpoint.new_key().hex() + "\n"
            write_whole(path, text.encode("ascii"), mode=0o600, replace=False)
        key = bytes.fromhex(path.read_text(encoding="ascii"))
        if len(key) != 32:
            raise ValueError("of another length")
    except (OSError, ValueError) as error:
        allowed = "a file that can be made" if new else "the file that train made"
        raise DescriptionError("ledger_key", f"{path} ({error})", allowed, why) from None
    return key


def note(state: Path, trained: TableModel, table: Path) -> None:
    """Write down, in the ledger's folder, what the run was and where its table lies."""
    training, radius = trained.model._erasable_run
    facts = {
        "training": training.to_dict(),
        "radius": repr(float(radius)),
        "model": parameters_hash(trained.model.parameters_),
        "table": str(table.resolve()),
    }
    text = json.dumps(facts, indent=2, allow_nan=False) + "\n"
    write_whole(state / NOTES, text.encode("ascii"), mode=0o600, replace=False)


@dataclass(frozen=True)
class Erased:
    """What was done to a run's folder.

    Attributes:
        deleted: how many records are forgotten, in this request and before.
        records: how many the run had.
        models: how many models its ledger has released; 1 without one.
        how: in words.
        certificate: of the new model; None for experiments.
        remains: what is still kept, and where; for the operator alone.
    """

    deleted: int
    records: int
    models: int
    how: str
    certificate: Certificate | None
    remains: tuple[str, ...]


def erase(
    run: Path,
    named: Table,
    *,
    epsilon: float,
    delta: float,
    state: Path | None = None,
    key: bytes | None = None,
    table: Path | None = None,
    steps: int = 0,
    wait: float | None = None,
    signer: Key | None = None,
) -> Erased:
    """Forget the records that ``named`` lists, and put the new model in the place of the run's.

    With a ledger by one perturbation. Without one, where every update saw all records, by clean
    steps on what remains (`Erasing.unlearn`), once.

    Args:
        run: the folder that `lastiterate train` wrote.
        named: one column, called as a column of the table; all records with such a value go.
        epsilon, delta: what must hold at least. Budget and noise of a ledger were fixed before the
            run, so a smaller epsilon than they give is refused.
        state: the folder of its ledger, and ``key`` what that is encrypted with.
        table: the records as they were trained on, in the same order; a ledger knows where they
            were. Cells of lines that were forgotten earlier may be empty.
        steps, wait: with a ledger, as in `Erasing.unlearn`.
        signer: signs the new certificate.
    """
    run = run.resolve()
    asked = number("epsilon", epsilon, "it bounds what the new model tells", above=0.0)
    if state is not None and not state.is_dir():
        why = "without it nobody knows what the records did to the model"
        raise DescriptionError("ledger", str(state), "the folder that train --ledger made", why)
    with held(_beside(run, "lock")):
        _settle(run)
        trained, (about, _) = TableModel.load(run), read_about(run)
        strangers = sorted({path.name for path in run.iterdir()} - _KNOWN)
        if strangers:
            why = "the folder is replaced as a whole, and they would be lost; move them away"
            raise DescriptionError("run", f"with {strangers[0]!r}", "what train wrote alone", why)
        delta = promised_delta(delta, int(about["records"]))
        if state is None or key is None:
            where = _table_of_clean(about, table)
            told = {"epsilon": asked, "delta": delta, "steps": steps, "wait": wait}
            done = _cleaned(trained, about, read_table(where), named, told)
        else:
            notes, ledger = _notes(state), Ledger.load(state, key)
            own = parameters_hash(trained.model.parameters_) == notes.model
            if not own and not (ledger.served and "erased" in about):
                raise AssumptionError(
                    f"The ledger in {state} belongs to another model than {run} holds: nothing it "
                    "says holds for this one. Give the folder that was trained with it."
                )
            where = notes.table if table is None else table
            indices = _indices(read_table(where), named)
            models = ledger.served + (not np.isin(indices, ledger.gone).all())
            _check(asked, delta, ledger, models)
            X, y = trained.schema.encode(_filled(read_table(where), ledger.gone))
            trained.model._erasable_run = (notes.training, notes.radius)
            done = _forgotten(trained, indices, X, y, ledger, delta, steps, wait)
        promised = run / (BEFORE if (run / BEFORE).is_file() else CERTIFICATE)
        kept = promised.read_bytes() if promised.is_file() else None
        public = {
            **about,
            **_described(trained, done),
            "erased": {"records": done.deleted, "models": done.models, "steps": steps},
        }
        _replace(run, trained, _report(trained, done), public, signer, kept)
    lines = f"in {where}: the records themselves; empty the cells of their lines, keep the lines"
    first = [] if kept is None else [f"in {run / BEFORE}: the certificate of the first model"]
    return replace(done, remains=(lines, *done.remains, *first))


def _forgotten(
    trained: TableModel,
    indices: NDArray[np.int64],
    X: Any,
    y: Any,
    ledger: Ledger,
    delta: float,
    steps: int,
    wait: float | None,
) -> Erased:
    model = trained.model
    found = model.unlearn(indices, X, y, ledger=ledger, delta=delta, steps=steps, wait=wait)
    assert isinstance(found, Forgotten)
    after = f", then trained on for {steps:,} steps without noise on what remains" * bool(steps)
    how = f"the model was perturbed with noise of {found.noise:g}{after}"
    told = model.certificate_
    return Erased(found.deleted, found.records, found.models, how, told, found.remains)


def _table_of_clean(about: Mapping[str, Any], table: Path | None) -> Path:
    """Where the records are; raises where clean steps are not possible."""
    if about.get("ledger"):
        why = "it counts the models of its run, and clean steps would be one that it misses"
        raise DescriptionError("ledger", None, "given: the run was trained with one", why)
    if "erased" in about:
        raise UnsupportedError(
            "This model has forgotten records by clean steps already, and each request needs its "
            "own: train with --ledger for several, or again on what remains."
        )
    if about.get("radius") is None or table is None:
        why = "nobody here knows the records, and clean steps are taken on all but the erased"
        raise DescriptionError("table", table, "the table of the run, or --ledger", why)
    return table


def _cleaned(
    trained: TableModel,
    about: Mapping[str, Any],
    rows: Table,
    named: Table,
    told: dict[str, Any],
) -> Erased:
    model = trained.model
    if len(rows) != model.training_.records:
        why = "every line is a place, also one that is to be forgotten"
        allowed = f"the {model.training_.records:,} records that were trained on"
        raise DescriptionError("table", f"with {len(rows):,} records", allowed, why)
    X, y = trained.schema.encode(rows)
    indices, before = _indices(rows, named), model.training_
    model._erasable_run = (before, float(about["radius"]))
    model.unlearn(indices, X, y, **told)
    clean = model.training_.steps - before.steps
    how = f"{clean:,} steps on what remains followed, with noise of {model.training_.noises[-1]:g}"
    return Erased(len(indices), before.records, 1, how, model.certificate_, ())


def _described(trained: TableModel, done: Erased) -> dict[str, Any]:
    """What clean steps change in the description of a run."""
    model, certificate = trained.model, done.certificate
    changed = {
        "certified": certificate is not None,
        "score": None,
        "training": model.training_.to_dict(),
        "loss": model.loss_.to_dict(),
        "delta": model.delta_,
    }
    if certificate is not None:
        changed["exposure"] = certificate.exposure.to_dict()
    return changed


class _Notes(NamedTuple):
    training: Training
    radius: float
    model: str
    table: Path


def _notes(state: Path) -> _Notes:
    found = read_json(state / NOTES)
    try:
        radius, table = float(found["radius"]), Path(found["table"])
        return _Notes(Training.from_dict(found["training"]), radius, str(found["model"]), table)
    except (KeyError, TypeError, ValueError) as error:
        why = "the run is repeated exactly, or not at all"
        raise DescriptionError(NOTES, repr(error), "what lastiterate train wrote", why) from None


def _indices(rows: Table, named: Table) -> NDArray[np.int64]:
    """The places of all records with a listed value."""
    if len(named.names) != 1:
        why = "it says which column the values are looked up in"
        found = f"{len(named.names)} columns"
        raise DescriptionError("records", found, "one column, as in the table", why)
    wanted = named.texts(named.names[0])
    if named.names[0] not in rows.names:
        allowed = f"one of {', '.join(rows.names)}"
        raise DescriptionError("records", named.names[0], allowed, "the table has no such column")
    places = dict[str, list[int]]()
    for index, text in enumerate(rows.column(named.names[0]).texts(named.names[0])):
        places.setdefault(text, []).append(index)
    for line, value in enumerate(wanted, named.columns[0].first):
        if value not in places:
            allowed = "a value of the table (this one is not shown: error messages travel)"
            why = "a record that is not found is not forgotten"
            raise DescriptionError(f"records, row {line}", "unknown", allowed, why)
    return np.array(sorted({index for value in wanted for index in places[value]}), np.int64)


def _filled(rows: Table, gone: NDArray[np.int64]) -> Table:
    """The table with something valid in the lines that are forgotten already: it is not used."""
    places = np.arange(len(rows))
    remaining = np.setdiff1d(places, gone)
    if not len(gone) or not len(remaining):
        return rows
    places[gone] = remaining[0]
    return rows.take(places)


def _check(asked: float, delta: float, ledger: Ledger, models: int) -> None:
    """Raise before anything is released where the ledger cannot keep the promise."""
    least = Gaussian(ledger.mu_of(models)).epsilon(delta) * (1 + 1e-6)
    if least > asked:
        why = (
            f"budget {ledger.budget:g} and noise {ledger.noise:g} were fixed before the run, and "
            "this is what they give for all models of the ledger so far; train again on what "
            "remains, with more noise or a smaller budget"
        )
        raise DescriptionError("epsilon", asked, f"at least {printed(least)}", why)


def _beside(run: Path, name: str) -> Path:
    return run.with_name(f".{run.name}.unlearn-{name}")


def _settle(run: Path) -> None:
    """What a process that was killed left: the old folder gets its name back, the rest goes."""
    old, new = _beside(run, "before"), _beside(run, "after")
    if old.is_dir() and not run.exists():
        os.rename(old, run)
    for left in (old, new):
        shutil.rmtree(left, ignore_errors=True)


def _replace(
    run: Path,
    trained: TableModel,
    report: str,
    about: Mapping[str, Any],
    signer: Key | None,
    kept: bytes | None,
) -> None:
    old, new = _beside(run, "before"), _beside(run, "after")
    try:
        new.mkdir(mode=0o700)
        write_files(new, trained, report, about, signer)
        if kept is not None:
            (new / BEFORE).write_bytes(kept)
        os.rename(run, old)
        os.rename(new, run)
    except OSError as error:
        _settle(run)
        raise LastIterateError(
            f"The new model could not be written to {run} ({error}). It is in the ledger: make "
            "room, and give the same command again. It costs nothing more."
        ) from None
    shutil.rmtree(old)


def _report(trained: TableModel, done: Erased) -> str:
    model, certificate, count = trained.model, done.certificate, f"{done.deleted:,}"
    lines = [f"# {type(model).__name__} of {trained.schema.target_name!r}, {count} records erased"]
    lines += ["", "## What was erased, and what that means"]
    if certificate is None:
        lines.append("**An experiment: the run was seeded, so this model has no certificate.**")
    else:
        whom = "this model can hardly tell it from one that never used them"
        if done.models > 1:
            whom = (
                f"the {done.models} models after deletions can hardly tell each from one that "
                "never used the records that were deleted up to it (it tells of those that were "
                "deleted later)"
            )
        lines.append(
            f"Of {done.records:,} records {count} were forgotten. Whoever has only {whom}: epsilon "
            f"= {printed(certificate.epsilon)} at delta = {printed(certificate.delta)}, by "
            f"{certificate.theorem}. Check it: `lastiterate verify certificate.json`."
        )
    more = any("more requests" in line for line in done.remains)
    lines += [
        "",
        f"How: {done.how}. The lines of the erased stay empty, so that nobody else's batch "
        "changed.",
        "",
        "- It does not take back what was released: whoever saw the model from before still knows "
        "what it told.",
        "- It is void if somebody asked to be erased because of a model from before.",
        "- Of those who stay it says nothing: for them this is one more model of their data. The "
        f"first one's certificate is {BEFORE}, if it had one.",
        "- It says nothing about copies of the data, logs, backups, or whether a law is met.",
        "",
        "What remains at whoever trained it: the records, until their cells are emptied"
        + ("; the run from before the deletion, encrypted, for further requests." if more else "")
        + ("; the numbers of the erased lines and this model." if done.remains and not more else "")
        + ("." if not done.remains else ""),
    ]
    if certificate is not None:
        lines += ["", "## It rests on", *(f"- {text}" for text in certificate.assumptions)]
        lines += ["", "## Not covered", *(f"- {text}" for text in certificate.not_covered)]
    lines += ["", f"The model is in {PARAMETERS} and {ABOUT}: plain data, nothing in it runs.", ""]
    return "\n".join(lines)
