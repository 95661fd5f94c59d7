r"""The same attack on SGLD with clipped gradients, beside its certificate (HF, appendix E).

Clipping bounds what a record can do, so the run has a guarantee: every update is a Gaussian
mechanism on a hidden random batch, and all of them compose. The network is not convex, so nothing
is gained from hiding the iterates. The lower bound must stay below.

    python examples/audit_clipped_sgld.py --models 400 --epochs 20          (a GPU)
    python examples/audit_clipped_sgld.py --models 8 --epochs 2 --records 2000 --references 2 \
        --step 0.005                                                    (a processor, a taste)
"""

from __future__ import annotations

import argparse

import numpy as np
from audit_lenet_sgld import DELTA, options, run, sgld, show

from lastiterate import Loss, account


def certificates(given: argparse.Namespace) -> list[float]:
    """The certified epsilon after every epoch."""
    blank = np.zeros((1, 28, 28))
    return [
        account(sgld(blank, given, k).description(given.records), Loss.unknown()).epsilon(DELTA)
        for k in range(1, given.epochs + 1)
    ]


def main() -> None:
    """Audit, and hold every epoch against its certificate."""
    given = options(clip=0.2)
    result, accuracy = run(given)
    certified = certificates(given)
    show(result, accuracy, certified)
    broken = [
        k + 1
        for k, (look, bound) in enumerate(zip(result.looks, certified, strict=True))
        if look.epsilon_lower > bound
    ]
    verdict = f"Contradicted at epochs {broken}." if broken else "No epoch is contradicted."
    print(verdict)


if __name__ == "__main__":
    main()
