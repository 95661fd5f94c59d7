"""What a call costs its user: `account`, `fit`, `certify`, `calibrate` as they are called.

Seconds are processor time of all threads: on an idle machine nobody waits longer, and on a busy one
they stay comparable. A measured text also gives the seconds that passed. Besides: how many of our
files such a call walks through and how often it goes from one to another, what an import loads, and
how long the source is. Needs scikit-learn, and Adult for one row.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import packages_distributions
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import lastiterate
from benchmarks import datasets
from benchmarks.certificates import random_schedule, sampled
from benchmarks.training import ROUNDS, STEPS, mean_seconds, problem, step_seconds
from lastiterate import (
    FullBatch,
    Loss,
    Poisson,
    Shuffled,
    Training,
    account,
    calibrate,
    certify,
    verify,
)

ROOT = Path(lastiterate.__file__).parent
MANY = 10**6
SMOOTH = Loss(smoothness=1.0, regularization=0.1)
# Before the move: files of the walks, modules behind the verifier's checks, lines of source.
FILES_BEFORE = {
    "account, full batch": 22,
    "account, shuffled": 25,
    "account, Poisson": 25,
    "fit": 63,
    "certify": 34,
    "verify": 19,
}
MODULES_BEFORE, LINES_BEFORE = 74, 43_113
DESCRIPTIONS_BEFORE, MIXTURES_BEFORE = 34, 125  # that one fit on Adult built
EVERYTHING_ELSE_BEFORE = 0.14  # seconds, its certificate among them


def _row(name: str, measured: Any, limit: float | None, text: str = "") -> dict[str, Any]:
    """A number that is to stay at or below its limit; ``text`` is printed in its place."""
    return {
        "name": name,
        "goal": "" if limit is None else f"<= {limit:g}",
        "measured": text or measured,
        "ratio": None if limit is None else measured / limit,
        "ok": None if limit is None else bool(measured <= limit),
    }


def timed(job: Callable[[], Any], rounds: int = 1) -> tuple[float, float]:
    """Processor seconds and seconds that passed, each the least of a few calls."""
    found = []
    for _ in range(rounds):
        start = time.process_time(), time.perf_counter()
        job()
        found.append((time.process_time() - start[0], time.perf_counter() - start[1]))
    return min(used for used, _ in found), min(passed for _, passed in found)


def _call(name: str, job: Callable[[], Any], limit: float) -> dict[str, Any]:
    used, passed = timed(job)
    return _row(f"{name}: seconds", used, limit, f"{used:.2f} ({passed:.2f} passed)")


@contextmanager
def _watched(see: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """Every call of Python and C is shown to ``see``."""
    sys.setprofile(see)
    try:
        yield
    finally:
        sys.setprofile(None)


# --- calls --------------------------------------------------------------------------------------


def _account() -> dict[str, Any]:
    """Measured in sorts of as many numbers as there are steps."""
    run, numbers = random_schedule(MANY, FullBatch()), np.random.default_rng(0).random(MANY)
    used, passed = timed(lambda: account(run, SMOOTH).epsilon(1e-6), 3)
    one, _ = timed(lambda: np.sort(numbers), 5)
    shown = f"{used / one:.1f} ({used:.2f} s, {passed:.2f} passed)"
    return _row("account, 10^6 arbitrary steps: sorts of 10^6 numbers", used / one, 6, shown)


def _built(job: Callable[[], Any]) -> tuple[int, int]:
    """How many descriptions and how many mixtures a call builds."""
    counts = dict.fromkeys(("description/training.py", "curves/mixture.py"), 0)

    def see(frame: FrameType, event: str, what: Any) -> None:
        if event == "call" and frame.f_code.co_name == "__init__":
            place = os.path.relpath(frame.f_code.co_filename, ROOT)
            if place in counts:
                counts[place] += 1

    with _watched(see):
        job()
    descriptions, mixtures = counts.values()
    return descriptions, mixtures


def _fit() -> list[dict[str, Any]]:
    """What `fit` on Adult does besides training: choosing, calibrating; then the certificate."""
    from lastiterate.models import PrivateLogisticRegression, base

    if not (datasets.FOLDER / "adult").is_dir():
        name = f"SKIPPED: no Adult under {datasets.FOLDER}; set LASTITERATE_DATA"
        return [{"name": name, "goal": "data present", "measured": "missing", "ok": False}]
    data, descent, inside = datasets.adult(), base.noisy_descent, [0.0]

    def fit() -> Any:
        model = PrivateLogisticRegression(1.0, data.delta, feature_bound=1.0, fit_intercept=False)
        return model.fit(data.train, data.labels)

    def measured(*given: Any, **named: Any) -> Any:
        start = time.process_time()
        try:
            return descent(*given, **named)
        finally:
            inside[0] += time.process_time() - start

    descriptions, mixtures = _built(lambda: fit().certificate_)
    fitted: list[Any] = []
    base.noisy_descent = measured  # type: ignore[assignment]
    try:
        used, passed = timed(lambda: fitted.append(fit()))
    finally:
        base.noisy_descent = descent
    sealing, _ = timed(lambda: fitted[0].certificate_)
    beyond = used - inside[0]
    shown = f"{beyond / inside[0]:.2f} ({beyond:.2f} of {used:.2f} s, {passed:.2f} passed)"
    return [
        _row("fit on Adult: descriptions built", descriptions, DESCRIPTIONS_BEFORE // 2),
        _row("fit on Adult: mixtures built", mixtures, MIXTURES_BEFORE // 2),
        _row("fit on Adult: everything else / training", beyond / inside[0], None, shown),
        _row("fit on Adult: everything else: seconds", beyond, EVERYTHING_ELSE_BEFORE / 2),
        _row("certificate_ of that fit, when it is read: seconds", sealing, None),
    ]


def _narrow(steps: int = 4000) -> Training:
    """A run on a bounded domain, long enough to cross it: the coupling's case."""
    return Training(
        records=1,
        steps=steps,
        step_size=1.0,
        noise=1.0,
        gradient_norm=0.05,
        adjacency="zero-out",
        batches=FullBatch(),
        diameter=20.0,
    )


def _multiply() -> None:
    """Products without an end, with as many threads as BLAS likes."""
    matrix = np.random.default_rng(0).random((1500, 1500))
    while True:
        matrix @ matrix


@contextmanager
def _others_multiply() -> Iterator[None]:
    """Somebody else's BLAS threads on every core."""
    other = multiprocessing.get_context("spawn").Process(target=_multiply, daemon=True)
    other.start()
    time.sleep(2.0)  # until it is at work
    try:
        yield
    finally:
        other.kill()
        other.join()


def _coupling() -> list[dict[str, Any]]:
    from lastiterate.theory import coupling

    def answer() -> float:
        for cached in vars(coupling).values():  # each answer is a first one
            getattr(cached, "cache_clear", int)()
        return account(_narrow(), Loss(0.0)).epsilon(1e-5)

    name = "coupling, 4,000 steps on a set 20 noises wide"
    alone, waited = timed(answer, 2)
    with _others_multiply():
        busy, passed = timed(answer, 2)
    return [
        _row(f"{name}: seconds", alone, 1.0, f"{alone:.2f} ({waited:.2f} passed)"),
        _row(f"{name}, BLAS busy: seconds", busy, 1.0, f"{busy:.2f} ({passed:.2f} passed)"),
        _row(f"{name}, BLAS busy: against alone", busy / alone, 1.5),
    ]


def _float32() -> list[dict[str, Any]]:
    """One full-batch step on float32 features against two products, in turns."""
    loss, X, y, theta, slope = problem(50_000, 100, 1, np.float32)
    double, weights = np.zeros(len(theta)), slope.astype(np.float64)
    ours, plain, exact = [], [], []
    for _ in range(ROUNDS):
        plain.append(mean_seconds(lambda: (X @ theta, X.T @ slope), STEPS))
        exact.append(mean_seconds(lambda: (X @ double, X.T @ weights), STEPS))
        ours.append(step_seconds(loss, X, y, FullBatch(), STEPS))
    name = "step on float32 features, 50000 x 100"
    step = min(ours)
    return [
        _row(f"{name} / two products that add in doubles", step / min(exact), 1.4),
        _row(f"{name} / two products that add in float32", step / min(plain), None),
    ]


# --- the house ----------------------------------------------------------------------------------


def walk(job: Callable[[], Any]) -> tuple[int, int]:
    """Our files that a call runs through, and how often one calls into another."""
    files: set[str] = set()
    hops, root = 0, f"{ROOT}{os.sep}"

    def see(frame: FrameType, event: str, what: Any) -> None:
        nonlocal hops
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(root) or frame.f_code.co_name == "<module>":
            return
        files.add(file)
        back = frame.f_back
        caller = back.f_code.co_filename if back is not None else file
        hops += caller != file and caller.startswith(root)

    with _watched(see):
        job()
    return len(files), hops


def _walks() -> list[dict[str, Any]]:
    from lastiterate.models import PrivateLogisticRegression

    loss = Loss(smoothness=0.25, regularization=0.01)
    full = Training(
        records=1000,
        steps=200,
        step_size=0.1,
        noise=0.01,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="zero-out",
    )
    shuffled, poisson = full.replace(batches=Shuffled(100)), full.replace(batches=Poisson(0.1))
    X = np.random.default_rng(0).normal(size=(500, 5))
    model = PrivateLogisticRegression(epsilon=1.0, delta=1e-5, feature_bound=3.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.json"
        certify(shuffled, loss, 1e-5).save(path)
        calls: dict[str, Callable[[], Any]] = {
            "account, full batch": lambda: account(full, loss).epsilon(1e-5),
            "account, shuffled": lambda: account(shuffled, loss).epsilon(1e-5),
            "account, Poisson": lambda: account(poisson, loss).epsilon(1e-5),
            "fit": lambda: model.fit(X, (X[:, 0] > 0).astype(int)),
            "certify": lambda: certify(shuffled, loss, 1e-5),
            "verify": lambda: verify(path),
        }
        found = {name: walk(call) for name, call in calls.items()}
    return [
        _row(f"walk of {name}: files", files, FILES_BEFORE[name], f"{files} ({hops} hops)")
        for name, (files, hops) in found.items()
    ]


def loaded(module: str) -> tuple[list[str], list[str], float]:
    """What importing a module loads in a fresh process: ours, other packages, seconds."""
    code = (
        "import json, sys, time; before = set(sys.modules); start = time.process_time(); "
        f"import {module}; spent = time.process_time() - start; "
        "print(json.dumps([sorted(set(sys.modules) - before), spent]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, spent = json.loads(done.stdout)
    ours = [name for name in names if name.split(".")[0] == "lastiterate"]
    others = {name.split(".")[0] for name in names} & set(packages_distributions())
    return ours, sorted(others - {"lastiterate"}), float(spent)


def _imports() -> list[dict[str, Any]]:
    checks, packages, _ = loaded("lastiterate.verifier.checks")
    rooms = sorted({name.split(".")[1] for name in checks if "." in name})
    whole, others, needed = loaded("lastiterate.accounting")
    *_, spent = loaded("lastiterate")
    return [
        _row("import of the verifier's checks: our modules", len(checks), MODULES_BEFORE),
        _row("import of the verifier's checks: our rooms", len(rooms), None, ", ".join(rooms)),
        _row("import of the verifier's checks: packages", 0, None, ", ".join(packages) or "none"),
        _row("import lastiterate: seconds", spent, 0.3),
        _row("import of account: seconds", needed, None, f"{needed:.2f} ({len(whole)} modules)"),
        _row("import of account: packages", len(others), None, ", ".join(others)),
    ]


def _source() -> list[dict[str, Any]]:
    files = sorted(ROOT.rglob("*.py"))
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    shown = f"{lines} in {len(files)} files"
    return [_row("lines of source", lines, LINES_BEFORE, shown)]


def rows() -> list[dict[str, Any]]:
    """The measurements."""
    poisson = sampled(Poisson(0.01), "zero-out")
    bounded = _narrow().replace(records=100)
    return [
        _account(),
        *_fit(),
        _call("certify, Poisson, 1,000 steps", lambda: certify(poisson, SMOOTH, 1e-6), 5.0),
        *_coupling(),
        _call(
            "calibrate on a bounded domain, 4,000 steps",
            lambda: calibrate(bounded, Loss(0.0), 1.0, 1e-5),
            2.0,
        ),
        *_float32(),
        *_walks(),
        *_imports(),
        *_source(),
    ]
