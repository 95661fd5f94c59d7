"""What everybody reads of a report, and nobody ticks what is proved."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastiterate import FullBatch, Loss, Shuffled, Training, certify
from lastiterate.cli.demo import file_a_model
from lastiterate.cli.main import run as command
from lastiterate.report.page import Report
from lastiterate.report.plain_words import catalogue, say, to_sign


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("words") / "demo"
    file_a_model(made, models=200)
    return made / "run"


def test_every_message_is_used() -> None:
    room = Path(Report.__module__.replace(".", "/")).parent
    sources = Path(__file__).parents[2] / "src" / room
    used = "".join(
        path.read_text() for path in sources.iterdir() if path.suffix in (".py", ".html")
    )
    built = {"had_person_replaced", "had_person_zero", "had_record_replaced"}
    built |= {"had_record_zero", "tested_record", "tested_replaced"}
    assert {
        name for name in catalogue() if name not in re.findall(r"[\"'](\w+)[\"']", used)
    } == built


@given(st.text(max_size=40))
def test_nothing_that_is_filled_in_is_markup(text: str) -> None:
    said = str(say("why", reason=text))
    assert "<" not in said
    assert ">" not in said


def test_factor_and_attacker_come_first(folder: Path) -> None:
    html = Report.of(folder).html()
    words = html[html.index('<section id="words"') :]
    places = [words.index(text) for text in ("times as likely", "ε = ", "<caption>", "<dt>")]
    assert places == sorted(places)


def test_a_title_and_a_label_are_the_users_words(tmp_path: Path, capsys: Any) -> None:
    rows = "\n".join(f"{i % 10},{'ab'[i % 2]}" for i in range(300))
    (tmp_path / "t.csv").write_text(f"x,y\n{rows}\n")
    arguments = f"--target y --epsilon 1 --numeric x=0:9 --classes a,b --out {tmp_path}/run".split()
    given = ["--title", "Who <pays> late?", "--data-label", "Loans & 2025"]
    with pytest.raises(SystemExit) as left:
        command(["train", str(tmp_path / "t.csv"), *arguments, *given, "--json"])
    assert left.value.code == 0, capsys.readouterr()
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (about["title"], about["data_label"]) == ("Who <pays> late?", "Loans & 2025")
    html = Report.of(tmp_path / "run").html()
    assert "<h1>Who &lt;pays&gt; late?</h1>" in html
    assert "<dd>Loans &amp; 2025</dd>" in html
    (tmp_path / "run" / "run.json").write_text(json.dumps(about | {"title": "Harmless"}))
    assert Report.of(tmp_path / "run").status == "refused"  # the seal covers the title


def test_proved_assumptions_are_not_to_be_ticked(folder: Path) -> None:
    report = Report.of(folder)
    assert report.folder.certificate is not None
    html = report.html()
    boxes = re.findall(
        r"<li>(.*?)</li>", html[html.index('class="boxes"') : html.index('class="signature"')]
    )
    assert boxes[0] == "intermediate iterates stay secret"
    assert not any("longer than" in box for box in boxes if "trained by lastiterate" not in box)
    assert sum("trained by lastiterate" in box for box in boxes) == 1
    assert "Not to be ticked" in html


VOUCHED = [
    ("gradients are short", "the loss itself; proved by this library for the logistic loss"),
    ("clipped", "per-record gradient clipping in the trainer"),
    ("noise", "the noise source"),
    ("smooth", "declared by the user"),
    ("secret", "whoever runs the training"),
    ("estimated", "only estimated: not a guarantee"),
    ("unknown", ""),
]


@pytest.mark.parametrize("trainer", [None, "1.0"])
def test_every_assumption_is_ticked_or_proved(trainer: str | None) -> None:
    """Nothing that rests on somebody's word gets lost, whoever it is."""
    sign: Mapping[str, Any] = to_sign(VOUCHED, trainer=trainer)
    said = " ".join(map(str, sign["boxes"]))
    assert [text for text, _ in VOUCHED if text not in said] == ["gradients are short"]
    assert "gradients are short" in str(sign["proved"])
    alone = {str(box) for box in sign["boxes"]}
    assert {"smooth", "secret", "estimated", "unknown"} <= alone
    assert ("clipped" in alone) is (trainer is None)  # nobody knows whose trainer it was


def test_figures_are_at_the_delta_of_the_headline(tmp_path: Path) -> None:
    run = Training(
        records=300,
        steps=60,
        step_size=0.1,
        noise=0.1,
        gradient_norm=1.0,
        batches=Shuffled(30),
        adjacency="replace",
    )
    path = tmp_path / "certificate.json"
    certify(run, Loss(smoothness=1.0), delta=3e-7).save(path)
    for figure in Report.of(path).figures.drawn:
        said = " ".join([figure.heading, figure.caption, *figure.columns, *map(str, figure.rows)])
        assert set(re.findall(r"delta = (\d[\d.e+-]*\d)", said)) <= {"3e-07"}, figure.name


def test_the_command_writes_the_summary(tmp_path: Path, capsys: Any) -> None:
    run = Training(
        records=100,
        steps=10,
        step_size=0.1,
        noise=0.1,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    certify(run, Loss(smoothness=1.0), delta=1e-5).save(tmp_path / "c.json")
    page = tmp_path / "s.html"
    with pytest.raises(SystemExit) as left:
        command(["report", str(tmp_path / "c.json"), "-o", str(page), "--summary"])
    assert left.value.code == 0
    assert "Privacy report, summary" in page.read_text()
    assert "<svg" not in page.read_text()


def test_a_summary_computes_no_figures(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    def computed(folder: Any) -> Any:
        raise AssertionError("a summary shows no figure")

    monkeypatch.setattr("lastiterate.report.page.figures_of", computed)
    run = Training(
        records=100,
        steps=10,
        step_size=0.1,
        noise=0.1,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    certify(run, Loss(smoothness=1.0), delta=1e-5).save(tmp_path / "c.json")
    page = tmp_path / "summary.html"
    with pytest.raises(SystemExit) as left:
        command(["report", str(tmp_path / "c.json"), "-o", str(page), "--summary", "--json"])
    assert left.value.code == 0
    assert json.loads(capsys.readouterr().out)["figures"] == []
