"""Searches end on the safe side: every answer was asked and held, or was the good end given."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from lastiterate.curves.bracket import halved, last_good, safe_end

whole = st.integers(-(10**18), 10**18)
real = st.floats(-1e300, 1e300)


@given(whole, whole, st.floats(0, 1))
def test_whole_numbers_end_beside_the_change(good, bad, share):
    change = good + round((bad - good) * share)
    asked = []

    def holds(n):
        asked.append(n)
        return abs(n - good) <= abs(change - good)

    found = last_good(holds, good, bad)
    assert found == good or (found in asked and holds(found))
    assert all(min(good, bad) < n < max(good, bad) for n in asked)
    assert (
        abs(bad - good) <= 1
        or not holds(found + (1 if bad > good else -1))
        or (found + (1 if bad > good else -1) == bad)
    )
    assert len(asked) <= 70


@given(real, real, real, st.sampled_from([0.0, 1e-12, 1e-3]))
def test_real_numbers_end_on_the_good_side(good, bad, change, tolerance):
    asked = []

    def holds(x):
        asked.append(x)
        return (x <= change) == (good <= bad)

    found = halved(holds, good, bad, tolerance=tolerance)
    assert found == good or (found in asked and holds(found))


@given(st.floats(1e-200, 1e300))
def test_the_last_float_is_found(change):
    found = halved(lambda x: x <= change, good=0.0, bad=1.7e308)
    assert found == change


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_an_oracle_without_order_is_never_trusted(answers):
    """A condition that is not monotone still ends where it held."""
    kept = {}

    def holds(n):
        kept[n] = answers[n % len(answers)]
        return kept[n]

    assert kept.get(last_good(holds, 0, 10**6), True)
    kept.clear()
    assert kept.get(last_good(holds, 10**6, 0), True)


def test_so_many_rounds_and_no_more():
    asked = []
    found = halved(lambda x: asked.append(x) or x <= 0.3, good=0.0, bad=1.0, rounds=8)
    assert len(asked) == 8
    assert 0.3 - 2**-8 <= found <= 0.3


def test_one_step_at_a_time_where_nothing_lies_between():
    assert last_good(lambda n: 1 / 0, 3, 4) == 3
    assert halved(lambda x: 1 / 0, 1.0, math.nextafter(1.0, 2.0)) == 1.0
    assert halved(lambda x: 1 / 0, 2.0, 2.0) == 2.0


@given(st.floats(1e-6, 1e6), st.booleans())
def test_the_smooth_search_agrees_with_halving(change, upwards):
    good, bad = (0.0, 1e7) if upwards else (1e7, 0.0)
    sign = 1.0 if upwards else -1.0
    smooth = safe_end(lambda x: sign * (x - change), good, bad)
    plain = halved(lambda x: sign * (x - change) <= 0, good, bad)
    assert sign * (smooth - change) <= 0
    assert abs(smooth - plain) <= 1e-5
