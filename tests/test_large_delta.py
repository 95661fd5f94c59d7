"""A delta of 1/n or more is said aloud, and one half is refused."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
from patience import HANG_SECONDS

from lastiterate import (
    Certificate,
    DescriptionError,
    FullBatch,
    Loss,
    Training,
    account,
    calibrate,
    certify,
    compose,
)
from lastiterate.description.fields import large_delta
from lastiterate.errors import PrivacyWarning
from lastiterate.verifier.document import fingerprint

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
FLAGS = (
    "--records",
    "100",
    "--steps",
    "10",
    "--step-size",
    "0.1",
    "--noise",
    "0.1",
    "--gradient-norm",
    "1",
    "--batches",
    "full",
    "--smoothness",
    "1",
)


@pytest.mark.parametrize("delta", [0.5, 0.9, 1.0])
def test_half_and_more_is_refused(delta):
    with pytest.raises(DescriptionError, match=r"^delta must be < 0\.5"):
        certify(RUN, LOSS, delta)
    with pytest.raises(DescriptionError, match=r"^delta must be < 0\.5"):
        calibrate(RUN, LOSS, epsilon=1.0, delta=delta)
    certificate = certify(RUN, LOSS, 1e-5)
    with pytest.raises(DescriptionError, match=r"^delta must be < 0\.5"):
        compose([certificate], delta)


@pytest.mark.parametrize("delta", [0.01, 0.3])
def test_one_in_n_warns(delta):
    for question in (
        lambda: certify(RUN, LOSS, delta),
        lambda: calibrate(RUN, LOSS, epsilon=1.0, delta=delta),
        lambda: account(RUN, LOSS).epsilon(delta),
    ):
        with pytest.warns(PrivacyWarning, match="1/100") as seen:
            question()
        assert len(seen) == 1
        assert seen[0].filename == __file__  # it points at whoever asked


def test_small_deltas_and_the_librarys_own_figures_are_quiet():
    pytest.importorskip("matplotlib")
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        certify(RUN, LOSS, 0.0099)
        account(RUN, LOSS).plot()  # asks for deltas up to 1/100
        assert account(RUN, LOSS).delta(0.0) > 0


def test_the_boundary():
    assert large_delta(0.01, 100) is not None
    assert large_delta(0.00999, 100) is None
    assert large_delta(0.9, 1) is None  # one record: 1/n is 1


def test_estimators_refuse_and_warn():
    pytest.importorskip("sklearn")
    import numpy as np

    from lastiterate.models import PrivateLogisticRegression

    X, y = np.ones((20, 1)), np.arange(20) % 2
    with pytest.raises(DescriptionError, match=r"^delta must be < 0\.5"):
        PrivateLogisticRegression(epsilon=1.0, delta=0.9, feature_bound=1.0).fit(X, y)
    with pytest.warns(PrivacyWarning, match="1/20"):
        PrivateLogisticRegression(epsilon=1.0, delta=0.05, feature_bound=1.0).fit(X, y)


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-c", "from lastiterate.cli.main import run; run()", *arguments],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


def test_the_command_line_refuses_and_warns():
    refused = command("account", *FLAGS, "--delta", "0.9")
    assert refused.returncode == 2
    assert "delta must be < 0.5" in refused.stderr
    warned = command("account", *FLAGS, "--delta", "0.02")
    assert warned.returncode == 0
    assert warned.stderr.startswith("lastiterate: warning: ")
    assert command("account", *FLAGS).stderr == ""


def test_no_green_verdict_for_a_delta_that_promises_nothing(tmp_path):
    pytest.importorskip("matplotlib")
    from lastiterate.report.page import Report

    honest = certify(RUN, LOSS, 1e-5)
    path = tmp_path / "c.json"
    honest.save(path)
    assert 'class="status verified"' in Report.of(path).html()
    # Somebody else's certificate: true, with a delta that this library would not have certified.
    content = {**honest.content, "delta": 0.9}
    Certificate({**content, "sha256": fingerprint(content)}).save(path)
    page = Report.of(path).html()
    assert 'class="status verified"' not in page
    assert "A WEAK PROMISE" in page
    assert "1/100" in page
    checked = command("verify", str(path))
    assert checked.returncode == 0
    assert "warning" in checked.stderr


@pytest.mark.parametrize(("noise", "words"), [(1.0, "almost the same"), (0.01, "times as often")])
def test_the_factor_is_printed_and_rounded_up(tmp_path, noise, words):
    pytest.importorskip("matplotlib")
    import math
    import re

    from lastiterate.report.page import Report

    certificate = certify(RUN.replace(noise=noise), LOSS, 1e-5)
    path = tmp_path / "c.json"
    certificate.save(path)
    page = Report.of(path).html()
    assert words in page
    assert ("almost the same" in page) == (certificate.epsilon <= 0.1)
    factor = float(re.search(r"at most ([\d.e+]+) times as often", page)[1])
    assert math.exp(certificate.epsilon) <= factor <= 1.01 * math.exp(certificate.epsilon)
    assert "Signed by" not in page
    assert "Sealed by" in page
