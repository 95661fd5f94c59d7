"""The stream against the published test vector, the Gaussians against their law."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

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


def test_gaussians_that_do_not_repeat():
    key = torch.randint(0, 2**32, (8,))
    drawn = device_noise.plain_normal(key, 0, 20_000)
    assert stats.kstest(drawn.numpy(), "norm").pvalue > 1e-4
    cosines, sines = drawn.reshape(2, -1)
    assert abs(np.corrcoef(cosines, sines)[0, 1]) < 0.05
    assert abs(np.corrcoef(cosines[1:], cosines[:-1])[0, 1]) < 0.05
    again = device_noise.plain_normal(key, 10_000, 15_000)
    # The counter alone decides.
    torch.testing.assert_close(again[:15_000], drawn[5_000:20_000], rtol=0, atol=1e-12)
    assert len(np.unique(drawn)) == 40_000
    far = device_noise.plain_normal(key, 2**32 - 2, 3)  # the counter crosses 32 bits
    assert len(np.unique(far)) == 6
