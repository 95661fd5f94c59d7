"""Draws rounded Gaussians by the kernel, and counts those that exact decisions do not confirm.

On a GPU as it is; without one in Triton's interpreter (TRITON_INTERPRET=1).
"""

from __future__ import annotations

import sys

import torch

from lastiterate.noise.decision import decided
from lastiterate.train.torch_backend import noise


def wrong(scale, count, device, off=None, counter=0):
    """How many of these draws are not what their bits stand for."""
    source = noise.DeviceSource(device)
    source._next.fill_(counter)
    source._made = counter
    drawn = source._drawn(scale, count, off).cpu()
    assert len(drawn) == count
    key, pairs = source._key.cpu(), count // 2
    different = 0
    for pair in range(pairs):
        words = noise.pair_words(key, counter + pair // 2, pair % 2)
        told = decided(scale, words[0], words[2], noise._bits(words[1], words[3]))
        different += (float(drawn[pair]), float(drawn[pairs + pair])) != told
    return different


if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for scale in (0.0, 1e-3, 0.7, 1e3, 2.0**24, 2.0**40, 2.0**42):
        print(wrong(scale, 400, device), flush=True)
    print(wrong(2.0**42, 64, device, off=0.4), flush=True)  # most go to the host
    print(wrong(1e6, 400, device, counter=2**32 - 50), flush=True)  # the counter crosses 32 bits
    sys.exit(0)
