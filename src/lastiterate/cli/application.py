"""The Typer application: the list of commands.

A new command is a module of its own with one function, and one line in `COMMANDS`. Commands import
the heavy rooms inside the function, so that `lastiterate --help` stays quick. A failed check is
``raise typer.Exit(CHECK_FAILED)``.
"""

from __future__ import annotations

from typing import Annotated

import typer

from lastiterate.cli.account import account
from lastiterate.cli.audit import audit
from lastiterate.cli.calibrate import calibrate
from lastiterate.cli.certify import certify
from lastiterate.cli.compare import compare
from lastiterate.cli.compose import compose
from lastiterate.cli.demo import demo
from lastiterate.cli.doctor import doctor
from lastiterate.cli.explore import explore
from lastiterate.cli.export import export
from lastiterate.cli.generalize import generalize
from lastiterate.cli.help_texts import plain_help
from lastiterate.cli.keygen import keygen
from lastiterate.cli.plateau import plateau
from lastiterate.cli.predict import predict
from lastiterate.cli.recommend import recommend
from lastiterate.cli.report import report
from lastiterate.cli.revoke import revoke
from lastiterate.cli.schema import schema
from lastiterate.cli.sgld_privacy import sgld_privacy
from lastiterate.cli.theorems import theorems
from lastiterate.cli.train import train
from lastiterate.cli.unlearn import unlearn
from lastiterate.cli.verify import verify

CHECK_FAILED = 3

COMMANDS = (
    account,
    compare,
    calibrate,
    recommend,
    plateau,
    theorems,
    compose,
    certify,
    verify,
    keygen,
    revoke,
    generalize,
    sgld_privacy,
    schema,
    train,
    predict,
    export,
    unlearn,
    audit,
    report,
    explore,
    demo,
    doctor,
)


def application() -> typer.Typer:
    """All commands, under one roof."""
    app = typer.Typer(
        help="Exact privacy accounting for noisy training that releases only the last iterate.",
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for command in COMMANDS:
        app.command(cls=plain_help(command))(command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from lastiterate import __version__

        print(__version__)
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Exact privacy accounting for noisy training that releases only the last iterate."""
