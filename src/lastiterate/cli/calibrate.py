"""`lastiterate calibrate`: which noise, steps, records or L2 term just meet a target."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from lastiterate._internal.formatting import printed
from lastiterate.cli.described import Described
from lastiterate.cli.description_flags import AsJson, describes_a_run
from lastiterate.cli.output import number, print_json, print_standing, print_text, standing
from lastiterate.errors import LastIterateError


@describes_a_run
def calibrate(
    described: Described,
    epsilon: Annotated[float, typer.Option(help="The target.")] = 1.0,
    find: Annotated[str, typer.Option(help="noise | steps | records | regularization.")] = "noise",
    as_json: AsJson = False,
) -> None:
    """The description whose guarantee just meets epsilon; the quantity to find is replaced."""
    import lastiterate

    if described.releases:
        raise LastIterateError(
            "--releases has no meaning for calibrate, which tunes a run that releases its last "
            "iterate (or a tail average): leave it out."
        )
    delta = described.delta
    found: Any = lastiterate.calibrate(
        described.plain,
        described.loss,
        epsilon,
        delta,
        find=cast(Any, find),
        final_noise=cast(Any, described.final_noise),
        schedule=cast(Any, described.schedule),
        unit=described.unit,
    )
    training, loss = found if isinstance(found, tuple) else (found, described.loss)
    guarantee = lastiterate.account(training, loss, unit=described.unit)
    reached = guarantee.epsilon(delta)
    value = loss.regularization if find == "regularization" else getattr(training, find)
    if as_json:
        answer = {
            "find": find,
            "value": value if isinstance(value, (int, float)) else list(value),
            "epsilon": reached,
            "target": epsilon,
            "delta": delta,
            **standing(guarantee.provenance),
            "training": training.to_dict(),
            "loss": loss.to_dict(),
        }
        print_json("calibrate", answer)
        return
    print_standing(guarantee.provenance)
    print_text(
        f"{find} = {value}: epsilon = {number(reached)} at delta = {printed(delta)} (target "
        f"{printed(epsilon)})."
    )
    print_text(f"The run: {training}.")
