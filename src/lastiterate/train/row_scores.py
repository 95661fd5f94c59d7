"""Scores that are the same function of a row wherever it stands in its batch.

Accounting compares a batch with one that has a record less, or another
(`Batches.moves_other_records`), and composition counts on the gradients of all others being the
same, to the last bit. Linear algebra does not promise that: the last rows of a block are added up
in another order than those before.
Where the error of scores is charged (`summation.score_error`), that is covered. Where rows have no
bound nothing covers it: a row of 1e20 can turn its gradient around, and three such rows stand at
the end of a block.

**Statement.** Entry i of `row_scores` is computed from row i and the parameters by operations whose
number and order depend on the number of columns alone. *Proof.* Products and sums of whole arrays
are those of their entries, each rounded by itself. ∎
"""

from __future__ import annotations

from typing import Any

Array = Any  # NumPy's or PyTorch's


def row_scores(X: Array, theta: Array) -> Array:
    """X @ theta for dense rows, each by itself: products first, then halves onto halves.

    >>> import numpy as np
    >>> row_scores(np.array([[1.0, 2.0, 3.0]]), np.array([1.0, 0.0, 2.0]))
    array([7.])
    """
    if theta.ndim == 1:
        return added(X * theta)
    scores = X[:, :1] * theta[:1]  # of the right size and kind
    for k in range(theta.shape[1]):
        scores[:, k] = added(X * theta[:, k])
    return scores


def added(terms: Array) -> Array:
    """The sum of every row, halves onto halves.

    >>> import numpy as np
    >>> added(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    array([ 6., 15.])
    """
    while terms.shape[1] > 1:
        half = terms.shape[1] // 2
        paired = terms[:, :half] + terms[:, half : 2 * half]
        if terms.shape[1] % 2:
            paired[:, 0] += terms[:, -1]
        terms = paired
    return terms[:, 0]
