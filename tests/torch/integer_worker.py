"""Runs the integer kernels and the plain sums, and prints the largest difference of their bits.

On a GPU as they are; without one in Triton's interpreter (TRITON_INTERPRET=1).
"""

from __future__ import annotations

import sys

import torch

from lastiterate.train.torch_backend import fixed_point, integer_kernels
from lastiterate.train.torch_backend.kernels import Head

CASES = [
    # kind, outputs, one against the rest, columns, records, cap, margin
    ("softmax", 10, False, 96, 300, 1.0, float("inf")),
    ("softmax", 3, False, 200, 129, 0.4, float("inf")),
    ("softmax", 20, False, 64, 70, 0.6, float("inf")),
    ("softmax", 70, False, 40, 300, 0.5, float("inf")),
    ("logistic", 1, False, 30, 257, 0.7, float("inf")),
    ("logistic", 5, True, 30, 64, 1.0, 0.3),
    ("error", 1, False, 17, 90, 1.0, float("inf")),
    ("smoothed hinge", 1, False, 32, 50, 1.0, float("inf")),
    ("squared hinge", 40, True, 32, 50, 1.0, 0.5),
]
LARGE = [
    ("softmax", 10, False, 768, 5000, 0.5, float("inf")),
    ("softmax", 1000, False, 768, 700, 0.5, float("inf")),
    ("softmax", 33, False, 100, 140_000, 1.0, float("inf")),
    ("logistic", 1, False, 300, 70_000, 1.0, float("inf")),
]


def difference(case, bits, radius, device, tuning=None, seed=0):
    """The largest difference between the kernels' sum and the plain one: 0.0, or they differ."""
    kind, outputs, ovr, columns, records, cap, margin = case
    made = torch.Generator().manual_seed(seed)
    X = torch.randn(records, columns, dtype=torch.float64, generator=made)
    X /= X.norm(dim=1, keepdim=True) * 1.001
    several = kind == "softmax" or ovr
    y = torch.randint(0, outputs if several else 2, (records,), generator=made).double()
    y = y if several else 2 * y - 1
    theta = torch.randn(columns, outputs, dtype=torch.float64, generator=made)
    theta *= 0.99 * radius / theta.norm()
    head = Head(kind, outputs, 0.7, ovr, cap, margin)
    units = fixed_point.units_of(
        head,
        columns,
        bits=bits,
        entry=0.5,
        feature_bound=1.0,
        records=records,
        farthest=radius,
        longest=radius,
    )
    whole = fixed_point.to_units(X, None, units)
    told = fixed_point.gradient_sum(whole, y, theta, head, units)
    rows = integer_kernels.packed_rows(whole.to(device))
    packed = integer_kernels.Packed(rows, 1 if bits == 8 else 2, columns)
    got = integer_kernels.gradient_sum(
        packed, y.to(device), theta.to(device), head, units, tuning
    ).cpu()
    if not (told.norm() > 0 and got.isfinite().all()):
        return float("inf")
    return float((got - told).abs().max())


if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    few = integer_kernels.Tuning(
        scores=(32, 32, 4, 1),
        few=(32, 64, 4, 1),
        slopes=(64, 4),
        sums=(32, 32, 32, 4, 1),
        few_sums=(64, 32, 64, 4, 1),
    )
    tuning = few if device.type == "cpu" else None
    cases = CASES if device.type == "cpu" else CASES + LARGE
    integer_kernels._AT_ONCE = 1 << (14 if device.type == "cpu" else 22)  # several times
    for bits in (8, 16):
        for radius in (3.0, 1e5):
            worst = max(difference(case, bits, radius, device, tuning) for case in cases)
            print(f"{bits} {radius:g} {worst}", flush=True)
    sys.exit(0)
