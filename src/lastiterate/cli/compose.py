"""`lastiterate compose`: several certificates, or several rounds of one (epsilon, delta)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lastiterate._internal.formatting import printed
from lastiterate.cli.compose_certificates import compose_certificates
from lastiterate.cli.confined import limit
from lastiterate.cli.description_flags import AsJson, Megabytes, Seconds
from lastiterate.cli.new_file import Force
from lastiterate.cli.output import number, print_json, print_table, print_text
from lastiterate.description.fields import checked_delta
from lastiterate.errors import LastIterateError


def compose(
    certificates: Annotated[
        list[Path] | None,
        typer.Argument(help="Certificates of runs on the same data.", show_default=False),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Epsilon of one round.")] = None,
    rounds: Annotated[int | None, typer.Option(help="How many rounds on the same data.")] = None,
    delta: Annotated[float, typer.Option(help="Delta of one round.")] = 0.0,
    total_delta: Annotated[
        float | None, typer.Option(help="Ask for the epsilon of all rounds at this delta.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "--out", "-o", help="The new file of the joint certificate."),
    ] = None,
    force: Force = False,
    seconds: Seconds = 60,
    megabytes: Megabytes = 1600,
    as_json: AsJson = False,
) -> None:
    """One certificate for several runs, or what rounds of one (epsilon, delta) add up to.

    A run may use what earlier ones released; how many runs there are and what each costs must have
    been settled before. Where releases decide that, keep a chain with a declared lifetime budget.
    """
    if certificates:
        if epsilon is not None or rounds is not None:
            raise LastIterateError(
                "Give certificates, which carry their own numbers, or --epsilon and --rounds."
            )
        limit(seconds, megabytes)
        compose_certificates(certificates, output, total_delta, force, as_json)
        return
    if epsilon is None or rounds is None:
        raise LastIterateError("Give certificates to compose, or --epsilon and --rounds.")
    from lastiterate.composition import optimal

    if total_delta is None:
        raise LastIterateError("Give --total-delta, the delta of all rounds together.")
    exact = optimal(epsilon, delta, rounds)
    total_delta = checked_delta(total_delta)
    rows = [(exact.epsilon(total_delta), total_delta, "optimal (Kairouz, Oh, Viswanath)")]
    rows += _closed_forms(epsilon, delta, rounds, total_delta)
    if as_json:
        answer = [{"epsilon": e, "delta": d, "theorem": name} for e, d, name in rows]
        step = {"epsilon": epsilon, "delta": delta, "rounds": rounds}
        print_json("compose", {**answer[0], "round": step, "compared": answer[1:]})
        return
    print_table(
        f"{rounds:,} rounds, each ({printed(epsilon)}, {printed(delta)})-private",
        ("epsilon", "delta", "theorem"),
        [(number(e), number(d), name) for e, d, name in rows],
    )
    print_text("The optimal value is exact: some mechanism with such rounds really has it.")


def _closed_forms(
    epsilon: float, delta: float, rounds: int, total: float
) -> list[tuple[float, float, str]]:
    """The one-line bounds at the same total delta, where they can reach it."""
    from lastiterate.composition import advanced, basic, kairouz

    rows = []
    plain = basic(epsilon, delta, rounds)
    if plain.delta <= total:
        rows.append((plain.epsilon, total, "basic (Dwork et al. 2006)"))
    for name, bound in (
        ("three forms (Kairouz, Oh, Viswanath)", kairouz),
        ("advanced (Dwork, Rothblum, Vadhan)", advanced),
    ):
        slack = (total - plain.delta) * (1 - 1e-9)
        if 0.0 < slack < 1.0:
            pair = bound(epsilon, delta, rounds, slack)
            if pair.delta <= total:
                rows.append((pair.epsilon, total, name))
    return sorted(rows)
