"""`lastiterate doctor`: what is installed, and which engines earn certificates on this machine.

Nothing is taken on trust: every engine that is here makes a run of a few steps on records that are
made up, certifies it, and the certificate is verified against the parameters.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Any

import typer

from lastiterate.cli.description_flags import AsJson
from lastiterate.cli.output import print_json, print_table, print_text
from lastiterate.errors import LastIterateError

if TYPE_CHECKING:
    from lastiterate.train import Descent

RECORDS = 40
CERTIFIED = "certified"
_REQUIREMENT = re.compile(r"([\w.-]+).*;.*\bextra == ['\"](\w+)['\"]")


def doctor(as_json: AsJson = False) -> None:
    """What is installed here, and which engines earn certificates on this machine."""
    from lastiterate import __version__

    machine = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    extras = dict(_extras())
    found = {"arithmetic": _arithmetic(), **{name: _tried(run) for name, run in _engines()}}
    ill = [name for name, word in found.items() if word not in (CERTIFIED, SOUND)]
    if as_json:
        answer = {"machine": machine, "extras": extras, "engines": found, "healthy": not ill}
        print_json("doctor", answer)
    else:
        print_text(f"lastiterate {__version__}, {machine}", style="bold")
        print_table("Installed", ("extra", "libraries"), _rows(extras))
        print_table("Tried here", ("engine", "result"), found.items())
        print_text("No certificate is given by: " + ", ".join(ill) if ill else "All is well.")
    if ill:
        from lastiterate.cli.application import CHECK_FAILED

        raise typer.Exit(CHECK_FAILED)


SOUND = "doubles round to nearest and keep small numbers"


def _arithmetic() -> str:
    """The two things that compilers and threads are known to switch off, and proofs rest on."""
    import numpy as np

    one, half_unit = np.ones(64), np.full(64, 2.0**-53)
    small = np.full(64, 2.0**-1030)
    if not np.all(one + half_unit == 1.0) or not np.all(one + 1.5 * half_unit > 1.0):
        return "doubles do not round to nearest: no proof about rounding holds here"
    if not np.all(small * 0.5 > 0) or not float(small @ one) > 0:
        return "numbers below 2^-1022 are taken for 0: start Python without libraries that do that"
    return SOUND


def _extras() -> Iterator[tuple[str, dict[str, str | None]]]:
    """Every extra, with the versions of what it brings; None for what is missing."""
    try:
        listed = metadata.requires("lastiterate") or []
    except metadata.PackageNotFoundError:  # a source tree on the path
        return
    wanted: dict[str, dict[str, str | None]] = {}
    for requirement in listed:
        if match := _REQUIREMENT.match(requirement):
            wanted.setdefault(match[2], {})[match[1]] = _version(match[1])
    yield from sorted(wanted.items())


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _rows(extras: dict[str, dict[str, str | None]]) -> Iterator[tuple[str, str]]:
    for extra, libraries in extras.items():
        missing = [name for name, version in libraries.items() if version is None]
        here = ", ".join(f"{name} {version}" for name, version in libraries.items() if version)
        remedy = f'missing: {", ".join(missing)}; pip install "lastiterate[{extra}]"'
        yield extra, "; ".join(filter(None, [here, remedy if missing else ""]))


def _tried(run: Callable[[], Descent]) -> str:
    """What became of a run: certified and verified, or in words why not."""
    from lastiterate import Loss, verify

    try:
        descent = run()
        certificate = descent.certificate(1e-5, loss=descent.loss or Loss(smoothness=0.25))
        verify(certificate, parameters=descent.parameters)
    except (LastIterateError, ImportError, OSError, RuntimeError) as reason:
        return str(reason)
    return CERTIFIED


def _engines() -> Iterator[tuple[str, Callable[[], Any]]]:
    """The engines that can be imported here, each with a small run."""
    yield "NumPy", lambda: _linear()
    if _version("torch"):
        yield "PyTorch, cpu", lambda: _linear(device="cpu")
        if _cuda():
            yield "PyTorch, cuda", lambda: _linear(device="cuda")
    if _version("jax"):
        yield "JAX", _jax


def _cuda() -> bool:
    try:
        from lastiterate.train.torch_backend.descent import device_of
    except (ImportError, OSError):  # broken: the run on the processor says how
        return False
    return str(device_of([[0.0]], None)).startswith("cuda")


def _linear(**settings: Any) -> Descent:
    from lastiterate.losses import Logistic
    from lastiterate.train import noisy_descent

    training, (features, labels) = _described()
    return noisy_descent(Logistic(), features, training, labels=labels, **settings)


def _jax() -> Descent:
    import numpy as np

    from lastiterate.jax import noisy_descent

    training, data = _described()

    def linear(weight: Any, row: Any, label: Any) -> Any:
        return -label * (row @ weight)

    return noisy_descent(linear, data, training, start=np.zeros(3)).descent


def _described() -> tuple[Any, tuple[Any, Any]]:
    import numpy as np

    from lastiterate import FullBatch, Training

    training = Training(
        records=RECORDS,
        steps=20,
        step_size=1.0,
        noise=0.3,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="zero-out",
    )
    return training, (np.eye(RECORDS)[:, :3], np.resize([1.0, -1.0], RECORDS))
