"""A finite row whose norm is beyond all doubles does not end a fit: that would tell of it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from lastiterate import AssumptionError, FullBatch, Training
from lastiterate.losses import Logistic
from lastiterate.models import PrivateLogisticRegression
from lastiterate.train import bound_rows, noisy_descent

VAST = [[1e308, 1e308, 1e307], [1.7e308, -1.7e308, 1.7e308]]
RUN = Training(
    records=40,
    steps=3,
    step_size=1.0,
    noise=0.1,
    gradient_norm=1.0,
    batches=FullBatch(),
    clipping="gradient",
    adjacency="replace",
)
Y = np.resize([1.0, -1.0], 40)


def table(row):
    X = np.random.default_rng(0).standard_normal((40, 3))
    X[3] = row
    return X


@pytest.mark.parametrize("row", VAST, ids=str)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_such_rows_keep_their_direction(row, form):
    X = form(table(row))
    bounded = bound_rows(X, 0.5)
    bounded = bounded.toarray() if sp.issparse(bounded) else bounded
    expected = np.array(row) / 1e308
    np.testing.assert_allclose(bounded[3], 0.5 * expected / np.linalg.norm(expected), rtol=1e-12)
    assert (np.linalg.norm(bounded, axis=1) <= 0.5).all()


@pytest.mark.parametrize("row", VAST, ids=str)
def test_no_fit_ends(row):
    X = table(row)
    for data in (X, sp.csr_array(X)):
        assert np.isfinite(noisy_descent(Logistic(), data, RUN, labels=Y).parameters).all()
        for bound in (1.0, None):
            model = PrivateLogisticRegression(epsilon=5.0, delta=1e-3, feature_bound=bound)
            if bound or not sp.issparse(data):
                assert np.isfinite(model.fit(data, Y).coef_).all()
    done = noisy_descent(lambda theta, rows: X[rows], None, RUN, start=np.zeros(3))
    assert np.isfinite(done.parameters).all()


@pytest.mark.parametrize("row", VAST, ids=str)
def test_nor_one_of_tensors(row):
    torch = pytest.importorskip("torch")
    from lastiterate.torch import noisy_module_descent

    X, y = torch.from_numpy(table(row)), torch.from_numpy(Y)
    assert np.isfinite(noisy_descent(Logistic(), X, RUN, labels=y).parameters).all()
    model = PrivateLogisticRegression(epsilon=5.0, delta=1e-3, feature_bound=1.0)
    assert np.isfinite(model.fit(X, y).coef_).all()
    done = noisy_module_descent(
        torch.nn.Linear(3, 1, bias=False).double(), lambda out, y: (out * y).sum(), X, y, RUN
    )
    assert np.isfinite(done.parameters).all()


@pytest.mark.parametrize("entry", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_refused(entry):
    X = table([entry, 0.0, 0.0])
    for data in (X, sp.csr_array(X)):
        with pytest.raises(AssumptionError, match="NaN or infinity"):
            bound_rows(data, 1.0)
    unclipped = RUN.replace(clipping="none")
    with pytest.raises(AssumptionError, match="not finite"):
        noisy_descent(lambda theta, rows: X[rows], None, unclipped, start=np.zeros(3))


@pytest.mark.parametrize("per_record", ["func", "hooks"])
def test_a_finite_record_without_a_finite_gradient_ends_no_fit(per_record):
    """Scores beyond all floats have no softmax: such a gradient is clipped to 0."""
    torch = pytest.importorskip("torch")
    if per_record == "hooks":
        pytest.importorskip("opacus")
    from lastiterate.torch import noisy_module_descent

    run, found = RUN.replace(noise=0.0, adjacency="zero-out"), []
    X, y = torch.ones(40, 3), torch.arange(40) % 2
    for entry in (3e38, 0.0):
        net, X[-1] = torch.nn.Linear(3, 2, bias=False), entry
        torch.nn.init.eye_(net.weight).data.mul_(4.0)
        entropy = torch.nn.CrossEntropyLoss()
        found.append(noisy_module_descent(net, entropy, X, y, run, per_record=per_record))
    np.testing.assert_array_equal(found[0].parameters, found[1].parameters)
    X[-1] = torch.nan
    with pytest.raises(AssumptionError, match="not finite"):
        noisy_module_descent(net, entropy, X, y, run, per_record=per_record)
