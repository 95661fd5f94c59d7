"""A trained model in a folder: model, certificate and report appear together or not at all.

``run.json`` and ``parameters.npz`` hold the model (`certificate.filed`), and opening them runs
nothing. ``certificate.json`` is for `lastiterate verify`; ``report.md`` for people.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np

from lastiterate._internal.atomic_write import write_whole
from lastiterate._internal.folder_replacement import finish_replacement
from lastiterate._internal.formatting import printed
from lastiterate._internal.safe_io import archived
from lastiterate.certificate import Certificate
from lastiterate.certificate.filed import (
    ABOUT,
    CERTIFICATE,
    FORMAT,
    PARAMETERS,
    PREPARED,
    VERSION,
    WHITENED,
    applying,
    other_model,
    other_run,
    read_about,
    read_parameters,
)
from lastiterate.description import Loss, PrivacyUnit, Training
from lastiterate.description.fields import integer, number, one_of
from lastiterate.errors import DescriptionError, LastIterateError, UnsupportedError
from lastiterate.models.base import HOW
from lastiterate.models.bends import Bends, used_numbers, wide
from lastiterate.models.choose import Choice
from lastiterate.models.classifier import PrivateClassifier, declared
from lastiterate.models.huber import PrivateHuberRegressor
from lastiterate.models.logistic import PrivateLogisticRegression
from lastiterate.models.ranges import DeclaredRanges, middle_and_half
from lastiterate.models.ridge import PrivateRidge
from lastiterate.models.scaler import PrivateStandardScaler
from lastiterate.models.schema import Schema
from lastiterate.models.softmax import PrivateSoftmaxRegression
from lastiterate.models.svc import PrivateLinearSVC
from lastiterate.models.table import Source, read_table
from lastiterate.models.whitening import Whitening
from lastiterate.verifier.authenticity import Key
from lastiterate.verifier.refusals import TamperedCertificateError
from lastiterate.verifier.witness import pack, unpack

KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        PrivateLogisticRegression,
        PrivateSoftmaxRegression,
        PrivateLinearSVC,
        PrivateRidge,
        PrivateHuberRegressor,
    )
}
_NOT_SETTINGS = ("prepare", "classes", "random_state")  # the first two are filed apart


@dataclass(frozen=True)
class TableModel:
    """A fitted model and the schema that turns a table's rows into its features."""

    schema: Schema
    model: Any

    def predict(self, table: Source) -> Any:
        """Predictions for every row of a table; columns that are no features are ignored."""
        return self.model.predict(self.schema.features(read_table(table)))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Open a folder of `lastiterate train`: plain data, in which nothing runs.

        A certificate that is bound to other numbers than the folder holds is refused. Its claims
        are not recomputed here: `lastiterate verify` does that.
        """
        place = Path(folder)
        finish_replacement(place)
        why = "it holds a model as plain arrays and JSON"
        try:
            table, sha256 = read_about(place)
            parameters = read_parameters(place)
            path = place / CERTIFICATE
            certificate = Certificate.load(path) if path.is_file() else None
            schema = Schema.of_table(table["schema"], table["target"])
            model = _restored(table, parameters)
            if model.n_features_in_ != schema.width:
                raise ValueError(f"{model.n_features_in_} features of {schema.width} columns")
        except LastIterateError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            found = f"{place.name} ({type(error).__name__}: {error!s:.200})"
            allowed = "a folder written by lastiterate train"
            raise DescriptionError("run", found, allowed, why) from None
        if (certificate is not None) is not table["certified"]:
            raise TamperedCertificateError(
                f"{ABOUT} says that the model is {'' if table['certified'] else 'not '}certified, "
                f"and {CERTIFICATE} is {'not ' if certificate is None else ''}there: one of the "
                "two does not belong here."
            )
        if certificate is not None and (
            certificate.content.get("about") != sha256
            or other_model(certificate, parameters)
            or other_run(certificate, model.training_, model.loss_)
        ):
            raise TamperedCertificateError(
                f"{CERTIFICATE} is about another model than {PARAMETERS} holds, or another run "
                f"than {ABOUT} describes, or {ABOUT} was changed. Ask whoever trained it for the "
                "whole folder."
            )
        model.certificate_ = certificate
        return cls(schema, model)


def _settings(estimator: Any) -> dict[str, Any]:
    found = estimator.get_params(deep=False).items()
    settings: dict[str, Any] = pack({k: v for k, v in found if k not in _NOT_SETTINGS})
    return settings


def _restored(table: Mapping[str, Any], parameters: Mapping[str, Mapping[str, Any]]) -> Any:
    """The fitted model; whatever does not fit raises."""
    kind = KINDS[one_of("model", table["model"], tuple(KINDS))]
    model = kind(**{"curved": False, **unpack(table["settings"])})  # older ones never were
    model.n_features_in_ = integer("features", table["features"])
    model.training_ = Training.from_dict(table["training"])
    model.loss_ = Loss.from_dict(table["loss"])
    model.delta_, model.n_iter_ = float(table["delta"]), model.training_.steps
    reasons = tuple((str(what), str(why)) for what, why in table["choice"])
    whom = PrivacyUnit.from_dict(table["unit"])
    model.choice_ = Choice(model.training_, model.loss_, reasons, whom)
    if isinstance(model, PrivateClassifier):
        model.classes_ = declared(table["classes"])
        model.classes = model.classes_.tolist() if table["declared"] else None
    before = table["prepare"]
    learnt = before is not None and "settings" in before
    count = 0
    if learnt and "waves" in before:
        count = integer("waves", before["waves"])
    width = wide(model.n_features_in_, count)
    numbers = parameters[""]
    coefficients, intercept = numbers["coef_"], numbers["intercept_"]
    outputs = model._objective().outputs()
    expected: tuple[tuple[int, ...], ...] = ((width,), ())
    if isinstance(model, PrivateClassifier):
        expected = ((outputs, width), (outputs,))
    if set(numbers) != {"coef_", "intercept_"} or expected != (
        coefficients.shape,
        intercept.shape,
    ):
        raise ValueError(f"parameters of the shapes {coefficients.shape} and {intercept.shape}")
    if not (np.isfinite(coefficients).all() and np.isfinite(intercept).all()):
        raise ValueError("a parameter that is no number")
    model.coef_, model.intercept_ = coefficients, intercept if intercept.ndim else float(intercept)
    if (found := table.get("target_range")) is not None:
        low, high = (number("target_range", end) for end in found)
        if low >= high:
            raise ValueError("a range of targets that is empty")
        model.target_range_ = (low, high)
    if learnt is not (PREPARED in parameters):
        raise ValueError("a scaler without its numbers, or numbers without their scaler")
    whitened = learnt and "whitening" in before
    if whitened is not (WHITENED in parameters):
        raise ValueError("a matrix that nothing describes, or none where one is described")
    model.prepare = None
    if before is not None:
        model.prepare = one_of("prepare", before.get("how", "auto"), HOW)
    if before is not None and not learnt:
        ends = (np.asarray(unpack(before[end]), np.float64) for end in ("low", "high"))
        model.prepare_ = DeclaredRanges(*ends)
        middle_and_half(model.prepare_.low, model.prepare_.high, model.n_features_in_, "")
    if learnt:
        if not before.get("auto", False):  # its own
            model.prepare = PrivateStandardScaler(**unpack(before["settings"]))
        model.prepare_ = scaler = PrivateStandardScaler(**unpack(before["settings"]))
        scaler.training_ = Training.from_dict(before["training"])
        scaler.n_features_in_ = model.n_features_in_
        scaler._range()
        used, found = used_numbers(count), parameters[PREPARED]
        if {*used} != {*found} or {each.shape for each in found.values()} != {
            (model.n_features_in_,)
        }:
            raise ValueError("a scaler of other columns")
        for name in used:
            if not np.isfinite(found[name]).all() or (name != "mean_" and (found[name] <= 0).any()):
                raise ValueError("a scaler whose numbers scale nothing")
            setattr(scaler, name, found[name])
    if whitened:
        model.prepare_ = Whitening(scaler)
        model.prepare_.training_ = Training.from_dict(before["whitening"])
        model.prepare_.matrix_ = matrix = parameters[WHITENED]["matrix_"]
        if matrix.shape != 2 * (model.n_features_in_,) or not np.isfinite(matrix).all():
            raise ValueError("a matrix of other columns, or of what are no numbers")
    if count:
        model.prepare_ = Bends(model.prepare_, count)
        with np.errstate(all="ignore"):  # what is no number is refused
            waves = model.prepare_.waves
        if not all(np.isfinite(each).all() for wave in waves for each in wave.values()):
            raise ValueError("waves of what are no numbers")
    return model


def _preparation(model: Any) -> dict[str, Any] | None:
    """What came before the model; the numbers that it learnt are filed apart."""
    before = vars(model).get("prepare_")
    if before is None:
        return None
    how = {"how": model.prepare} if isinstance(model.prepare, str) else {}
    if isinstance(before, DeclaredRanges):
        ranges: dict[str, Any] = pack({"low": before.low, "high": before.high})
        return {**ranges, **how}
    more: dict[str, Any] = {}
    if isinstance(before, Bends):
        more, before = {"waves": before.count}, before.inner
    if isinstance(before, Whitening):
        before, more["whitening"] = before.scaler, before.training_.to_dict()
    told = {"settings": _settings(before), "training": before.training_.to_dict()}
    return {**told, **more, "auto": bool(how), **how}


def _numbers(model: Any) -> dict[str, Any]:
    found = dict(model.parameters_)
    if model.__dict__.get("_weighted") or getattr(model, "class_weight", None) is not None:
        raise UnsupportedError(
            "A folder does not hold the weights of records, and its audit would not repeat the "
            "run: leave class_weight and sample_weight out, or keep the model by other means."
        )
    if getattr(model, "calibrate", False):
        raise UnsupportedError(
            "A folder does not hold what calibrate= found, and its audit would not repeat it: "
            "leave it out."
        )
    scaler = vars(model).get("prepare_")
    count = 0
    if isinstance(scaler, Bends):
        count, scaler = scaler.count, scaler.inner
    if isinstance(scaler, Whitening):
        found[f"{WHITENED}matrix_"], scaler = scaler.matrix_, scaler.scaler
    if isinstance(scaler, PrivateStandardScaler):
        found |= {f"{PREPARED}{name}": getattr(scaler, name) for name in used_numbers(count)}
    return found


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
    finish_replacement(folder)
    if folder.exists():
        why = "an older model must not be mixed with a new certificate"
        raise DescriptionError("out", str(folder), "a folder that does not exist yet", why)
    if not folder.absolute().parent.is_dir():
        parent = str(folder.absolute().parent)
        raise DescriptionError("out", parent, "inside a folder that exists", "nothing is guessed")


def save(
    folder: Path,
    trained: TableModel,
    report: str,
    about: Mapping[str, Any],
    key: Key | None = None,
) -> None:
    """Write everything beside the folder first, then rename; ``key`` signs the certificate."""
    free(folder)
    parent = folder.absolute().parent
    try:
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=parent))
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        write_files(staging, trained, report, about, key)
        os.rename(staging, folder)
    except BaseException as error:
        shutil.rmtree(staging, ignore_errors=True)
        if isinstance(error, OSError):
            raise _unwritable(folder, error) from None
        raise


def write_files(
    folder: Path, trained: TableModel, report: str, about: Mapping[str, Any], key: Key | None
) -> None:
    """What a run's folder holds, into one that nobody reads yet; then others may."""
    write_whole(folder / PARAMETERS, archived(_numbers(trained.model)))
    text = (json.dumps(about, indent=2, allow_nan=False) + "\n").encode("ascii")
    write_whole(folder / ABOUT, text)
    certificate = trained.model.certificate_
    if certificate is not None:
        certificate = certificate.beside(hashlib.sha256(text).hexdigest())
        certificate = certificate if key is None else certificate.sign(key)
        certificate.save(folder / CERTIFICATE)
    write_whole(folder / "report.md", report.encode("utf-8"))
    folder.chmod(0o755)


def _unwritable(folder: Path, error: OSError) -> DescriptionError:
    why = "the model was trained but is nowhere; training again spends privacy again"
    return DescriptionError("out", f"{folder} ({error})", "a folder that can be written", why)


def about(
    trained: TableModel,
    records: int,
    warnings: Sequence[str],
    score: Score | None = None,
    *,
    title: str = "",
    data_label: str = "",
) -> dict[str, Any]:
    """What is publicly known of the run, for programs; nothing in it is read off the records."""
    model, schema = trained.model, trained.schema
    return {
        "format": FORMAT,
        "version": VERSION,
        "title": title,
        "data_label": data_label,
        "model": type(model).__name__,
        "settings": _settings(model),
        "classes": model.classes_.tolist() if isinstance(model, PrivateClassifier) else None,
        "declared": getattr(model, "classes", None) is not None,
        "prepare": _preparation(model),
        "target_range": list(model.target_range_) if hasattr(model, "target_range_") else None,
        "target": schema.target_name,
        "schema": schema.to_table(),
        "records": records,
        "columns": len(schema.columns),
        "features": int(model.n_features_in_),
        "certified": model.certificate_ is not None,
        "delta": model.delta_,
        "training": model.training_.to_dict(),
        "loss": model.loss_.to_dict(),
        "unit": model.choice_.unit.to_dict(),
        "radius": repr(model._erasable_run[1]) if hasattr(model, "_erasable_run") else None,
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
    certificate, person = model.certificate_, model.choice_.unit
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
            *([] if person.default else [f"It is for {person}, all of them together."]),
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
        uncovered = applying(certificate, public_classes=_public_classes(model))
        lines += ["", "## Not covered", *(f"- {text}" for text in uncovered)]
    if warnings:
        lines += ["", "## Warnings", *(f"- {text}" for text in warnings)]
    lines += ["", f"The model is in {PARAMETERS} and {ABOUT}: plain data, nothing in it runs.", ""]
    return "\n".join(lines)


def _public_classes(model: Any) -> bool:
    """Whether no class was read off the labels: they were declared, or there are none."""
    return not isinstance(model, PrivateClassifier) or getattr(model, "classes", None) is not None


def _scored(score: Score | None) -> str:
    if score is None:
        return "Accuracy on the training records is not reported: it would be one more release."
    return (
        f"{score.name} on {score.records:,} other records: {score.value:.4f}. The certificate does "
        "not cover those records; this number is a release about them."
    )
