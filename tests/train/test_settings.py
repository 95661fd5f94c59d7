"""One list of settings: every public signature of a run has them, with the same defaults."""

from __future__ import annotations

import inspect
from dataclasses import fields

import numpy as np
import pytest

from lastiterate import DescriptionError, FullBatch, LastIterateError, Training
from lastiterate.losses import Logistic
from lastiterate.noise import SeededSource
from lastiterate.train import noisy_descent
from lastiterate.train.settings import Settings
from lastiterate.verifier.document import parameters_hash

torch = pytest.importorskip("torch")
from lastiterate.torch import noisy_descent as with_torch  # noqa: E402

X, y = np.eye(2), np.array([1.0, -1.0])
RUN = Training(
    records=2,
    steps=3,
    step_size=1.0,
    noise=0.1,
    gradient_norm=1.0,
    batches=FullBatch(),
    adjacency="replace",
)


def test_the_signatures_are_the_settings():
    taken = inspect.signature(noisy_descent).parameters
    named = {p.name: p.default for p in taken.values() if p.kind is p.KEYWORD_ONLY}
    assert named == {f.name: f.default for f in fields(Settings) if f.init}
    assert inspect.signature(with_torch).parameters == taken


@pytest.mark.parametrize("run", [noisy_descent, with_torch])
def test_a_run_goes_on_from_what_another_released(run):
    tables = (X, y) if run is noisy_descent else (torch.tensor(X), torch.tensor(y))
    features, labels = tables
    first = noisy_descent(Logistic(), X, RUN, labels=y)
    still = RUN.replace(steps=0)
    second = run(Logistic(), features, still, labels=labels, continue_from=first)
    assert np.array_equal(second.parameters, first.parameters)
    assert second.started == parameters_hash(first.parameters)
    seeded = noisy_descent(Logistic(), X, RUN, labels=y, random_state=1)
    assert run(Logistic(), features, RUN, labels=labels, continue_from=seeded).experiment


@pytest.mark.parametrize("run", [noisy_descent, with_torch])
@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"noise": SeededSource(1), "random_state": 1}, "random_state"),
        ({"regularization": -1.0}, "regularization"),
        ({"continue_from": X[0]}, "continue_from"),
        ({"regularization": float("nan")}, "regularization"),
        ({"radius": -1.0}, "radius"),
        ({"start": np.zeros(3)}, "start"),
        ({"start": [np.inf, 0.0]}, "start"),
        ({"start": np.array([1j, 0.0])}, "start"),
        ({"start": "here"}, "start"),
        ({"random_state": "a"}, "random_state"),
        ({"random_state": -1}, "random_state"),
        ({"noise": "a"}, "noise"),
        ({"device": "a"}, "device"),
        ({"checkpoint": "state.bin"}, "checkpoint"),
        ({"products": "half"}, "products"),
        ({"rows": "ignore"}, "rows"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_both_backends_refuse_the_same(run, wrong, named):
    with pytest.raises(LastIterateError, match=named):
        run(Logistic(), X, RUN, labels=y, **wrong)


@pytest.mark.parametrize("run", [noisy_descent, with_torch])
def test_an_unknown_setting_is_refused(run):
    with pytest.raises(TypeError, match="seed"):
        run(Logistic(), X, RUN, labels=y, seed=1)


def test_nothing_is_ignored_where_it_means_nothing():
    for name, value in (("products", "exact"), ("rows", "shorten")):
        with pytest.raises(DescriptionError, match=name):
            noisy_descent(Logistic(), X, RUN, labels=y, **{name: value})
