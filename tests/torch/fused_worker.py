"""Runs the Triton kernels in Triton's interpreter (TRITON_INTERPRET=1) and prints their errors."""

from __future__ import annotations

import math
import warnings

import torch

from lastiterate.train.torch_backend import fused
from lastiterate.train.torch_backend.kernels import Head, _parts, gradient_sum

CASES = [
    # kind, outputs, one against the rest, columns, records, scaled and clipped, margin
    ("softmax", 10, False, 96, 70, False, math.inf),
    ("softmax", 10, False, 77, 70, True, math.inf),
    ("softmax", 20, False, 128, 33, True, math.inf),
    ("logistic", 1, False, 32, 50, True, math.inf),
    ("logistic", 4, True, 50, 50, False, 0.3),
    ("error", 1, False, 32, 50, False, math.inf),
    ("smoothed hinge", 1, False, 32, 50, False, math.inf),
    ("squared hinge", 3, True, 32, 50, True, math.inf),
]
TUNING = fused.Tuning(rows=16, columns=32, warps=4, per_processor=1)


def errors(kind, outputs, ovr, columns, records, limited, margin, products):
    """Relative errors of the fused sum and of the slopes against double precision."""
    X = (torch.randn(records, columns) / columns**0.5).half()  # the interpreter has no bfloat16
    several = kind == "softmax" or ovr
    y = torch.randint(0, outputs if several else 2, (records,)).float()
    y = y if several else 2 * y - 1
    theta = 3 * torch.randn(columns, outputs, dtype=torch.float64)
    scale = torch.rand(records) + 0.5 if limited else None
    norms = X.float().norm(dim=1) * scale if scale is not None else None
    cap = 0.6 if kind in ("softmax", "logistic") else 1.0
    head = Head(kind, outputs, 0.7, ovr, cap, margin, 0.4 if limited else math.inf)
    wide = [None if v is None else v.double() for v in (scale, norms)]
    told = gradient_sum(X.double(), y.double(), theta, head, scale=wide[0], norms=wide[1])
    parts = _parts(theta, X.dtype, products)
    got = fused.gradient_sum(X, y, parts, head, scale, norms, TUNING)
    scores = X.float() @ theta.float()
    slopes = [torch.empty_like(scores, dtype=X.dtype) for _ in parts]
    fused.slopes(scores, y, head, scale, norms, slopes)
    other = sum(X.double().T @ part.double() for part in slopes)
    return [float((v - told).norm() / told.norm()) for v in (got, other)]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    fused._processors = lambda device: 3
    for products in ("split", "fast"):
        print(products, max(max(errors(*case, products)) for case in CASES))
