"""One HTML file about one run, to be read, printed, signed and filed.

It stands alone: styles and figures (SVG) are inside, it has no script, and a content security
policy forbids it to load anything or to run any. Everything that comes from files is escaped. What
it says about privacy comes from a certificate that was verified while the page was made.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from lastiterate import __version__
from lastiterate._internal.atomic_write import write_whole
from lastiterate._internal.formatting import percent, printed
from lastiterate.certificate import Certificate
from lastiterate.certificate.certificate import weakness
from lastiterate.errors import DescriptionError
from lastiterate.report.attacker import FALSE_ALARMS, detection_rate
from lastiterate.report.page_figures import Figures, figures_of
from lastiterate.report.plain_words import plain_words, say, shown, to_sign
from lastiterate.report.recipe import python_recipe, toml_recipe, writable
from lastiterate.report.run_folder import RunFolder
from lastiterate.verifier.authenticity import Key

_CLOSE = 0.1  # up to here probabilities are almost the same: they differ by a tenth
_MANY_DIGITS = 1e-15
_HUGE = 10.0  # from here on what was unlikely can have become certain
_BEYOND = "more than 10^300"


@dataclass(frozen=True)
class Report:
    """A run's page. Make one with `Report.of`, look at `status`, write it with `save`."""

    folder: RunFolder

    @classmethod
    def of(
        cls,
        run: str | os.PathLike[str],
        *,
        trusted_keys: Sequence[Key] | None = None,
        revoked: Sequence[str | os.PathLike[str]] = (),
    ) -> Report:
        """Read a folder written by `lastiterate train`, or a certificate, and verify it.

        With ``trusted_keys`` one of them must have signed it, and ``revoked`` notes count, as in
        `verify`.

        >>> import tempfile
        >>> from lastiterate import FullBatch, Loss, Training, certify
        >>> run = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
        ...                batches=FullBatch())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "run.json"
        ...     certify(run, Loss(smoothness=1.0), delta=1e-5).save(path)
        ...     Report.of(path).status
        'verified'
        """
        return cls(RunFolder.read(Path(run), trusted_keys, revoked))

    @cached_property
    def figures(self) -> Figures:
        """The figures of the page, computed on first use; a summary shows none."""
        return Figures((), ()) if self.folder.status == "refused" else figures_of(self.folder)

    @property
    def status(self) -> str:
        """ "verified", "contradicted" (by an audit), "refused" or "experiment"."""
        contradicted = self.folder.status == "verified" and self.folder.failed
        return "contradicted" if contradicted else self.folder.status

    @property
    def failed(self) -> bool:
        """Whether a check failed: the certificate's, or an audit against it."""
        return self.folder.failed

    def html(self, *, summary: bool = False) -> str:
        """Return the page, or its one-page summary."""
        return _render(self, summary)

    def save(self, path: str | os.PathLike[str], *, summary: bool = False) -> None:
        """Write the page; at every moment the path holds the old file or the whole new one."""
        target = Path(path)
        check_target(target)
        _write(target, self.html(summary=summary))


def check_target(path: Path) -> None:
    """Raise where no page could or should be written: better before the work than after."""
    if path.suffix.lower() not in (".html", ".htm"):
        why = "a report must not replace a certificate or a model by a slip of the hand"
        raise DescriptionError("output", str(path), "a name that ends in .html", why)
    if not path.absolute().parent.is_dir() or path.is_dir():
        why = "nothing is guessed"
        raise DescriptionError("output", str(path), "a file inside a folder that exists", why)


def _write(target: Path, text: str) -> None:
    try:
        # JSON can hold half a character
        write_whole(target, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        allowed, why = "a file that can be written", "a report that is nowhere helps nobody"
        raise DescriptionError("output", f"{target} ({error})", allowed, why) from None


# --- what the page says ---------------------------------------------------------------------------


def _render(report: Report, summary: bool) -> str:
    room = files("lastiterate.report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: room.joinpath(name).read_text(encoding="utf-8")),
        autoescape=True,
        finalize=shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("summary.html" if summary else "page.html")
    return template.render(
        **_facts(report.folder, summary),
        figures=Figures((), ()) if summary else report.figures,
        style=room.joinpath("page.css").read_text(encoding="utf-8"),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        versions=_versions(),
    )


def _facts(folder: RunFolder, summary: bool) -> dict[str, Any]:
    certificate, about = folder.certificate, folder.about
    description = folder.description
    promise = words = sign = None
    if certificate is not None:
        promise = _promise(certificate, folder.proved, folder.released)
        words = plain_words(certificate, promise)
        sign = to_sign(
            promise["assumptions"],
            trainer=None if about is None else about.versions.get("lastiterate"),
            short=summary,
        )
    return {
        "folder": folder,
        "about": about,
        "say": say,
        "title": _title(folder),
        "data": _data(folder),
        "certificate": certificate,
        "promise": promise,
        "words": words or {"title": say("words_title")},
        "sign": sign,
        "recipe": None if description is None else _recipe(*description),
        "audit": None if folder.audited is None else str(folder.audited.result).splitlines(),
    }


def _title(folder: RunFolder) -> str:
    """The user's words, if the run has some."""
    if folder.about is not None and folder.about.title:
        return folder.about.title
    if folder.about is not None:
        return say("title_model", model=folder.about.model, target=folder.about.target)
    if folder.certificate is not None and folder.certificate.dataset:
        return say("title_data", data=folder.certificate.dataset)
    return say("title_folder", folder=folder.label)


def _data(folder: RunFolder) -> str:
    """What the data are called: by the certificate, or in the description that it seals."""
    named = "" if folder.certificate is None else folder.certificate.dataset
    return named or ("" if folder.about is None else folder.about.data_label)


def _one_in(delta: float) -> str:
    """1/delta, rounded down; a power of ten where it has too many digits to read.

    >>> _one_in(0.001), _one_in(2e-310)
    ('1,000', '10^309')
    """
    if delta >= _MANY_DIGITS:
        return f"{math.floor(1 / delta):,}"
    return f"10^{math.floor(-math.log10(delta))}"  # 1/delta may be beyond all doubles


def _promise(
    certificate: Certificate, proved: tuple[tuple[float, float], ...], released: Mapping[str, str]
) -> dict[str, Any]:
    """The verified numbers, printed so that no digit promises too much."""
    claims = ((certificate.delta, certificate.epsilon), *certificate.curve)
    runs = [run.training for run in certificate.parts or (certificate,)]
    return {
        "epsilon": printed(certificate.epsilon),
        "delta": printed(certificate.delta),
        "weak": weakness(certificate),
        "factor": _factor(certificate.epsilon),
        "close": certificate.epsilon <= _CLOSE,
        "huge": certificate.epsilon >= _HUGE,
        "one_in": _one_in(certificate.delta),
        "mu": None if certificate.mu is None else printed(certificate.mu),
        "curve": [(printed(delta), printed(epsilon)) for delta, epsilon in sorted(claims)],
        "records": sorted({f"{run.records:,}" for run in runs if run is not None}),
        "whom": None if certificate.unit.default else _sentence(str(certificate.unit)),
        "several": certificate.unit.records > 1,
        "replaced": certificate.adjacency == "replace",
        "attacks": [
            (percent(rate), percent(detection_rate(rate, proved, certificate.mu)))
            for rate in FALSE_ALARMS
        ],
        "assumptions": [_provenance_row(text) for text in certificate.assumptions],
        "declarations": [_provenance_row(text)[0] for text in certificate.declarations],
        "bound": [
            run.content["parameters"]
            for run in certificate.parts or (certificate,)
            if run.content.get("parameters")
        ],
        "parts": [
            (run.theorem, _released(run, released), printed(run.epsilon), printed(run.delta))
            for run in certificate.parts
        ],
    }


def _released(run: Certificate, words: Mapping[str, str]) -> str:
    """What came out of a run, by the file that holds it; else as its certificate says."""
    return words.get(run.content.get("parameters") or "", run.release)


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:]


def _factor(epsilon: float) -> str:
    """e^epsilon, rounded up, as somebody reads it.

    >>> _factor(0.1), _factor(4.0), _factor(1e4)
    ('1.106', '54.6', 'more than 10^300')
    """
    return printed(math.nextafter(math.exp(epsilon), math.inf)) if epsilon < 690 else _BEYOND


def _provenance_row(text: str) -> tuple[str, str]:
    """An assumption of a certificate, apart from who vouches for it."""
    statement, bracket, provenance = text.rpartition(" [")
    return (statement, provenance[:-1]) if bracket and provenance.endswith("]") else (text, "")


def _recipe(training: Any, loss: Any, delta: float, releases: tuple[int, ...]) -> dict[str, Any]:
    if not writable(training):
        return {"run": str(training), "python": None, "toml": None}
    return {
        "run": str(training),
        "python": python_recipe(training, loss, delta, releases=releases),
        "toml": toml_recipe(training, loss, delta, releases=releases),
    }


def _versions() -> dict[str, str]:
    used = ("lastiterate", "numpy", "scipy", "python-flint", "matplotlib")
    return {"python": platform.python_version(), **{name: version(name) for name in used}}
