"""Certificates where models are kept: MLflow, loggers, cards, a GitHub Action, a container."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from architecture import ROOT

from lastiterate import (
    AssumptionError,
    Certificate,
    CertificateError,
    DescriptionError,
    FullBatch,
    Loss,
    Training,
    certify,
    verify,
)
from lastiterate.frameworks import guarantee_metrics, model_card
from lastiterate.frameworks.checked_claims import single
from lastiterate.losses import Logistic
from lastiterate.train import noisy_descent

RUN = Training(
    records=40,
    steps=20,
    step_size=1.0,
    noise=0.3,
    gradient_norm=1.0,
    batches=FullBatch(),
    adjacency="zero-out",
)
HOSTILE = 'a `b` <script>\n---\nprivacy: none\n## Privacy [x](y) "\\ \x85 \u2028 \U0001f600'


def trained(dataset: str = "survey") -> Certificate:
    X, y = np.eye(40)[:, :3], np.resize([1.0, -1.0], 40)
    released = noisy_descent(Logistic(), X, RUN, labels=y)
    return released.certificate(delta=1e-5, dataset=dataset)


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return trained()


@pytest.fixture(scope="module")
def forged(certificate: Certificate) -> Certificate:
    """The same with a smaller epsilon, sealed again."""
    content = {key: value for key, value in certificate.content.items() if key != "sha256"}
    return Certificate.sealed({**content, "epsilon": certificate.epsilon / 2})


def test_metrics_are_never_below_the_claims(certificate: Certificate) -> None:
    found = guarantee_metrics(certificate)
    assert found["privacy/epsilon"] >= certificate.epsilon
    assert found["privacy/epsilon"] == pytest.approx(certificate.epsilon, rel=1e-6)
    assert found["privacy/delta"] >= 1e-5
    assert all(
        type(value) is float and float(np.float32(value)) == value for value in found.values()
    )


def test_single_precision_is_rounded_up_everywhere() -> None:
    rng = np.random.default_rng(0)
    values = [*np.exp(rng.uniform(-700, 700, 500)), 0.0, 1e-45, 3.5e38, float("inf")]
    for value in values:
        assert single(value) >= value
        assert single(value) <= value * (1 + 2.0**-23) + 1.5e-45 or value > 3.4e38


@pytest.mark.parametrize("reader", [guarantee_metrics, model_card])
def test_what_does_not_hold_is_handed_on_by_nobody(
    reader: Any, forged: Certificate, tmp_path: Path
) -> None:
    with pytest.raises(CertificateError):
        reader(forged)
    forged.save(tmp_path / "forged.json")
    with pytest.raises(CertificateError):
        reader(tmp_path / "forged.json")
    with pytest.raises(AssumptionError, match="real numbers"):
        reader(certify(RUN, Loss(smoothness=0.25), 1e-5))  # of no model
    with pytest.raises(DescriptionError, match="Certificate"):
        reader(None)


def test_a_card_is_read_by_the_library_of_hugging_face(certificate: Certificate) -> None:
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCard(model_card(certificate))
    told = card.data.to_dict()
    assert told["tags"] == ["differential-privacy", "lastiterate"]
    assert told["privacy"]["epsilon"] == certificate.epsilon
    assert told["privacy"]["delta"] == 1e-5
    assert told["privacy"]["certificate_sha256"] == certificate.sha256
    said = re.search(r"The training is \(([\d.e-]+), ([\d.e-]+)\)", card.text)
    assert said is not None
    assert float(said[1]) >= certificate.epsilon


def test_a_card_that_is_there_is_kept(certificate: Certificate) -> None:
    hub = pytest.importorskip("huggingface_hub")
    text = model_card(certificate, "---\nlicense: mit\ntags: [a]\n---\n# Mine\n\nWords.\n")
    card = hub.ModelCard(text)
    assert (card.data.license, card.data.tags) == ("mit", ["a"])
    assert (
        card.text.startswith("\n# Mine\n\nWords.\n\n## Privacy of")
        or "# Mine\n\nWords.\n\n## Priv" in text
    )
    for twice in (
        text,
        "---\nprivacy: {}\n---\n",
        '---\r\n"privacy": {}\r\n---\r\n',
    ):
        with pytest.raises(DescriptionError, match="card"):
            model_card(certificate, twice)


def test_labels_cannot_write_into_a_card() -> None:
    text = model_card(trained(HOSTILE))
    _, front, body = text.split("---\n", 2)
    told = yaml.safe_load(front)
    assert told["privacy"]["dataset"] == HOSTILE
    assert set(told) == {"tags", "privacy"}
    assert "<script>" not in body
    assert body.count("\n## ") == 1


def test_mlflow_keeps_numbers_words_and_the_file(
    certificate: Certificate, forged: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: make test-integrations")
    from lastiterate.frameworks import log_guarantee

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with pytest.raises(DescriptionError, match="run"):
        log_guarantee(certificate)
    with mlflow.start_run() as run:
        log_guarantee(certificate)
        with pytest.raises(CertificateError):
            log_guarantee(forged, run)
    log_guarantee(certificate, run)  # also after it ended, by its name or itself
    log_guarantee(certificate, run.info.run_id)
    kept = mlflow.get_run(run.info.run_id).data
    assert kept.metrics == guarantee_metrics(certificate)
    assert kept.tags["privacy.adjacency"] == "zero-out"
    assert kept.tags["privacy.certificate.sha256"] == certificate.sha256
    uri = f"runs:/{run.info.run_id}/privacy/certificate.json"
    where = mlflow.artifacts.download_artifacts(uri, dst_path=str(tmp_path))
    assert verify(where).epsilon == certificate.epsilon


# --- the GitHub Action and the container --------------------------------------------------------

ACTION = yaml.safe_load((ROOT / ".github/actions/verify-certificate/action.yml").read_text("utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def act(step: dict[str, Any], inputs: dict[str, str], where: Path, path: str) -> Any:
    """One step of the action, as a runner of GitHub executes it."""
    told = {key: each.get("default", "") for key, each in ACTION["inputs"].items()} | inputs
    named = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: told[found[1]], value)
        for name, value in step["env"].items()
    }
    kept = {"PATH": path, "HOME": str(where), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    runner = {"GITHUB_OUTPUT": str(where / "output"), "RUNNER_TEMP": str(where)}
    script = where / "step.sh"
    script.write_text(step["run"], encoding="utf-8")
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
    environment = {**kept, **runner, **named}
    return subprocess.run(command, env=environment, cwd=where, capture_output=True, text=True)


def test_the_action_is_well_formed() -> None:
    steps = ACTION["runs"]["steps"]
    assert ACTION["runs"]["using"] == "composite"
    assert [("uses" in step) != ("run" in step) for step in steps] == [True] * 3
    for step in steps[1:]:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "inputs in a script could be commands"
    assert ACTION["inputs"]["package"]["default"] == "lastiterate[cli,verify]"


def test_the_action_verifies_and_fails(
    certificate: Certificate, forged: Certificate, tmp_path: Path
) -> None:
    step = ACTION["runs"]["steps"][2]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    certificate.save(tmp_path / "certificate.json")
    done = act(step, {"certificate": "certificate.json"}, tmp_path, path)
    assert done.returncode == 0, done.stderr
    said = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert said == {
        "epsilon": repr(certificate.epsilon),
        "delta": repr(certificate.delta),
        "unit": "a single record",
        "theory": "true" if certificate.of_real_numbers else "false",
        "signed": "false",
    }
    assert said.keys() == ACTION["outputs"].keys()
    forged.save(tmp_path / "forged.json")
    assert act(step, {"certificate": "forged.json"}, tmp_path, path).returncode == 3
    trick = {"certificate": "--help", "trusted-key": ""}
    assert act(step, trick, tmp_path, path).returncode == 2
    assert (tmp_path / "output").read_text().count("epsilon") == 1


@pytest.mark.slow
def test_action_and_image_work_in_an_environment_of_their_own(
    certificate: Certificate, forged: Certificate, tmp_path: Path
) -> None:
    """What the Dockerfile runs, run in a fresh environment: there need not be a Docker here."""
    venv.create(tmp_path / "fresh", with_pip=True)
    path = f"{tmp_path / 'fresh' / 'bin'}:{os.environ['PATH']}"
    told = {"package": f"{ROOT}[cli,verify]"}
    done = act(ACTION["runs"]["steps"][1], told, tmp_path, path)
    assert done.returncode == 0, done.stderr
    instructions = dict(
        line.split(" ", 1) for line in DOCKERFILE.splitlines() if line[:1].isupper()
    )
    assert re.fullmatch(r"python:3\.1[123]-slim@sha256:[0-9a-f]{64}", instructions["FROM"])
    install, remove = instructions["RUN"].split(" && ")
    assert install == 'python -m pip install --no-cache-dir "/source[cli,verify]"'
    assert (remove, instructions["COPY"]) == ("rm -rf /source", ". /source")
    assert instructions["USER"] == "nobody"
    certificate.save(tmp_path / "certificate.json")
    forged.save(tmp_path / "forged.json")
    entry = [*json.loads(instructions["ENTRYPOINT"])]
    clean = {"PATH": path, "HOME": str(tmp_path)}
    for name, code in (("certificate.json", 0), ("forged.json", 3)):
        command = [str(tmp_path / "fresh" / "bin" / entry[0]), *entry[1:], name]
        ended = subprocess.run(command, env=clean, cwd=tmp_path, capture_output=True, text=True)
        assert ended.returncode == code, ended.stderr
