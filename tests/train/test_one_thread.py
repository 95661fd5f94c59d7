"""Threads of linear algebra: as before, whoever leaves first."""

from __future__ import annotations

import pytest

from lastiterate.train.one_thread import one_thread

threadpoolctl = pytest.importorskip("threadpoolctl")


def counts() -> list[int]:
    return [library["num_threads"] for library in threadpoolctl.threadpool_info()]


def test_two_at_a_time_leave_threads_as_they_were() -> None:
    """Before: the second restored what the first had set, and one thread was left for good."""
    with threadpoolctl.threadpool_limits(2):
        before = counts()
        first, second = one_thread(), one_thread()
        first.__enter__()
        second.__enter__()
        assert set(counts()) == {1}
        first.__exit__(None, None, None)
        assert set(counts()) == {1}
        second.__exit__(None, None, None)
        assert counts() == before
        with pytest.raises(ZeroDivisionError), one_thread(), one_thread():
            raise ZeroDivisionError
        assert counts() == before
