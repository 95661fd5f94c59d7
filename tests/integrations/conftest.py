"""Where frameworks of other people run for real: skipped one by one where they are missing.

`make test-integrations` has all of them, and sets LASTITERATE_INTEGRATIONS: there a test that is
skipped for want of a library fails, so that a green run means that everything ran.
"""

from __future__ import annotations

import os

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    report = yield
    if report.skipped and "LASTITERATE_INTEGRATIONS" in os.environ:
        report.outcome = "failed"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):  # type: ignore[no-untyped-def]
    report = yield
    if report.skipped and "LASTITERATE_INTEGRATIONS" in os.environ:
        report.outcome = "failed"
    return report
