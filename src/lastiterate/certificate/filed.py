"""A run's folder: which files it has, and whether they belong together.

``run.json`` says what the model is (settings, schema, description), ``parameters.npz`` holds its
numbers, ``certificate.json`` what it cost. All three are plain data: opening them runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from lastiterate._internal.safe_io import read_arrays, read_hashed_json
from lastiterate.description import Loss, Training
from lastiterate.description.assumptions import RELEASED_CLASSES
from lastiterate.errors import DescriptionError, LastIterateError
from lastiterate.verifier.document import Document, parameters_hash
from lastiterate.verifier.refusals import TamperedCertificateError
from lastiterate.verifier.verification import THEORY

CERTIFICATE, ABOUT, PARAMETERS = "certificate.json", "run.json", "parameters.npz"
FORMAT, VERSION = "lastiterate-run", 2
PREPARED, WHITENED = "prepare.", "whiten."  # names of what came before the model released
_PICKLE = "model.joblib"  # up to version 1


def read_about(folder: Path) -> tuple[dict[str, Any], str]:
    """What ``run.json`` says, and its hash; folders of older releases are refused."""
    refuse_pickles(folder)
    table, sha256 = read_hashed_json(folder / ABOUT)
    if (table.get("format"), table.get("version")) != (FORMAT, VERSION):
        found = f"{table.get('format')!r:.60}, version {table.get('version')!r:.20}"
        why = "what is not known is not guessed; train again, or use the release that wrote it"
        raise DescriptionError(ABOUT, found, f"{FORMAT}, version {VERSION}", why)
    return table, sha256


def refuse_pickles(folder: Path) -> None:
    """A folder of an older release holds a pickle, which runs code when it is opened."""
    if (folder / _PICKLE).exists():
        why = (
            "it is a pickle, and opening one runs whatever its author put inside. Train again with "
            "this release, which writes arrays and JSON; `lastiterate report` and `lastiterate "
            "verify` take the folder's certificate.json by itself"
        )
        raise DescriptionError("run", f"a folder with {_PICKLE}", f"one with {PARAMETERS}", why)


def read_parameters(folder: Path) -> dict[str, dict[str, NDArray[Any]]]:
    """The released numbers: of the model (""), of the scaler (`PREPARED`), of `WHITENED`."""
    found: dict[str, dict[str, NDArray[Any]]] = {"": {}}
    for name, values in read_arrays(folder / PARAMETERS).items():
        part = next((each for each in (PREPARED, WHITENED) if name.startswith(each)), "")
        found.setdefault(part, {})[name.removeprefix(part)] = values
    return found


def in_words(folder: Path) -> dict[str, str]:
    """What the released numbers are, by the hash that a certificate is bound to."""
    words = {"": "the model", PREPARED: "means and deviations", WHITENED: "how columns go together"}
    found = read_parameters(folder)
    return {parameters_hash(released): words[part] for part, released in found.items()}


def applying(certificate: Document, *, public_classes: bool) -> tuple[str, ...]:
    """What a certificate does not cover, without the caveat on classes where they are public."""
    caveats = certificate.not_covered
    return tuple(each for each in caveats if not (public_classes and each == RELEASED_CLASSES))


def public_classes(about: Mapping[str, Any]) -> bool:
    """Whether ``run.json`` says that all classes were declared, or that there are none."""
    return about.get("declared") is True or about.get("classes", "unknown") is None


def check_filed(certificate: Document, folder: Path) -> bool:
    """Raise if a sound certificate does not speak of the other files of its folder.

    Returns whether the file ``run.json`` that it covers says that classes are public.
    """
    public = False
    try:
        described, sha256 = None, ""
        if (folder / ABOUT).exists():
            table, sha256 = read_about(folder)
            training, loss = Training.from_dict(table["training"]), Loss.from_dict(table["loss"])
            described = (bool(table["certified"]), training, loss)
            public = public_classes(table) and certificate.content.get("about") == sha256
        reason = misfit(certificate, folder, described, sha256)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{ABOUT} cannot be read: {error!r:.200}"
    except LastIterateError as error:
        reason = str(error)
    if reason:
        raise TamperedCertificateError(reason)
    return public


def misfit(
    certificate: Document,
    folder: Path,
    described: tuple[bool, Training, Loss] | None,
    sha256: str,
) -> str:
    """Why a sound certificate does not speak of what lies beside it; empty if it does.

    Args:
        certificate: the one of the folder.
        folder: the run's.
        described: what ``run.json`` says: whether it was certified, the run and its loss.
        sha256: the hash of ``run.json``; empty without one.
    """
    sound = f"{CERTIFICATE} is sound, but"
    if certificate.content.get("about", sha256) != sha256:
        return (
            f"{sound} it is sealed together with another {ABOUT} than the one that is here: what "
            "that file says was changed, or is missing."
        )
    if described is not None:
        certified, training, loss = described
        if not certified or other_run(certificate, training, loss):
            return (
                f"{sound} it certifies another run than {ABOUT} describes: one of the two files "
                "does not belong here."
            )
        if certificate.of_real_numbers:
            return f"{sound} it is {THEORY}. Train again."
        if not (folder / PARAMETERS).is_file():
            return f"{sound} {ABOUT} describes a model, and {PARAMETERS} is not here."
    elif not (folder / PARAMETERS).is_file():
        return ""
    if other_model(certificate, read_parameters(folder)):
        return (
            f"{sound} it is not bound to the model in {PARAMETERS}, whose parameters have another "
            "hash. That model is not covered."
        )
    return ""


def other_model(
    certificate: Document, parameters: Mapping[str, Mapping[str, NDArray[Any]]]
) -> bool:
    """Whether the certificate is bound to other numbers than these, or to none."""
    bound = {run.content.get("parameters") for run in certificate.parts or (certificate,)}
    return not {parameters_hash(released) for released in parameters.values()} <= bound


def other_run(certificate: Document, training: Training, loss: Loss) -> bool:
    """Whether the certificate is about none of the runs that are described so."""
    runs = certificate.parts or (certificate,)
    return not any(run.training == training and run.loss == loss for run in runs)
