"""A library that an optional extra brings is missing: the error says which extra."""

from __future__ import annotations

import importlib
import sys

import pytest

import lastiterate.frameworks
from lastiterate.errors import MissingExtraError

CASES = [
    ("lastiterate.frameworks", "LightningPrivateHead", "lightning", "lightning"),
    ("lastiterate.frameworks", "TransformersPrivateHead", "transformers", "transformers"),
    ("lastiterate.frameworks", "log_guarantee", "mlflow", "mlflow"),
    ("lastiterate.jax", "noisy_descent", "jax", "jax"),
    ("lastiterate.jax", "described_noise", "optax", "jax"),
]


@pytest.mark.parametrize(("package", "name", "library", "extra"), CASES)
def test_it_is_named(package, name, library, extra, monkeypatch):
    module = importlib.import_module(package)
    monkeypatch.delitem(vars(module), name, raising=False)
    monkeypatch.delitem(sys.modules, module._HOME[name], raising=False)
    for loaded in list(sys.modules):
        if loaded.partition(".")[0] == library:
            monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, library, None)
    if library == "optax" and importlib.util.find_spec("jax") is None:
        pytest.skip("JAX itself is missing, and is named")
    with pytest.raises(MissingExtraError, match=rf"lastiterate\[{extra}\]"):
        getattr(module, name)


def test_all_frameworks_can_be_imported_at_once(monkeypatch):
    """Those whose library is not there are left out."""
    found: dict[str, object] = {}
    exec("from lastiterate.frameworks import *", found)
    assert {"model_card", "guarantee_metrics"} <= set(found)
    for name, library in lastiterate.frameworks._NEEDED.items():
        assert (name in found) == (importlib.util.find_spec(library) is not None)
