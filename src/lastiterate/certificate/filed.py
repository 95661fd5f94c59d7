"""A run's folder: which files it has, and whether they belong together.

``run.json`` says what the model is (settings, schema, description), ``parameters.npz`` holds its
numbers, ``certificate.json`` what it cost. All three are plain data: opening them runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from lastiterate.certificate.certificate import Certificate
from lastiterate.description import Loss, Training
from lastiterate.errors import DescriptionError
from lastiterate.plain_files import read_arrays, read_hashed_json
from lastiterate.verifier.document import UNLEARNING, parameters_hash

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


def other_model(
    certificate: Certificate, parameters: Mapping[str, Mapping[str, NDArray[Any]]]
) -> bool:
    """Whether the certificate is bound to other numbers than these, or to none."""
    bound = {run.content.get("parameters") for run in certificate.parts or (certificate,)}
    return not {parameters_hash(released) for released in parameters.values()} <= bound


def other_run(certificate: Certificate, training: Training, loss: Loss) -> bool:
    """Whether the certificate is about none of the runs that are described so.

    One of forgetting names no run: it holds for every run of so many records.
    """
    if certificate.content["kind"] == UNLEARNING:
        return bool(certificate.content["records"] != training.records)
    runs = certificate.parts or (certificate,)
    return not any(run.training == training and run.loss == loss for run in runs)
