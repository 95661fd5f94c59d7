"""Runs as the kernel reads them: from the JSON fields of a certificate."""

from __future__ import annotations

import json
from typing import Any

from lastiterate import PrivacyUnit
from lastiterate.kernel.run import Run, read_run
from lastiterate.verifier.witness import pack


def described(training, loss, releases=(), unit=None) -> Run:
    """The run of a description."""
    unit = PrivacyUnit() if unit is None else unit
    content = {
        "training": pack(training.to_dict()),
        "loss": {**pack(loss.to_dict()), "provenance": loss.provenance},
        "releases": list(releases),
        **({} if unit.default else {"unit": pack(unit.to_dict())}),
    }
    return read_run(as_json(content))


def as_json(value: Any) -> Any:
    """What a certificate would hold of this."""
    return json.loads(json.dumps(pack(value)))
