"""Runs the LeNet kernels in Triton's interpreter (TRITON_INTERPRET=1) and prints their errors."""

from __future__ import annotations

import torch
from lenet import kernels
from lenet.networks import LeNets, descend, descend_fused


def worst(clip: float | None) -> float:
    """The largest difference of an update to double precision, relative to the update."""
    fused, plain = LeNets(3, "cpu", torch.float32), LeNets(3, "cpu", torch.float64)
    fused.initialise([1, 2, 3])
    plain.flat.copy_(fused.flat)
    start = plain.flat.clone()
    images, labels = torch.rand(10, 28, 28), torch.randint(10, (10,))
    rows = torch.randint(10, (3, 2))
    descend_fused(fused.p, images, rows, labels, 1.0, clip)
    descend(plain.p, images[rows].double(), labels[rows], 1.0, clip)
    error = (fused.flat.double() - plain.flat).abs().max()
    return float(error / (plain.flat - start).abs().max())


if __name__ == "__main__":
    torch.manual_seed(0)
    print("plain", worst(None))
    print("clipped", worst(0.2))
    ones, seed = torch.ones(4, 4096), torch.tensor(5)
    kernels.shrink_and_shake(ones, 0.5, 2.0, seed)
    draws = (ones - 0.5) / 2
    print("mean", float(draws.mean()))
    print("variance", float(draws.var()))
    print("kurtosis", float((draws**4).mean()))
    again = torch.zeros(4, 4096)
    kernels.shrink_and_shake(again, 1.0, 1.0, seed)
    print("correlation", float((again * draws).mean()))
