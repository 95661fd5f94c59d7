"""`lastiterate sgld-privacy`: what an unfinished SGLD chain reveals, epoch by epoch."""

from __future__ import annotations

from typing import Annotated

import typer

from lastiterate._internal.formatting import printed, printed_down
from lastiterate.cli.description_flags import AsJson
from lastiterate.cli.output import print_json, print_table, print_text, warn_of


def sgld_privacy(
    records: Annotated[int, typer.Option(help="Number of records.")] = 17_864_389,
    prior_precision: Annotated[float, typer.Option(help="Precision of the prior.")] = 2.0,
    noise_precision: Annotated[float, typer.Option(help="Precision of the noise in y.")] = 1.0,
    x_low: Annotated[float, typer.Option(help="Smallest |x|.")] = 0.9,
    x_high: Annotated[float, typer.Option(help="Largest |x|.")] = 1.8,
    slope_exponent: Annotated[
        float, typer.Option(help="The common slope y/x is records to this power.")
    ] = 1.145578,
    deviation_exponent: Annotated[
        float, typer.Option(help="|y/x - slope| is at most records to this power.")
    ] = 0.1,
    epochs: Annotated[int, typer.Option(help="Epochs to look at.")] = 40,
    delta: Annotated[float, typer.Option(help="The delta of (epsilon, delta).")] = 1e-3,
    step_scale: Annotated[float, typer.Option(help="Step size times A squared.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Lower bounds on epsilon of cyclic SGLD at every epoch, beside one exact posterior sample.

    The defaults are the counterexample of Heller and Fetaya 2022: the posterior is as private as
    you like, the chain on its way there is not.
    """
    from lastiterate.sampling import interim_privacy, posterior_privacy

    slope = float(records) ** slope_exponent
    model = (records, prior_precision, noise_precision)
    interim = interim_privacy(*model, x_high, slope, epochs, delta, step_scale)
    deviation = float(records) ** deviation_exponent
    posterior = posterior_privacy(*model, x_low, x_high, slope, deviation)
    flat = posterior.epsilon(delta)
    warn_of(delta, records)
    if as_json:
        print_json(
            "sgld-privacy",
            {
                "delta": delta,
                "posterior_epsilon_upper": flat,
                "epoch": interim.epoch.tolist(),
                "epsilon_lower_chernoff": interim.chernoff.tolist(),
                "epsilon_lower_exact": interim.exact.tolist(),
                "epsilon_lower_certificate": interim.certificate.tolist(),
                "peak_epoch": interim.peak,
            },
        )
        return
    print_table(
        f"epsilon of SGLD is at least (delta = {printed(delta)})",
        ("epoch", "exact mixture", "O(1) certificate", "published Chernoff bound"),
        (
            (f"{epoch}", *map(printed_down, (exact, certificate, chernoff)))
            for epoch, exact, certificate, chernoff in zip(
                interim.epoch, interim.exact, interim.certificate, interim.chernoff, strict=True
            )
        ),
    )
    print_text(
        f"One exact posterior sample has epsilon at most {printed(flat, 3)}; the chain leaks "
        f"most at epoch "
        f"{interim.peak}."
    )
