"""`lastiterate demo`: what the library is for, in three small tables and one filed model.

Every number is computed while you wait: a model is trained, its certificate verified, an attack on
it measured, and a report written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lastiterate._internal.atomic_write import write_whole
from lastiterate.cli.description_flags import AsJson
from lastiterate.cli.output import json_text, number, print_json, print_table, print_text
from lastiterate.errors import DescriptionError

AUDITED_MODELS = 4000


def demo(
    out: Annotated[
        Path | None,
        typer.Option(help="A new folder for model and report; else a temporary one."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the main job on three examples, then train, verify, audit and report on a model."""
    if out is not None and (out.exists() or not out.absolute().parent.is_dir()):
        why = "nothing is overwritten"
        raise DescriptionError("out", str(out), "a new folder inside one that exists", why)
    parts = (full_batch, shuffled_loader, one_pass)
    if as_json:
        print_json("demo", {part.__name__: part()["numbers"] for part in parts})
        return
    for part in parts:
        show(part())
    file_a_model(out)


def file_a_model(out: Path | None, models: int = AUDITED_MODELS) -> None:
    """Train, verify, audit, report; says what to install where that is not possible."""
    print_text("4. A model trained, certified, attacked and reported")
    try:
        from lastiterate.models.demo import run, write_tables
    except ImportError as missing:
        _not_shown(missing, "models")
        return
    folder = _new_folder(out)
    table, test = write_tables(folder)
    print_text(str(run(folder / "run", table, test)))
    verify_it(folder / "run")
    audit_it(folder / "run", table, models)
    report_it(folder)


def verify_it(run: Path) -> None:
    """Recompute the certificate, as a stranger would."""
    from lastiterate.certificate import verify

    path = run / "certificate.json"
    print_text(f"\nlastiterate verify {path}")
    print_text(f"  {verify(path)}")


def audit_it(run: Path, table: Path, models: int) -> None:
    """Attack the run: thousands of models with and without one record, which was mislabelled."""
    from lastiterate.audit import audit
    from lastiterate.audit.targets import named
    from lastiterate.cli.audit import answer, verdict

    print_text(
        f"\nlastiterate audit {run} --data {table} --models {models} --json > {run / 'audit.json'}"
    )
    target = named(str(run), table, 0, "mislabelled")
    claim: Any = target.claim
    result = audit(
        target.train,
        target.inside,
        target.outside,
        score=target.score,
        models=models,
        delta=claim.delta,
        progress=False,
    )
    contradicted = result.contradicts(claim)
    found = json_text("audit", answer(result, claim, contradicted))
    write_whole(run / "audit.json", (found + "\n").encode("utf-8"))
    for line in (*str(result).splitlines(), verdict(claim, contradicted)):
        print_text(f"  {line}")


def report_it(folder: Path) -> None:
    """One page about all of it."""
    try:
        from lastiterate.report.page import Report
    except ImportError as missing:
        _not_shown(missing, "report")
        return
    path = folder / "report.html"
    print_text(f"\nlastiterate report {folder / 'run'} -o {path}")
    page = Report.of(folder / "run")
    page.save(path)
    print_text(f"  {page.status.upper()}. Open it in a browser: {path.resolve()}")


def _new_folder(out: Path | None) -> Path:
    import tempfile

    if out is None:
        return Path(tempfile.mkdtemp(prefix="lastiterate-demo-"))
    out.mkdir(mode=0o755)
    return out


def _not_shown(missing: ImportError, extra: str) -> None:
    print_text(
        f'   not shown: {missing.name} is not installed (pip install "lastiterate[{extra}]").'
    )


def show(found: dict[str, Any]) -> None:
    """Print one example."""
    print_table(found["title"], found["columns"], found["rows"])
    print_text(found["remark"] + "\n")


def full_batch() -> dict[str, Any]:
    """The example of Chien and Li's first figure: strongly convex, all records in every step."""
    from lastiterate import FullBatch, Loss, Training, account, plateau

    loss, delta = Loss(smoothness=1.0, strong_convexity=1.0), 1e-5
    training = Training(
        records=5,
        steps=1,
        step_size=0.1,
        noise=1.0,
        gradient_norm=2.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    numbers = []
    for steps in (10, 100, 1000, 10_000):
        run = training.replace(steps=steps)
        everything = account(run, Loss.unknown()).epsilon(delta)
        last = account(run, loss).epsilon(delta)
        numbers.append({"steps": steps, "all_iterates": everything, "last_iterate": last})
    step = plateau(training, loss, delta)
    return {
        "title": "1. Full batch, strongly convex: epsilon at delta = 1e-5",
        "columns": ("steps", "all iterates published", "only the last iterate"),
        "rows": [
            (f"{n['steps']:,}", number(n["all_iterates"]), number(n["last_iterate"]))
            for n in numbers
        ],
        "remark": f"Composition grows for ever. The last iterate has its plateau at step {step}.",
        "numbers": {"delta": delta, "plateau": step, "runs": numbers},
    }


def shuffled_loader() -> dict[str, Any]:
    """Logistic regression on 60,000 records in 40 batches, as a data loader runs it."""
    from lastiterate import Cyclic, Loss, Poisson, Shuffled, Training, account

    loss, delta = Loss(smoothness=0.25, regularization=0.002), 1e-5
    numbers = []
    for epochs in (50, 100, 200):
        run = Training(
            records=60_000,
            steps=40 * epochs,
            step_size=0.05,
            noise=1e-4,
            gradient_norm=1.0,
            batches=Shuffled(1500),
            adjacency="replace",
        )
        cyclic = run.replace(batches=Cyclic(1500))
        sampled = run.replace(batches=Poisson(1 / 40), adjacency="zero-out")
        numbers.append(
            {
                "epochs": epochs,
                "all_iterates": account(cyclic, Loss.unknown()).epsilon(delta),
                "worst_position": account(cyclic, loss).epsilon(delta),
                "hidden_position": account(run, loss).epsilon(delta),
                "poisson_zero_out": account(sampled, Loss.unknown()).epsilon(delta),
                "hidden_position_zero_out": account(
                    run.replace(adjacency="zero-out"), loss
                ).epsilon(delta),
            }
        )
    columns = (
        "epochs",
        "batches in a known order, all iterates",
        "known order, last iterate",
        "shuffled once, last iterate",
        "shuffled once, zero-out",
        "Poisson accounting, zero-out (another algorithm)",
    )
    keys = (
        "all_iterates",
        "worst_position",
        "hidden_position",
        "hidden_position_zero_out",
        "poisson_zero_out",
    )
    return {
        "title": "2. Logistic regression, 40 shuffled batches: epsilon at delta = 1e-5",
        "columns": columns,
        "rows": [(str(n["epochs"]), *(number(n[key]) for key in keys)) for n in numbers],
        "remark": (
            "The loader shuffles, so the Poisson column describes a run that nobody made. Columns "
            "two to four count replaced records, the last two removed contributions."
        ),
        "numbers": {"delta": delta, "runs": numbers},
    }


def one_pass() -> dict[str, Any]:
    """One pass of 1000 batches with an equalised last epoch, against Poisson accounting."""
    from lastiterate import Loss, Poisson, Shuffled, Training, account

    loss, delta = Loss(smoothness=0.25), 1e-6
    loop: dict[str, Any] = {"records": 60_000, "steps": 1000, "step_size": 1.0, "clip": 1.0}
    numbers = []
    for multiplier in (0.134, 0.700):
        shuffled = Training.dp_sgd(
            **loop,
            noise_multiplier=multiplier,
            batches=Shuffled(60),
            clipping="none",
            schedule="equalised",
        )
        poisson = Training.dp_sgd(**loop, noise_multiplier=multiplier, batches=Poisson(0.001))
        numbers.append(
            {
                "noise_multiplier": multiplier,
                "last_iterate": account(shuffled, loss).epsilon(delta),
                "poisson": account(poisson, Loss.unknown()).epsilon(delta),
            }
        )
    return {
        "title": "3. One pass, 1000 batches, equalised steps, zero-out: epsilon at delta = 1e-6",
        "columns": ("noise multiplier", "last iterate", "Poisson accounting"),
        "rows": [
            (f"{n['noise_multiplier']:.3f}", number(n["last_iterate"]), number(n["poisson"]))
            for n in numbers
        ],
        "remark": (
            "Epsilon 1 needs a fifth of the noise: the regime where hiding the intermediate models "
            "pays is many small batches and few passes."
        ),
        "numbers": {"delta": delta, "runs": numbers},
    }
