"""The documentation builds without a warning, its links lead on, it loads nothing from outside."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from built_site import ROOT, build, built, shared_site, written

import lastiterate

pytest.importorskip("zensical")
pytest.importorskip("mkdocstrings")

# What users import, by room: the contract that the reference has to cover.
CONTRACT = {
    "description": "Training Loss FullBatch Cyclic Shuffled Reshuffled Poisson WithoutReplacement "
    "TailAverage",
    "accounting": "account compare theorems Guarantee plateau calibrate recommend excess_risk "
    "predicted_risk best_burst burst_rule optimal_schedule optimal_noises",
    "certificate": "certify compose Certificate",
    "verifier": "verify",
    "curves.gaussian": "delta epsilon mu rdp tradeoff Gaussian",
    "curves.mixture": "Mixture",
    "curves.renyi": "Renyi",
    "curves.loss_distribution": "LossDistribution",
    "composition": "optimal heterogeneous basic advanced",
    "generalization": "generalization",
    "models": "PrivateLogisticRegression PrivateSoftmaxRegression PrivateRidge "
    "PrivateHuberRegressor PrivateLinearSVC tune",
    "train": "noisy_descent",
    "torch": "HiddenStateAccountant describe_loader PrivateLinearProbe estimate_holder",
    "sampling": "sgld posterior_privacy interim_privacy propose_test_sample",
    "audit": "audit required_models AuditResult",
    "federated": "account_federated PrivateFedAvg",
    "published.he_wang_tao": "theorem_4 corollary_3",
    "errors": "DescriptionError UnsupportedError AssumptionError TargetError CertificateError",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_site(tmp_path_factory)


LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
    "embed": "src",
    "form": "action",
}


class Page(HTMLParser):
    """Anchors, links and loaded resources of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        for name in ("id", "name"):
            if values.get(name):
                self.anchors.add(str(values[name]))
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        if tag == "link" and values.get("rel") != "canonical" and values.get("href"):
            self.loaded.append(str(values["href"]))
        resource = values.get(LOADED.get(tag, ""))
        if resource:
            self.loaded.append(resource)


def read(site: Path) -> dict[Path, Page]:
    found = {p: Page(p.read_text(encoding="utf-8")) for p in site.rglob("*.html")}
    assert len(found) > 40
    return found


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return read(site)


def outside(link: str) -> bool:
    parts = urlsplit(link)
    return bool(parts.netloc) or parts.scheme in ("http", "https", "ws", "wss")


def check_resources(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert page.loaded, path
        assert not [link for link in page.loaded if outside(link)], path
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", text), sheet


def test_nothing_is_loaded_from_outside(site: Path, pages: dict[Path, Page]) -> None:
    check_resources(site, pages)


@pytest.mark.slow
def test_the_whole_site_with_its_figures(tmp_path: Path) -> None:
    """What `make docs` builds: every picture is there, and draws itself without the network."""
    pytest.importorskip("nbclient", reason="nbclient is not installed: make docs does that")
    site = built(written(tmp_path))
    for page in (site / "notebooks").glob("*.html"):
        assert 'class="notebook-output"' in page.read_text(encoding="utf-8"), page
    pages = read(site)
    check_resources(site, pages)
    figures = [link for link in pages[site / "gallery.html"].loaded if link.startswith("gallery/")]
    assert len(figures) > 5
    for path in (site / link for link in figures):
        text = path.read_text(encoding="utf-8")
        assert text.startswith("<svg "), path
        assert "prefers-color-scheme: dark" in text
        assert Page(text).loaded == []


def test_an_outside_script_would_be_noticed() -> None:
    page = Page('<script src="https://cdn.example/x.js"></script><img src="//x.example/y.png">')
    assert [outside(link) for link in page.loaded] == [True, True]
    assert not outside("../assets/x.js")


def test_links_and_anchors_of_the_built_pages(site: Path, pages: dict[Path, Page]) -> None:
    """The generated ones too, which the builder does not check."""
    for path, page in pages.items():
        if path.name == "404.html":  # its links start at the root of a server
            continue
        for link in page.links:
            if outside(link) or link.startswith("mailto:"):
                continue
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            assert target.exists(), f"{path.relative_to(site)}: {link}"
            if parts.fragment and target in pages:
                anchors = pages[target].anchors
                assert unquote(parts.fragment) in anchors, f"{path.relative_to(site)}: {link}"


def test_every_public_name_is_in_the_reference(pages: dict[Path, Page]) -> None:
    anchors = set().union(*(p.anchors for path, p in pages.items() if "reference" in path.parts))
    for room, names in CONTRACT.items():
        for name in names.split():
            assert f"lastiterate.{room}.{name}" in anchors, f"{room}.{name}"
    index = next(page for path, page in pages.items() if path.match("reference/index.html"))
    linked = {link.rpartition(".")[2] for link in index.links}
    assert set(lastiterate.__all__) <= linked


def test_the_registry_page_is_the_codes(site: Path) -> None:
    text = html.unescape(
        re.sub(r"<[^>]+>", "", (site / "theorems.html").read_text(encoding="utf-8"))
    )
    for theorem in lastiterate.theorems():
        for part in (theorem.name, theorem.reference, theorem.statement, theorem.correction):
            assert part in text, f"{theorem.name}: {part}"
        for assumption in theorem.assumptions:
            assert assumption in text, f"{theorem.name}: {assumption}"


def test_the_registry_page_links_papers_and_pages(site: Path) -> None:
    text = (site / "theorems.html").read_text(encoding="utf-8")
    for theorem in lastiterate.theorems():
        entry = html.unescape(text.split(f'id="{theorem.key}"')[1].split("<h2")[0])
        for paper in re.findall(r"(?:[A-Z]\w+(?:,| &| et al\.)? )+\d{4}", theorem.reference):
            link = rf'<a href="https://arxiv\.org/abs/[\d.]+">{re.escape(paper)}</a>'
            assert re.search(link, entry), f"{theorem.key}: {paper}"
        for page in re.findall(r"docs/([\w/-]+)\.md", theorem.reference):
            assert f'href="{page}.html"' in entry, f"{theorem.key}: {page}"


def test_accuracies_of_the_defaults_are_those_measured(site: Path) -> None:
    """Every data set and every epsilon that was measured, each in its own table."""
    text = (site / "how-it-compares.html").read_text(encoding="utf-8")
    saved = json.loads((ROOT / "benchmarks/results/models.json").read_text(encoding="utf-8"))
    ours = [row for row in saved["rows"] if row["name"].endswith("ours (defaults)")]
    assert len(ours) >= 15
    for row in ours:
        data, epsilon, _ = row["name"].split(", ")
        table = text.split(f'id="{data.lower()}"')[1].split("</table>")[0]
        head = re.findall(r"<th>(.*?)</th>", table)
        cells = re.findall(r"<td>(.*?)</td>", table.split("lastiterate, defaults")[1])
        at = head.index(epsilon.replace("eps", "epsilon"))
        assert cells[at - 1] == row["measured"], row["name"]


def test_examples_of_docstrings_are_shown_as_code(site: Path) -> None:
    pages = (site / "reference" / f"{name}.html" for name in ("accounting", "description"))
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert "<blockquote>" not in text
    assert text.count('<span class="gp">&gt;&gt;&gt;') > 20


def test_errata_covers_every_refuted_and_corrected_entry() -> None:
    """By a link to the entry; that it leads somewhere is checked above."""
    errata = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    for theorem in lastiterate.theorems():
        if theorem.status != "sound":
            assert f"(theorems.md#{theorem.key})" in errata, theorem.name


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[here](index.md#page)", "No issues found"),
        ("[nowhere](nowhere.md)", "page does not exist"),
        ("[no anchor](index.md#nowhere)", "anchor does not exist"),
        ("[absolute](/index.md)", "page does not exist"),
    ],
)
def test_a_broken_link_breaks_the_build(tmp_path: Path, text: str, complaint: str) -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    settings |= {"docs_dir": "docs", "plugins": ["search"], "nav": ["index.md"]}
    config = tmp_path / "mkdocs.yml"
    config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Page\n\n{text}\n", encoding="utf-8")
    made = build(config)
    assert (made.returncode == 0) == (complaint == "No issues found")
    assert complaint in made.stdout + made.stderr


def test_every_page_is_in_the_menu(site: Path) -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))

    def pages(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        parts = entry.values() if isinstance(entry, dict) else entry
        return [page for part in parts for page in pages(part)]

    folder = site.parent / "pages"
    written = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.md"))
    assert sorted(pages(settings["nav"])) == written


def test_links_of_pages_outside_the_site() -> None:
    """README and CONTRIBUTING are read in the repository."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            assert outside(link) or (ROOT / link).exists(), f"{page.name}: {link}"
