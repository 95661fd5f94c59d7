"""The demo shows what it promises: numbers that were derived on paper first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lastiterate.audit import AuditResult
from lastiterate.certificate import verify
from lastiterate.cli.demo import file_a_model, full_batch, show
from lastiterate.cli.main import run


def test_the_demo_prints_the_reference_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        run(["demo", "--json"])
    assert exit_.value.code == 0
    found = json.loads(capsys.readouterr().out)

    full = found["full_batch"]["runs"]
    assert [r["steps"] for r in full] == [10, 100, 1000, 10_000]
    assert full[-1]["last_iterate"] == pytest.approx(1.336, abs=5e-4)
    assert full[-1]["all_iterates"] > 10 * full[1]["all_iterates"]

    # MNIST, 40 batches, lambda = 0.002, delta = 1e-5: three accountings, three epoch counts.
    loader = found["shuffled_loader"]["runs"]
    expected = {
        "all_iterates": (30.5, 49.9, 83.8),
        "worst_position": (4.34, 5.60, 7.58),
        "hidden_position": (3.43, 4.79, 6.88),
    }
    for name, values in expected.items():
        digits = 0.05 if name == "all_iterates" else 0.005
        assert [r[name] for r in loader] == pytest.approx(values, abs=digits), name

    # One pass of 1000 batches: epsilon 1 at 0.134, Poisson accounting needs 0.700.
    small, large = found["one_pass"]["runs"]
    assert (small["noise_multiplier"], large["noise_multiplier"]) == (0.134, 0.7)
    assert 0.99 < small["last_iterate"] <= 1
    assert 0.95 < large["poisson"] <= 1
    assert small["poisson"] > 100


def test_an_example_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    show(full_batch())
    printed = capsys.readouterr().out
    for words in ("steps", "10,000", "only the last iterate", "1.336", "plateau at step"):
        assert words in printed


def test_a_model_is_filed_with_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file_a_model(tmp_path / "demo", models=200)
    printed = capsys.readouterr().out
    for words in ("test accuracy", "verified: epsilon", "Not contradicted", "VERIFIED."):
        assert words in printed
    run = tmp_path / "demo" / "run"
    assert verify(run / "certificate.json").epsilon <= 4.0
    audited = json.loads((run / "audit.json").read_text())
    assert AuditResult.from_dict(audited).models == 200
    score = json.loads((run / "run.json").read_text())["score"]
    assert score["value"] > 0.8  # a constant would have 0.5
    assert "VERIFIED." in (tmp_path / "demo" / "report.html").read_text()


def test_an_older_demo_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        run(["demo", "--out", str(tmp_path)])
    assert left.value.code == 2
    assert "nothing is overwritten" in capsys.readouterr().err
