"""Noisy gradient descent on quadratics: the audit meets the certificate.

For quadratic losses the guarantee of the last iterate is exact, so the measured lower bound and
the proved upper bound close in on each other; composition, which assumes that every iterate is
published, stays far above.

    python examples/audit_quadratic.py --models 10000 [--plot bracket.svg]
"""

from __future__ import annotations

import argparse

from lastiterate import FullBatch, Loss, Training, account
from lastiterate.audit import audit
from lastiterate.audit.attacks.worst_case import QuadraticDescent


def bracket(steps: int, models: int, seed: int, plot: str | None = None) -> dict[str, float]:
    """Lower and upper mu after so many steps; with ``plot`` also as a picture."""
    loss = Loss(smoothness=1.0, strong_convexity=1.0)
    run = Training(
        records=5,
        steps=steps,
        step_size=0.1,
        noise=0.35,
        gradient_norm=4.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    train = QuadraticDescent(run, loss)
    found = audit(
        train, *train.worlds(), models=models, method="gdp", random_state=seed, cohort=1000
    )
    guarantee = account(run, loss)
    certified = guarantee.mu
    assert certified is not None
    assert not found.contradicts(guarantee)
    if plot is not None:
        from lastiterate.report import audit_bracket

        audit_bracket(found, guarantee).plot().figure.savefig(plot)
    return {
        "steps": steps,
        "audited": found.mu_lower,
        "certified": certified,
        "composition": account(run, Loss.unknown()).mu or float("nan"),
    }


def main() -> None:
    """Print one row per number of steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", help="a file to write: .png, .svg, .pdf")
    given = parser.parse_args()
    print(f"mu of the last iterate, {given.models:,} models, confidence 0.95")
    print(f"{'steps':>6} {'audited':>9} {'certified':>10} {'ratio':>7} {'all iterates':>13}")
    for steps in (1, 5, 20, 100, 500):
        row = bracket(steps, given.models, given.seed, given.plot if steps == 500 else None)
        print(
            f"{steps:6d} {row['audited']:9.3f} {row['certified']:10.3f} "
            f"{row['audited'] / row['certified']:7.3f} {row['composition']:13.3f}"
        )


if __name__ == "__main__":
    main()
