"""`lastiterate report`: what the page says, what it refuses, what it leaves on the disk."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from patience import HANG_SECONDS

from lastiterate import Certificate, FullBatch, Loss, Training, certify, compose
from lastiterate.accounting.guarantee import printed
from lastiterate.certificate.filed import applying
from lastiterate.cli.main import run as command
from lastiterate.report.run_folder import ABOUT, RunFolder

HOSTILE = '</title></script><script>document.title="owned"</script><img src=x onerror=alert(1)>'
RUN = Training(
    records=100,
    steps=10,
    step_size=0.1,
    noise=0.1,
    gradient_norm=1.0,
    batches=FullBatch(),
    adjacency="replace",
)
LOSS = Loss(smoothness=1.0)
Call = Callable[..., tuple[int, str, str]]


class Page(HTMLParser):
    """The elements of a page with their attributes and text, as a browser would find them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.blocks: dict[str, str] = {}
        self._block = ""
        self._silent = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._silent = tag in ("script", "style")
        if tag == "pre":
            self._block = dict(attrs).get("id") or "other"

    def handle_endtag(self, tag: str) -> None:
        self._silent = False
        if tag == "pre":
            self._block = ""

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.words.append(data)
        if self._block:
            self.blocks[self._block] = self.blocks.get(self._block, "") + data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def count(self, tag: str, **attributes: str) -> int:
        return sum(
            name == tag and all(found.get(k) == v for k, v in attributes.items())
            for name, found in self.elements
        )


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: Any) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            command([str(a) for a in arguments])
        said = capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err

    return run


def table(path: Path, name: str = "income", classes: tuple[str, str] = ("low", "high")) -> Path:
    rng = np.random.default_rng(0)
    ages = rng.integers(0, 100, 300)
    rows = [f'{age},"{classes[int(age > 50)]}"' for age in ages]
    quoted = name.replace('"', '""')
    path.write_text(f'age,"{quoted}"\n' + "\n".join(rows) + "\n")
    return path


def trained(folder: Path, *flags: str, name: str = "income", prepare: str = "none") -> Path:
    data = table(folder / "data.csv", name)
    with contextlib.redirect_stdout(io.StringIO()), pytest.raises(SystemExit) as left:
        command(
            [
                "train",
                str(data),
                "--target",
                name,
                "--epsilon",
                "1",
                "--delta",
                "1e-4",
                "--out",
                str(folder / "run"),
                "--numeric",
                "age=0:100",
                "--classes",
                "low,high",
                "--test",
                str(data),
                "--prepare",
                prepare,
                *flags,
            ]
        )
    assert left.value.code == 0
    return folder / "run"


@pytest.fixture(scope="module")
def filed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("filed"), "--batch-size", "40")


@pytest.fixture
def folder(filed: Path, tmp_path: Path) -> Path:
    """A run of one's own, to be spoiled."""
    return Path(shutil.copytree(filed, tmp_path / "run"))


def rewritten(folder: Path, **fields: Any) -> None:
    """Another run.json, and a certificate that is sealed again with it, as anybody can."""
    public = json.loads((folder / ABOUT).read_text())
    text = json.dumps(public | fields).encode()
    (folder / ABOUT).write_bytes(text)
    found = Certificate.load(folder / "certificate.json")
    found.beside(hashlib.sha256(text).hexdigest()).save(folder / "certificate.json")


def test_a_trained_run(call: Call, folder: Path, tmp_path: Path) -> None:
    code, out, err = call("report", folder, "-o", tmp_path / "report.html")
    assert (code, err) == (0, "")
    assert out.startswith("VERIFIED.")
    html = (tmp_path / "report.html").read_text()
    page = Page(html)
    certificate = Certificate.load(folder / "certificate.json")
    assert "VERIFIED." in page.text
    assert "REFUSED" not in page.text
    assert f"ε = {printed(certificate.epsilon)}" in page.text
    for statement in (*certificate.assumptions, *applying(certificate, public_classes=True)):
        assert statement.split(" [")[0] in page.text
    for path in folder.iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() in page.text
    assert certificate.sha256 in page.text
    assert "accuracy" in page.text
    assert "which those in parameters.npz have" in page.text  # the model was compared
    assert f"{printed(math.nextafter(math.exp(certificate.epsilon), 99))} times as" in page.text
    assert page.count("figure") >= 4
    assert page.count("table") >= 5 + page.count("figure")
    assert page.count("table") == page.count("caption")
    assert str(tmp_path) not in html  # where the folder lies is nobody's business
    assert len(html) < 1_000_000
    assert page.count("svg", role="img") == page.count("figure")
    assert page.count("title") == 1 + page.count("figure")  # each figure has a text alternative
    assert page.count("desc") == page.count("figure")
    assert page.count("script") == 0
    assert "plotly" not in html.lower()


def test_a_run_whose_columns_were_prepared(call: Call, tmp_path: Path) -> None:
    """All that was released counts in the headline; what is about the training alone says so."""
    folder = trained(tmp_path, prepare="auto")
    assert call("report", folder, "-o", tmp_path / "report.html")[0] == 0
    page = Page((tmp_path / "report.html").read_text())
    certificate = Certificate.load(folder / "certificate.json")
    assert certificate.parts
    assert f"ε = {printed(certificate.epsilon)}" in page.text
    assert "which those in parameters.npz have" in page.text
    assert "means and deviations" in page.text
    assert "Growth of the training alone" in page.text
    assert "the numbers of the certificate cover everything" in page.text


@pytest.mark.parametrize("delta", [1e-310, 5e-324])
def test_a_delta_whose_inverse_is_no_double(delta: float, call: Call, tmp_path: Path) -> None:
    (tmp_path / "certificate.json").write_text(certify(RUN, LOSS, delta).to_json())
    code, out, _ = call("report", tmp_path / "certificate.json", "--output", tmp_path / "p.html")
    assert code == 0
    assert "VERIFIED" in out
    assert f"one in 10^{math.floor(-math.log10(delta))}" in (tmp_path / "p.html").read_text()


def test_the_printed_epsilon_is_never_below_the_certified_one(call: Call, tmp_path: Path) -> None:
    certificate = certify(RUN, LOSS, delta=1 / 30_000)
    certificate.save(tmp_path / "c.json")
    assert call("report", tmp_path / "c.json", "-o", tmp_path / "r.html")[0] == 0
    text = Page((tmp_path / "r.html").read_text()).text
    [epsilon] = re.findall(r"ε = (\S+)", text)
    [delta] = re.findall(r"δ = (\S+)", text)
    assert certificate.epsilon <= float(epsilon) <= 1.001 * certificate.epsilon
    assert certificate.delta <= float(delta) <= 1.001 * certificate.delta


def test_what_it_says_to_type_gives_the_number(call: Call, folder: Path, tmp_path: Path) -> None:
    call("report", folder, "-o", tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text())
    certificate = Certificate.load(folder / "certificate.json")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(page.blocks["python"], {})
    assert float(out.getvalue()) == pytest.approx(certificate.epsilon, rel=1e-3)
    (tmp_path / "run.toml").write_text(page.blocks["toml"])
    code, found, _ = call("account", tmp_path / "run.toml", "--json")
    assert (code, json.loads(found)["epsilon"]) == (0, float(out.getvalue()))


def test_json(call: Call, folder: Path, tmp_path: Path) -> None:
    code, out, _ = call("report", folder, "-o", tmp_path / "report.html", "--json")
    answer = json.loads(out)
    certificate = Certificate.load(folder / "certificate.json")
    assert (code, answer["command"], answer["status"]) == (0, "report", "verified")
    assert (answer["epsilon"], answer["delta"]) == (certificate.epsilon, certificate.delta)
    assert {"Privacy curve", "Growth", "Comparison", "Taut string"} <= set(answer["figures"])
    assert Path(answer["out"]).is_file()


def test_a_seeded_run_is_called_an_experiment(call: Call, tmp_path: Path) -> None:
    run = trained(tmp_path, "--seed", "1")
    code, out, _ = call("report", run, "-o", tmp_path / "report.html", "--json")
    answer = json.loads(out)
    assert (code, answer["status"], answer["epsilon"]) == (0, "experiment", None)
    page = Page((tmp_path / "report.html").read_text())
    assert "EXPERIMENT." in page.text
    assert "VERIFIED" not in page.text
    assert "Not a guarantee" in page.text
    assert page.count("section", id="sign") == 0
    (run / "run.json").unlink()  # an older folder: only the model is there
    assert call("report", run, "-o", tmp_path / "report.html")[0] == 0
    assert "EXPERIMENT." in Page((tmp_path / "report.html").read_text()).text


# --- what is refused ------------------------------------------------------------------------------


def refused(call: Call, folder: Path, out: Path) -> str:
    code, said, err = call("report", folder, "-o", out, "--json")
    answer = json.loads(said)
    assert (code, answer["status"]) == (3, "refused")
    assert answer["reason"]
    assert answer["reason"] in err
    page = Page(out.read_text())
    assert "REFUSED." in page.text
    assert "VERIFIED" not in page.text
    assert "ε =" not in page.text
    assert page.count("div", **{"class": "status refused"}) == 1
    assert page.count("figure") == 0
    return page.text


def test_one_changed_digit(call: Call, folder: Path, tmp_path: Path) -> None:
    path = folder / "certificate.json"
    text = path.read_text()
    [claim] = re.findall(r'^ "epsilon": (.*),$', text, flags=re.MULTILINE)
    path.write_text(text.replace(claim, "0.5"))
    assert "changed after it was written" in refused(call, folder, tmp_path / "report.html")


def test_a_false_claim_with_a_right_hash(call: Call, folder: Path, tmp_path: Path) -> None:
    path = folder / "certificate.json"
    content = dict(Certificate.load(path).content)
    content.pop("sha256")
    Certificate.sealed(content | {"epsilon": 0.9 * content["epsilon"]}).save(path)
    assert "does not hold" in refused(call, folder, tmp_path / "report.html")


@pytest.mark.parametrize("text", ["", "{", "null", '{"format": "lastiterate-certificate"}', "\0"])
def test_what_is_no_certificate(text: str, call: Call, folder: Path, tmp_path: Path) -> None:
    (folder / "certificate.json").write_text(text)
    refused(call, folder, tmp_path / "report.html")


def test_half_a_certificate(call: Call, folder: Path, tmp_path: Path) -> None:
    path = folder / "certificate.json"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refused(call, folder, tmp_path / "report.html")


def test_a_certificate_that_went_missing(call: Call, folder: Path, tmp_path: Path) -> None:
    (folder / "certificate.json").unlink()
    assert "is not here" in refused(call, folder, tmp_path / "report.html")


def test_a_certificate_of_another_run(call: Call, folder: Path, tmp_path: Path) -> None:
    certify(RUN, LOSS, delta=1e-4).save(folder / "certificate.json")
    assert "certifies another run" in refused(call, folder, tmp_path / "report.html")


def test_a_certificate_of_real_numbers(call: Call, folder: Path, tmp_path: Path) -> None:
    """Sound, and of the run that is described, but no model was trained in real numbers."""
    path = folder / "certificate.json"
    found = Certificate.load(path)
    theory = found.training.replace(arithmetic="exact")
    certify(theory, found.loss, delta=found.delta).save(path)
    rewritten(folder, training=theory.to_dict())
    assert "no model that a machine computed" in refused(call, folder, tmp_path / "report.html")


def test_a_refusal_replaces_an_older_page(call: Call, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert call("report", folder, "-o", out)[0] == 0
    (folder / "certificate.json").write_text("{}")
    refused(call, folder, out)


# --- bad input ------------------------------------------------------------------------------------


def test_there_must_be_a_run(call: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in ("nowhere", "empty"):
        code, _, err = call("report", tmp_path / place, "-o", tmp_path / "report.html")
        assert code == 2
        assert place in err
        assert not (tmp_path / "report.html").exists()


def test_a_page_replaces_nothing_but_pages(call: Call, folder: Path, tmp_path: Path) -> None:
    before = (folder / "certificate.json").read_bytes()
    for out in (folder / "certificate.json", tmp_path / "no" / "report.html", tmp_path):
        assert call("report", folder, "-o", out)[0] == 2
    assert (folder / "certificate.json").read_bytes() == before


@pytest.mark.parametrize("name", ["run.json", "audit.json"])
@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"looks": []}', "[" * 100_000, "\ud800"])
def test_broken_metadata(name: str, text: str, call: Call, folder: Path, tmp_path: Path) -> None:
    (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    code, _, err = call("report", folder, "-o", tmp_path / "report.html")
    assert code == 2
    assert "run.json" in err or "audit" in err
    assert not (tmp_path / "report.html").exists()


def test_every_field_of_the_metadata_is_checked(call: Call, folder: Path, tmp_path: Path) -> None:
    public = json.loads((folder / "run.json").read_text())
    for field in public:
        (folder / "run.json").write_text(json.dumps(public | {field: {"what": None}}))
        code, _, err = call("report", folder, "-o", tmp_path / "report.html")
        assert code in (2, 3), field
        assert "Traceback" not in err


def test_words_that_the_seal_does_not_cover_are_not_shown(
    call: Call, folder: Path, tmp_path: Path
) -> None:
    """Before: any sentence in run.json stood on a page that said VERIFIED."""
    lie = "Approved: epsilon is 0 whatever the certificate says."
    public = json.loads((folder / ABOUT).read_text())
    (folder / ABOUT).write_text(json.dumps(public | {"warnings": [lie]}))
    assert "was changed" in refused(call, folder, tmp_path / "report.html")
    assert lie not in (tmp_path / "report.html").read_text()
    # A certificate that covers no run.json says nothing about the one beside it.
    path = folder / "certificate.json"
    kept = {k: v for k, v in Certificate.load(path).content.items() if k not in ("about", "sha256")}
    Certificate.sealed(kept).save(path)
    code, out, _ = call("report", folder, "-o", tmp_path / "report.html")
    assert (code, out.split(".")[0]) == (0, "VERIFIED")
    text = Page((tmp_path / "report.html").read_text()).text
    assert lie not in text
    assert "accuracy" not in text
    assert "does not cover it" in text
    (folder / ABOUT).unlink()  # covered, and gone
    certificate = Certificate.load(path)
    certificate.beside("0" * 64).save(path)
    assert "is missing" in refused(call, folder, tmp_path / "report.html")


def test_a_signed_run(call: Call, folder: Path, tmp_path: Path) -> None:
    for name in ("signer", "other"):
        assert call("keygen", tmp_path / f"{name}.pem")[0] == 0
    page = ("-o", tmp_path / "report.html")
    code, _, err = call("report", folder, *page, "--trusted", tmp_path / "signer.pub")
    assert code == 3
    assert "not signed" in err
    path = folder / "certificate.json"
    assert call("report", folder, *page)[0] == 0
    assert "sealed, not signed" in Page((tmp_path / "report.html").read_text()).text
    sealed = Certificate.load(path)
    sealed.sign(tmp_path / "signer.pem").save(path)
    code, out, _ = call("report", folder, *page, "--trusted", tmp_path / "signer.pub", "--json")
    [keyid] = json.loads(out)["signed_by"]
    assert code == 0
    assert keyid in Page((tmp_path / "report.html").read_text()).text
    assert call("report", folder, *page, "--trusted", tmp_path / "other.pub")[0] == 3
    rewritten(folder, warnings=["another sentence"])  # sealed again, and the signature is gone
    assert call("report", folder, *page)[0] == 0
    assert call("report", folder, *page, "--trusted", tmp_path / "signer.pub")[0] == 3
    sealed.save(path)
    Path(f"{path}.sig").write_text(sealed.sign(tmp_path / "signer.pem").envelope())
    assert "was changed" in call("report", folder, *page, "--trusted", tmp_path / "signer.pub")[2]


def test_training_signs(call: Call, tmp_path: Path) -> None:
    assert call("keygen", tmp_path / "signer.pem")[0] == 0
    run = trained(tmp_path, "--key", str(tmp_path / "signer.pem"))
    assert call("verify", run / "certificate.json", "--trusted", tmp_path / "signer.pub")[0] == 0
    note = ("revoke", run / "certificate.json", "--key", tmp_path / "signer.pem")
    assert call(*note, "--reason", "data were withdrawn", "-o", tmp_path / "note.json")[0] == 0
    assert call(*note, "-o", tmp_path / "note.json")[0] == 2  # written over only with --force
    checked = ("verify", run / "certificate.json", "--revoked", tmp_path / "note.json")
    code, _, err = call(*checked, "--trusted", tmp_path / "signer.pub")
    assert code == 3
    assert "data were withdrawn" in err
    assert call(*checked)[0] == 2  # a note needs a key
    page = ("report", run, "-o", tmp_path / "page.html", "--revoked", tmp_path / "note.json")
    code, _, err = call(*page, "--trusted", tmp_path / "signer.pub")
    assert code == 3
    assert "data were withdrawn" in err
    shown = Page((tmp_path / "page.html").read_text()).text
    assert "REFUSED" in shown.upper()
    assert "data were withdrawn" in shown
    assert call(*page)[0] == 2
    data = ("--target", "income", "--epsilon", 1, "--delta", 1e-4, "--numeric", "age=0:100")
    again = ("train", tmp_path / "data.csv", *data, "--classes", "low,high", "--out")
    for flags in (("--key", tmp_path / "none.pem"), ("--key", tmp_path / "signer.pem", "--seed=1")):
        assert call(*again, tmp_path / "other", *flags)[0] == 2
        assert not (tmp_path / "other").exists()


# --- what comes from files is text, never markup --------------------------------------------------


def only_its_own_markup(html: str) -> None:
    page = Page(html)
    assert HOSTILE not in html
    assert HOSTILE in "".join(page.words)  # shown, as text
    assert page.count("img") == 0
    for tag, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes), tag
    assert page.count("script") == 0
    policy = next(
        found["content"]
        for tag, found in page.elements
        if found.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "script-src" not in policy  # so none may run


def test_a_hostile_column_name(call: Call, tmp_path: Path) -> None:
    run = trained(tmp_path, name=HOSTILE)
    assert call("report", run, "-o", tmp_path / "report.html")[0] == 0
    only_its_own_markup((tmp_path / "report.html").read_text())


def test_a_hostile_label(call: Call, tmp_path: Path) -> None:
    certify(RUN, LOSS, delta=1e-5, dataset=HOSTILE).save(tmp_path / "c.json")
    assert call("report", tmp_path / "c.json", "-o", tmp_path / "report.html")[0] == 0
    only_its_own_markup((tmp_path / "report.html").read_text())


def test_hostile_metadata(call: Call, folder: Path, tmp_path: Path) -> None:
    rewritten(
        folder,
        model=HOSTILE,
        choice=[[HOSTILE, HOSTILE]],
        warnings=[HOSTILE],
        versions={"numpy": HOSTILE},
        score={"name": HOSTILE, "value": 0.5, "records": 3},
    )
    assert call("report", folder, "-o", tmp_path / "report.html")[0] == 0
    only_its_own_markup((tmp_path / "report.html").read_text())


TURNING = "a\u202eb\u200bc\u2066d\u2028e\x9bf\u00adg"  # marks of direction, signs of no width


def test_no_sign_turns_or_hides_what_a_page_says(call: Call, folder: Path, tmp_path: Path) -> None:
    """An epsilon after such a mark was read from its end."""
    rewritten(
        folder,
        choice=[[TURNING, TURNING]],
        warnings=[TURNING],
        versions={"numpy": TURNING, TURNING: "1"},
        score={"name": TURNING, "value": 0.5, "records": 3},
    )
    certify(RUN, LOSS, delta=1e-5, dataset=TURNING).save(tmp_path / "c.json")
    hidden = re.compile("[\u202e\u200b\u2066\u2028\x9b\u00ad]")
    for run in (folder, tmp_path / "c.json"):
        assert call("report", run, "-o", tmp_path / "report.html")[0] == 0
        shown = Page((tmp_path / "report.html").read_text()).text
        assert "a\\u202eb\\u200bc" in shown
        assert not hidden.search(shown)
    assert not hidden.search(Certificate.load(tmp_path / "c.json")._repr_html_())


# --- other certificates ---------------------------------------------------------------------------


def test_a_composition(call: Call, tmp_path: Path) -> None:
    one = certify(RUN, LOSS, delta=1e-5, dataset="patients")
    compose([one, one]).save(tmp_path / "c.json")
    code, _, _ = call("report", tmp_path / "c.json", "-o", tmp_path / "r.html")
    assert code == 0
    text = Page((tmp_path / "r.html").read_text()).text
    assert "counted together" in text
    assert "as certified" in text  # the figures of a certificate without a single run
    assert "patients" in text
    assert "VERIFIED." in text


def test_checkpoints_and_long_schedules(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RUN.replace(steps=300, noise=np.linspace(0.1, 0.2, 300))
    certify(run, LOSS, delta=1e-5, releases=(100,)).save(tmp_path / "c.json")
    code, out, _ = call("report", tmp_path / "c.json", "-o", tmp_path / "r.html", "--json")
    answer = json.loads(out)
    assert code == 0
    assert "Growth" in answer["not_drawn"]  # it would be about the end alone
    page = Page((tmp_path / "r.html").read_text())
    assert "Checkpoints of this run were released too" in page.text
    assert "the certificate holds it" in page.text
    assert "python" not in page.blocks
    (tmp_path / "certificate.json").write_bytes((tmp_path / "c.json").read_bytes())
    monkeypatch.chdir(tmp_path)
    printed_number = io.StringIO()
    with contextlib.redirect_stdout(printed_number):
        exec(page.blocks["python-long"], {})
    assert float(printed_number.getvalue()) == pytest.approx(answer["epsilon"], rel=1e-6)


# --- audits ---------------------------------------------------------------------------------------


def audited(call: Call, folder: Path, *flags: Any) -> None:
    data = table(folder.parent / "data.csv")
    _, out, _ = call(
        "audit", folder, "--data", data, "--models", 200, "--seed", 1, "--json", *flags
    )
    (folder / "audit.json").write_text(out)


def test_an_audit_stands_beside_its_certificate(call: Call, folder: Path, tmp_path: Path) -> None:
    audited(call, folder)
    code, out, _ = call("report", folder, "-o", tmp_path / "report.html", "--json")
    assert code == 0
    assert "Audit" in json.loads(out)["figures"]
    text = Page((tmp_path / "report.html").read_text()).text
    assert "200 models" in text
    assert "CONTRADICTED" not in text


def test_an_audit_that_contradicts_is_shown_and_fails(
    call: Call, folder: Path, tmp_path: Path
) -> None:
    """Before: the file's own word was taken, and epsilon >= 50 beside 1 was VERIFIED."""
    audited(call, folder)
    found = json.loads((folder / "audit.json").read_text())
    found["looks"][0] |= {
        "false_positives": 0,
        "false_negatives": 0,
        "epsilon_lower": 3.0,
        "mu_lower": 3.0,
        "fpr_interval": [0.0, 0.04],
        "fnr_interval": [0.0, 0.04],
    }
    for word in ({}, {"contradicted": False}, {"contradicted": True}, {"contradicted": "no"}):
        (folder / "audit.json").write_text(json.dumps({**found, **word}))
        code, out, err = call("report", folder, "-o", tmp_path / "report.html")
        assert code == 3
        assert out.startswith("CONTRADICTED.")
        assert "contradicts" in err
        text = Page((tmp_path / "report.html").read_text()).text
        assert "CONTRADICTED BY AN AUDIT." in text
        assert "VERIFIED" not in text


# --- on the disk ----------------------------------------------------------------------------------


def test_ctrl_c_leaves_the_old_page_or_the_new_one(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "pages" / "report.html"
    out.parent.mkdir()
    program = "from lastiterate.cli.main import run; run()"
    started = [sys.executable, "-c", program, "report", str(folder), "-o", str(out)]
    codes = set()
    for wait in (0.2, 1.0, None):  # None: as soon as something is being written
        out.write_text("old")
        process = subprocess.Popen(started, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if wait is None:
            while process.poll() is None and len(list(out.parent.iterdir())) == 1:
                time.sleep(0.001)
        else:
            time.sleep(wait)
        process.send_signal(signal.SIGINT)
        codes.add(process.wait(timeout=HANG_SECONDS))
        assert [path.name for path in out.parent.iterdir()] == ["report.html"]
        text = out.read_text()
        assert text == "old" or text.rstrip().endswith("</html>")
    assert codes - {0}  # some were interrupted


def test_half_a_character_is_spelled_out(call: Call, folder: Path, tmp_path: Path) -> None:
    rewritten(folder, warnings=["odd: \ud800"])
    assert call("report", folder, "-o", tmp_path / "report.html")[0] == 0
    assert "odd: \\ud800" in (tmp_path / "report.html").read_text()


def test_a_full_disk_leaves_the_old_page(folder: Path, tmp_path: Path) -> None:
    """A process that may not write large files, in the place of a disk that is full."""
    out = tmp_path / "pages" / "report.html"
    out.parent.mkdir()
    out.write_text("old")
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "from lastiterate.cli.main import run; run()"
    )
    started = [sys.executable, "-c", program, "report", str(folder), "-o", str(out)]
    left = subprocess.run(started, capture_output=True, text=True)
    assert left.returncode == 2
    assert "can be written" in left.stderr
    assert "Traceback" not in left.stderr
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
    assert out.read_text() == "old"


def test_no_key_is_not_any_key(tmp_path: Path) -> None:
    """A list of trusted keys that came out empty trusts nobody; only None asks for no signature."""
    path = tmp_path / "certificate.json"
    described = Training(
        records=5,
        steps=200,
        step_size=0.1,
        noise=1.0,
        gradient_norm=2.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    certify(described, Loss(smoothness=1.0), delta=1e-5).save(path)
    assert RunFolder.read(path).status == "verified"
    assert RunFolder.read(path, []).status == "refused"
