"""`lastiterate audit`: measure what leaks, and hold it against the certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lastiterate._internal.formatting import printed
from lastiterate.cli.confined import readable
from lastiterate.cli.description_flags import AsJson, Megabytes, Seconds, flag
from lastiterate.cli.output import print_json, print_text
from lastiterate.description.unit import ONE_RECORD

_WHAT, _HOW, _CLAIM = "What is audited", "How", "What is claimed"
_TARGET = "A folder written by `lastiterate train`, an estimator or a function (module:name)."


def audit(
    target: Annotated[str, typer.Argument(help=_TARGET, show_default=False)],
    data: Annotated[
        Path | None, flag("The CSV of the folder's model, or an .npz with X and y.", _WHAT)
    ] = None,
    record: Annotated[int, flag("The record whose traces are looked for.", _WHAT)] = 0,
    canary: Annotated[str, flag("mislabelled | as-is: the record inside.", _WHAT)] = "mislabelled",
    models: Annotated[int, flag("Models to train, both worlds. Default 1000.", _HOW)] = 1000,
    method: Annotated[str, flag("clopper-pearson | gdp | credible.", _HOW)] = "clopper-pearson",
    delta: Annotated[float | None, flag("Default: the certificate's, else 1e-5.", _HOW)] = None,
    confidence: Annotated[float, flag("Default 0.95.", _HOW)] = 0.95,
    seed: Annotated[int | None, flag("Of the models' seeds.", _HOW)] = None,
    backend: Annotated[str | None, flag("loky | ray | dask | ...", _HOW)] = None,
    workers: Annotated[int | None, flag("Processes.", _HOW)] = None,
    store: Annotated[
        Path | None, flag("An SQLite file; the same command goes on after a crash.", _HOW)
    ] = None,
    certificate: Annotated[
        Path | None, flag("A certificate to hold the result against.", _CLAIM)
    ] = None,
    claim_epsilon: Annotated[float | None, flag("A claimed epsilon, at --delta.", _CLAIM)] = None,
    claim_adjacency: Annotated[
        str, flag("Of --claim-epsilon: replace | zero-out.", _CLAIM)
    ] = "replace",
    seconds: Seconds = 60,
    megabytes: Megabytes = 1600,
    as_json: AsJson = False,
) -> None:
    """Train models with and without a record; exit code 3 if they contradict the certificate.

    A function is called as (dataset, seed) and returns a number; without --data the dataset is the
    word "inside" or "outside". An estimator is fitted on X, y with the record mislabelled, and on
    X, y. A folder's model is trained again by its own description.
    """
    from lastiterate.audit import audit as run
    from lastiterate.audit.result import like_with_like
    from lastiterate.audit.targets import named
    from lastiterate.certificate import Certificate

    strangers = (Path(target) if Path(target).is_dir() else None, certificate)
    if code := readable(seconds, megabytes, *(path for path in strangers if path is not None)):
        raise typer.Exit(code)
    found = named(target, data, record, canary)
    claim: Any = found.claim if certificate is None else Certificate.load(certificate)
    widened = found.widened and claim is not None and claim.adjacency == "zero-out"
    if delta is None:
        delta = 1e-5 if claim is None else claim.delta
    if claim_epsilon is None:
        like_with_like(claim)  # before a thousand models are trained
    else:
        claim, widened = (claim_epsilon, delta), found.widened and _zero_out(claim_adjacency)
    result = run(
        found.train,
        found.inside,
        found.outside,
        models=models,
        score=found.score,
        delta=delta,
        confidence=confidence,
        method=method,
        backend=backend,
        workers=workers,
        store=store,
        random_state=seed,
    )
    contradicted = claim is not None and result.contradicts(
        claim, replaced_against_zero_out=widened
    )
    if as_json:
        print_json(
            "audit",
            {**answer(result, claim, contradicted), "replaced_against_zero_out": bool(widened)},
        )
    else:
        print_text(str(result))
        print_text(verdict(claim, contradicted))
    if contradicted:
        raise typer.Exit(3)


def _zero_out(adjacency: str) -> bool:
    from lastiterate.description.fields import one_of

    return one_of("claim_adjacency", adjacency, ("replace", "zero-out")) == "zero-out"


def _claimed(claim: Any) -> tuple[float, float]:
    return claim if isinstance(claim, tuple) else (claim.epsilon, claim.delta)


def verdict(claim: Any, contradicted: bool) -> str:
    """What an audit says about the claim, in one sentence."""
    if claim is None:
        return "No certificate was given, so nothing is contradicted."
    epsilon, delta = _claimed(claim)
    text = f"the claim of epsilon <= {printed(epsilon)} at delta = {printed(delta)}"
    whom = getattr(claim, "unit", None)
    if whom is not None and not whom.default:
        text += f" for {whom} (audited: one record)"
    if contradicted:
        return f"CONTRADICTED: {text} does not hold for what was trained here."
    return f"Not contradicted: {text} stands beside this lower bound."


def answer(result: Any, claim: Any, contradicted: bool) -> dict[str, Any]:
    """The result and the claim as plain values; `lastiterate report` reads them."""
    best = result.best
    epsilon, delta = (None, None) if claim is None else _claimed(claim)
    return {
        "epsilon_lower": result.epsilon_lower,
        "mu_lower": result.mu_lower,
        "hypothesis": result.hypothesis,
        "fpr": result.fpr,
        "fpr_interval": list(best.fpr_interval),
        "fnr": result.fnr,
        "fnr_interval": list(best.fnr_interval),
        **result.to_dict(),
        "claimed_epsilon": epsilon,
        "claimed_delta": delta,
        "claimed_for": getattr(claim, "unit", ONE_RECORD).to_dict(),
        "contradicted": contradicted,
    }
