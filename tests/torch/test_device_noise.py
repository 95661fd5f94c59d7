"""The stream against the published test vector, rounded Gaussians against exact decisions."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from lastiterate.errors import DescriptionError

torch = pytest.importorskip("torch")
from lastiterate.train.torch_backend import noise as device_noise  # noqa: E402


def test_the_block_function_of_rfc_8439():
    """Section 2.3.2: key 00..1f, counter 1, nonce 00:00:00:09:00:00:00:4a:00:00:00:00."""
    key = torch.from_numpy(np.frombuffer(bytes(range(32)), np.uint32).astype(np.int64))
    last = [torch.tensor([w]) for w in (1, 0x09000000, 0x4A000000, 0)]
    block = [int(word) for word in device_noise.chacha20(key, last)]
    expected = (
        "e4e7f110 15593bd1 1fdd0f50 c47120a3 c7f4d1c7 0368c033 9aaa2204 4e6cd4c3 "
        "466482d2 09aa9f07 05d7c214 a2028bd9 d19c12b5 b94e16de e883d0cb 4e3c50a2"
    )
    assert block == [int(word, 16) for word in expected.split()]


NO_TRITON = importlib.util.find_spec("triton") is None
NO_GPU = not torch.cuda.is_available()


@pytest.mark.skipif(NO_TRITON, reason="Triton is not installed")
def test_every_draw_is_what_its_bits_stand_for():
    """Small and large scales, draws that go to the host, a counter beyond 32 bits."""
    worker = Path(__file__).with_name("noise_worker.py")
    env = {**os.environ, **({"TRITON_INTERPRET": "1"} if NO_GPU else {})}
    done = subprocess.run(
        [sys.executable, str(worker)], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0"] * 9


@pytest.mark.skipif(NO_TRITON or NO_GPU, reason="needs a GPU")
@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_the_law_of_many_draws(scale):
    source = device_noise.DeviceSource(torch.device("cuda"))
    count = 10**7
    drawn = source.rounded_normal(scale, (count,)).cpu().numpy().astype(np.int64)
    most = int(6 * scale) + 1
    edges = np.arange(-most, most + 2) - 0.5
    expected = count * np.diff(stats.norm.cdf(edges / scale))
    found = np.bincount(np.clip(drawn, -most, most) + most, minlength=2 * most + 1)
    kept = expected > 50
    assert (
        stats.chisquare(found[kept], expected[kept] * found[kept].sum() / expected[kept].sum())[1]
        > 1e-6
    )


@pytest.mark.skipif(NO_TRITON or NO_GPU, reason="needs a GPU")
def test_no_draw_is_handed_out_twice():
    source = device_noise.DeviceSource(torch.device("cuda"))
    drawn = [source.rounded_normal(2.0**40, (50, 3)).clone() for _ in range(200)]
    drawn += [source.rounded_normal(2.0**39, (7,)), source.rounded_normal(2.0**40, (1000,))]
    values = torch.cat([some.flatten() for some in drawn]).cpu().numpy()
    assert len(np.unique(values)) == len(values)
    with pytest.raises(DescriptionError, match="scale"):
        source.rounded_normal(float("nan"), (3,))


def test_words_of_a_pair_are_those_of_the_stream():
    key = torch.from_numpy(np.frombuffer(bytes(range(32)), np.uint32).astype(np.int64))
    block = (0x09000000 << 32) | 1  # the second word of the counter
    last = [torch.tensor([w]) for w in (1, 0x09000000, 0, 0)]
    stream = [int(word) for word in device_noise.chacha20(key, last)]
    both = [word for half in (0, 1) for word in device_noise.pair_words(key, block, half)]
    assert both == [(a << 32) | b for a, b in zip(stream[::2], stream[1::2], strict=True)]
