"""What people see when they type: names, short lines, and results in a notebook."""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest

import lastiterate
from lastiterate import Cyclic, DescriptionError, FullBatch, Loss, Training, account, compare

RUN = Training(
    records=5,
    steps=200,
    step_size=0.1,
    noise=1.0,
    gradient_norm=2.0,
    batches=FullBatch(),
    adjacency="replace",
)
LOSS = Loss(smoothness=1.0, strong_convexity=1.0)
GUESS = Loss(smoothness=1.0, provenance="estimated")
HOSTILE = "<script>alert('1')</script>&\""


class Balanced(HTMLParser):
    """Reads a piece of HTML: every tag that opens closes, and nothing is fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in [
            "div",
            "p",
            "strong",
            "table",
            "tbody",
            "tr",
            "td",
            "details",
            "summary",
            "pre",
        ]
        assert {name for name, _ in attrs} <= {"style"}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def claimed(text: str) -> float:
    found = re.search(r"epsilon <= (\S+)(?: |,)", text)
    assert found
    return float(found[1].rstrip(","))


def test_dir_shows_the_public_names_alone():
    assert set(dir(lastiterate)) == {*lastiterate.__all__, "__version__"}
    for name in dir(lastiterate):
        assert getattr(lastiterate, name) is not None


def test_reprs_are_one_short_line_and_rounded_up():
    guarantee, table = account(RUN, LOSS), compare(RUN, LOSS)
    for shown in (repr(guarantee), repr(table)):
        assert "\n" not in shown
        assert len(shown) < 200
        assert guarantee.epsilon(1e-5) <= claimed(shown) < 1.001 * guarantee.epsilon(1e-5)
        assert guarantee.theorem.name in shown


def test_nothing_that_applies_is_a_comparison_too():
    silent = RUN.replace(noise=0.0, batches=Cyclic(1), clipping="gradient")
    assert "epsilon <= inf" in repr(account(silent, Loss.unknown()))
    table = compare(silent, Loss.unknown())
    assert "bounds at delta" in repr(table)
    assert Balanced(table._repr_html_()).text


def test_an_estimate_says_so_first():
    for result in (account(RUN, GUESS), compare(RUN, GUESS)):
        assert "NOT A GUARANTEE" in repr(result)
        assert Balanced(result._repr_html_()).text.startswith("NOT A GUARANTEE")
    for result in (account(RUN, LOSS), compare(RUN, LOSS)):
        assert "NOT A GUARANTEE" not in repr(result) + result._repr_html_()


def test_guarantee_and_comparison_in_a_notebook():
    guarantee, table = account(RUN, LOSS), compare(RUN, LOSS)
    page = Balanced(guarantee._repr_html_())
    assert claimed(page.text) >= guarantee.epsilon(1e-5)
    assert str(guarantee) in page.text
    page = Balanced(table._repr_html_())
    for row in table:
        assert row.theorem.name in page.text
    for row in table.inapplicable:
        assert row.reason in page.text


def test_a_certificate_in_a_notebook_escapes_what_strangers_wrote():
    pytest.importorskip("flint")
    certificate = lastiterate.certify(RUN, LOSS, delta=1e-5, dataset=HOSTILE)
    text = certificate._repr_html_()
    assert "<script" not in text
    page = Balanced(text)
    assert HOSTILE in page.text
    assert claimed(page.text) >= certificate.epsilon
    assert certificate.theorem in page.text


def test_a_selection_in_a_notebook():
    pytest.importorskip("sklearn")
    from lastiterate.models import PrivateRidge, Tuned

    model = PrivateRidge(epsilon=1.0, feature_bound=1.0, target_bound=1.0)
    found = Tuned(model, {"regularization": 0.1, HOSTILE: HOSTILE}, 1.00004, 1e-6, 0.2, False, 1.0)
    page = Balanced(found._repr_html_())
    assert claimed(page.text) >= 1.00004
    assert HOSTILE in page.text
    seeded = Tuned(model, {}, math.inf, 1e-6, 0.2, True, 1.0)
    assert Balanced(seeded._repr_html_()).text.startswith("NOT A GUARANTEE")


def test_a_bad_description_is_a_value_error():
    with pytest.raises(ValueError, match="records must"):
        RUN.replace(records=0)
    assert issubclass(DescriptionError, lastiterate.LastIterateError)


@pytest.mark.parametrize("clipping", ["none", "gradient", "margin"])
def test_a_run_says_in_words_what_bounds_its_gradients(clipping):
    assert f"{clipping} clipping" not in str(RUN.replace(clipping=clipping))
    assert "none" not in str(RUN.replace(clipping=clipping))


def public_callables() -> Iterator[tuple[str, Any]]:
    """Every function and class that a package lists in ``__all__``, and the classes' methods."""
    seen = set()
    for found in pkgutil.walk_packages(lastiterate.__path__, "lastiterate."):
        if ".cli" in found.name or "opacus" in found.name:
            continue
        try:
            module = importlib.import_module(found.name)
        except ImportError:  # an extra that is not installed
            continue
        for name in getattr(module, "__all__", ()):
            try:
                thing = getattr(module, name)
            except ImportError:  # a name that comes on use, of such an extra
                continue
            if id(thing) in seen or not callable(thing):
                continue
            seen.add(id(thing))
            yield f"{found.name}.{name}", thing
            for method in vars(thing) if inspect.isclass(thing) else ():
                if not method.startswith("_") and inspect.isroutine(getattr(thing, method)):
                    yield f"{found.name}.{name}.{method}", getattr(thing, method)


@pytest.mark.parametrize("package", ["audit", "audit.shadow", "torch"])
def test_names_that_come_on_use_are_not_hidden_by_modules(package):
    """Whoever loads the module first would get it in place of the function of its name."""
    found = importlib.import_module(f"lastiterate.{package}")
    modules = {each.name for each in pkgutil.iter_modules(found.__path__)}
    assert not modules & set(found.__all__)


def test_many_parameters_are_explained_one_by_one():
    """More than five: an Args section (of a result: Attributes) that names each of them."""
    unexplained, looked_at = {}, 0
    for name, thing in public_callables():
        try:
            names = [n for n in inspect.signature(thing).parameters if n not in ("self", "cls")]
        except (TypeError, ValueError):  # built in, or an enumeration
            continue
        if len(names) <= 5 or not (thing.__module__ or "").startswith("lastiterate"):
            continue
        looked_at += 1
        text = inspect.getdoc(thing) or ""
        _, _, section = text.partition("Args:\n")
        section = section or text.partition("Attributes:\n")[2]
        missing = [n for n in names if not re.search(rf"\b{n}\b[^:\n]*:", section)]
        if missing and "Arguments are those of `" not in text:
            unexplained[name] = missing
    assert looked_at > 30
    assert unexplained == {}
