"""`lastiterate recommend`: what to run, given a budget of privacy and of compute."""

from __future__ import annotations

from typing import Annotated

import typer

from lastiterate._internal.formatting import printed
from lastiterate.cli.description_flags import AsJson
from lastiterate.cli.output import number, print_json, print_table, print_text, warn_of


def recommend(
    records: Annotated[int, typer.Option(help="Number of records.")],
    dimension: Annotated[int, typer.Option(help="Number of parameters.")],
    epsilon: Annotated[float, typer.Option(help="The privacy to meet.")],
    epochs: Annotated[int, typer.Option(help="Passes over the data that can be afforded.")],
    delta: Annotated[float, typer.Option(help="Probability that epsilon may fail.")] = 1e-5,
    gradient_norm: Annotated[float, typer.Option(help="No gradient is longer.")] = 1.0,
    smoothness: Annotated[float, typer.Option(help="Of the loss of one record.")] = 0.25,
    adjacency: Annotated[str, typer.Option(help="replace | zero-out.")] = "zero-out",
    distance: Annotated[
        float, typer.Option(help="A public guess: from the start to the minimum.")
    ] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Propose batches, schedule, noise, burst and averaging, with the risk of each alternative."""
    import lastiterate

    advice = lastiterate.recommend(
        records,
        dimension,
        epsilon,
        delta,
        epochs,
        gradient_norm,
        smoothness,
        adjacency,
        distance=distance,
    )
    warn_of(delta, records)
    if as_json:
        alternatives = [
            {
                "name": a.name,
                "risk": a.risk.total,
                "bias": a.risk.bias,
                "noise": a.risk.noise,
                "training": a.training.to_dict(),
            }
            for a in advice.alternatives
        ]
        answer = {"epsilon": epsilon, "delta": delta, "loss": advice.loss.to_dict()}
        print_json("recommend", {**answer, "alternatives": alternatives})
        return
    print_table(
        f"Predicted excess risk at epsilon = {printed(epsilon)}, delta = {printed(delta)}, "
        f"{adjacency}",
        ("risk", "bias", "noise", "alternative"),
        [
            (number(a.risk.total), number(a.risk.bias), number(a.risk.noise), a.name)
            for a in advice.alternatives
        ],
    )
    print_text(f"Run: {advice.training}.")
    print_text(str(advice).splitlines()[-1])
