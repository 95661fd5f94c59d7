"""`lastiterate train`: from a table and a declared schema to a model with its certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lastiterate.cli.described import burst_factor
from lastiterate.cli.description_flags import AsJson, flag
from lastiterate.cli.output import print_json, print_text

TABLE = "CSV with a header (or .csv.gz), Parquet, Arrow or Feather."
MODELS = ("logistic", "softmax", "svc", "ridge", "huber")
_SCHEMA, _RUN, _WHOM = "What the columns mean", "The run", "Whom it is for"
_FILED = "What is filed"


def train(
    table: Annotated[Path, typer.Argument(help=TABLE, show_default=False)],
    target: Annotated[str, typer.Option(help="The column to predict.", show_default=False)],
    epsilon: Annotated[float, typer.Option(help="The privacy to spend.", show_default=False)],
    out: Annotated[Path, typer.Option(help="A new folder for the results.", show_default=False)],
    delta: Annotated[float | None, flag("Probability that epsilon fails.", _RUN)] = None,
    schema: Annotated[
        Path | None, flag("A TOML file, filled in (lastiterate schema).", _SCHEMA)
    ] = None,
    numeric: Annotated[list[str] | None, flag("NAME=LOW:HIGH", _SCHEMA)] = None,
    category: Annotated[list[str] | None, flag("NAME=A,B,C", _SCHEMA)] = None,
    drop: Annotated[list[str] | None, flag("A column to leave out.", _SCHEMA)] = None,
    classes: Annotated[str | None, flag("All classes of the target: A,B,...", _SCHEMA)] = None,
    target_range: Annotated[str | None, flag("The target's LOW:HIGH.", _SCHEMA)] = None,
    model: Annotated[str | None, flag(" | ".join(MODELS), _RUN)] = None,
    regularization: Annotated[float | None, flag("Coefficient of the L2 term.", _RUN)] = None,
    steps: Annotated[int | None, flag("Number of updates.", _RUN)] = None,
    batch_size: Annotated[int | None, flag("Records per update.", _RUN)] = None,
    final_noise: Annotated[
        str | None, flag("Factor on the variance of the last step's noise, or best.", _RUN)
    ] = None,
    adjacency: Annotated[str, flag("zero-out | replace", _RUN)] = "zero-out",
    prepare: Annotated[
        str,
        flag(
            "auto: private means, scales and whitening where they pay; whiten: also of two classes "
            "or numbers; scale: no whitening; none: ranges alone.",
            _RUN,
        ),
    ] = "auto",
    curved: Annotated[
        str,
        flag(
            "Answers bend along the columns. auto: where records are many enough; yes | no.", _RUN
        ),
    ] = "auto",
    seed: Annotated[
        int | None, flag("A reproducible experiment, without a certificate.", _RUN)
    ] = None,
    groups: Annotated[
        str | None, flag("The column that says whose record it is: epsilon is a person's.", _WHOM)
    ] = None,
    max_records_per_group: Annotated[
        int | None, flag("Of one person so many records count; others are dropped.", _WHOM)
    ] = None,
    per_batch: Annotated[
        int | None, flag("Refuse a run with more of a person's records in one batch.", _WHOM)
    ] = None,
    test: Annotated[
        Path | None, flag("A table of other records: how well the model does there.", _RUN)
    ] = None,
    key: Annotated[
        Path | None, flag("Sign the certificate with this private key (lastiterate keygen).", _RUN)
    ] = None,
    title: Annotated[str, flag("What the report is called.", _FILED)] = "",
    data_label: Annotated[str, flag("What the data are called; never their content.", _FILED)] = "",
    as_json: AsJson = False,
) -> None:
    """Train a private model on a table; write model, certificate and report to a folder."""
    import warnings

    from lastiterate.description.fields import one_of
    from lastiterate.errors import DescriptionError, OperatorWarning, PrivacyWarning
    from lastiterate.models.base import HOW
    from lastiterate.models.saved import Score, TableModel, about, free, report, save
    from lastiterate.models.table import check_file, read_header, read_table
    from lastiterate.models.table_model import chosen

    for path in (table, test):
        if path is not None:
            check_file(path)
    if table.is_file() and target not in read_header(table)[0]:  # a pipe is read once
        allowed = "one of the columns of the table (not shown)"
        raise DescriptionError("target", target, allowed, "the table has no such column")
    free(out)
    signer = _signer(key, seed)
    meaning = _schema(schema, target, numeric, category, drop, classes, target_range)
    rows = read_table(table)
    owners = None
    if per_batch is not None and groups is None:
        why = "it is about one person's records"
        raise DescriptionError(
            "per_batch", per_batch, "given with --groups and --max-records-per-group", why
        )
    if groups is not None:
        meaning, owners = meaning.without_names(groups), rows.texts(groups)
    X, y = meaning.encode(rows)
    others = None if test is None else meaning.encode(read_table(test))
    one_of("prepare", prepare, (*HOW, "none"))
    one_of("curved", curved, ("auto", "yes", "no"))
    estimator = chosen(meaning, model).set_params(
        curved=curved if curved == "auto" else curved == "yes",
        prepare=None if prepare == "none" else prepare,
        epsilon=epsilon,
        delta=delta,
        regularization=regularization,
        steps=steps,
        batch_size=batch_size,
        final_noise=burst_factor(final_noise),
        adjacency=adjacency,
        max_records_per_group=max_records_per_group,
        random_state=seed,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrivacyWarning)
        trained = TableModel(meaning, estimator.fit(X, y, groups=owners))
    if per_batch is not None:
        _check_apart(trained.model, per_batch)
    said = [w for w in caught if issubclass(w.category, PrivacyWarning)]
    told = [str(w.message) for w in said if issubclass(w.category, OperatorWarning)]
    notes = [str(w.message) for w in said if not issubclass(w.category, OperatorWarning)]
    score = None if others is None else Score.of(trained.model, *others)
    public = about(trained, len(y), notes, score, title=title, data_label=data_label)
    save(out, trained, report(trained, len(y), notes, score), public, signer)
    certificate = trained.model.certificate_
    if as_json:
        print_json(
            "train",
            {
                "out": str(out),
                "epsilon": None if certificate is None else certificate.epsilon,
                "delta": trained.model.delta_,
                "records": len(y),
                "features": X.shape[1],
                "training": trained.model.training_.to_dict(),
                "choice": [list(reason) for reason in trained.model.choice_.reasons],
                "unit": trained.model.choice_.unit.to_dict(),
                "warnings": [*notes, *told],
                "score": public["score"],
            },
        )
        return
    for note in (*notes, *told):
        print_text(f"Warning: {note}")
    print_text((out / "report.md").read_text(encoding="utf-8"))


def _signer(key: Path | None, seed: int | None) -> Any:
    """The private key, read before anything is spent."""
    from lastiterate.certificate.signatures import private_key
    from lastiterate.errors import LastIterateError

    if key is None:
        return None
    if seed is not None:
        raise LastIterateError("--key signs a certificate, and a seeded experiment has none.")
    return private_key(key)


def _schema(
    schema: Path | None,
    target: str,
    numeric: list[str] | None,
    category: list[str] | None,
    drop: list[str] | None,
    classes: str | None,
    target_range: str | None,
) -> Any:
    from lastiterate.errors import DescriptionError
    from lastiterate.models.schema import Schema

    if schema is not None and any((numeric, category, classes, target_range)):
        why = "two declarations could disagree"
        allowed = "declared once: by --schema or by flags"
        raise DescriptionError("columns", "declared twice", allowed, why)
    if schema is not None:
        return Schema.read(schema, target)
    return Schema.of_flags(target, numeric or (), category or (), drop or (), classes, target_range)


def _check_apart(model: Any, per_batch: int) -> None:
    """Nothing has been released yet: how a run spreads records is no secret, and no reason to."""
    from lastiterate.errors import DescriptionError

    person = model.choice_.unit
    most = person.most_in_a_batch(model.training_)
    if most > per_batch:
        allowed = f"at least {most}, or a run of smaller batches (--batch-size)"
        why = f"records are spread as far as the batches allow, and this run is for {person}"
        raise DescriptionError("per_batch", per_batch, allowed, why)
