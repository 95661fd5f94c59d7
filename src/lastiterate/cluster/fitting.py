"""`fit`: a private model of a data set that lies on a cluster."""

from __future__ import annotations

from typing import Any, TypeVar

from lastiterate.cluster.engines import columns_of, workers_of
from lastiterate.cluster.parts import Keep, SpreadRecords
from lastiterate.errors import DescriptionError

Model = TypeVar("Model")


def fit(dataset: Any, model: Model, label: str) -> Model:
    """Train an estimator of `lastiterate.models` where the records lie; returns it, fitted.

    In every update each part of the data set gets the parameters and answers with the exact sum of
    its records' gradients, in whole numbers: the model is the same, bit for bit, on any number of
    workers, and whoever was lost meanwhile. This process draws batches and noise, and is the only
    one that sees parameters from update to update beside the workers; the description and the
    certificate are those of ``model.fit``.

    Args:
        dataset: a Dataset of Ray, a DataFrame of Dask, Spark or pandas, or a Table of Arrow, with
            numbers in all columns but the label. Its parts must be the same whenever they are
            computed: a part that changes ends the run.
        model: an estimator; a classifier has its ``classes`` declared.
        label: the name of the label's column.

    >>> import pandas as pd
    >>> from lastiterate.models import PrivateLogisticRegression
    >>> frame = pd.DataFrame({"x": [0.5, -0.5] * 200, "y": [1, 0] * 200})
    >>> model = PrivateLogisticRegression(2.0, 1e-4, classes=[0, 1], steps=20)
    >>> fit(frame, model, label="y").certificate_.epsilon <= 2.0
    True
    """
    told: Any = model
    if not callable(getattr(told, "_fit_elsewhere", None)):
        why = "its loss and its rows are what workers compute with"
        allowed = "an estimator of lastiterate.models, not fitted to anything else"
        raise DescriptionError("model", type(model).__name__, allowed, why)
    told._refuse_elsewhere()
    workers = workers_of(dataset)
    names = columns_of(dataset)
    if names.count(label) != 1 or len(set(names)) != len(names) or len(names) < 2:
        allowed = f"one of its columns, all of different names: {', '.join(map(repr, names))}"
        raise DescriptionError("label", label, allowed, "a model learns to predict it")
    features = [name for name in names if name != label]
    reader = told._reader(features)
    records = SpreadRecords(workers, Keep(reader, reader.sums, features, label))
    if not records.records:
        raise DescriptionError("dataset", "empty", "a table with records", "no records, no run")
    fitted: Model = told._fit_elsewhere(records, features)
    return fitted
