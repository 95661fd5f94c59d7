"""Links: whatever the page can show survives the way through a link, and nothing else gets in."""

from __future__ import annotations

from urllib.parse import urlencode

from hypothesis import given
from hypothesis import strategies as st

from lastiterate.explore.fields import DEFAULTS, FIELDS
from lastiterate.explore.state import LONGEST_TEXT, from_query, from_values


def _text(name: str) -> st.SearchStrategy[str]:
    field = FIELDS[name]
    if field.kind == "choice":
        return st.sampled_from([value for value, _ in field.options])
    # Surrogates cannot be written in a link.
    characters = st.characters(exclude_categories=["Cs"])
    return st.text(characters, max_size=LONGEST_TEXT) | st.floats().map(repr)


states = st.fixed_dictionaries({name: _text(name) for name in FIELDS})


@given(states)
def test_a_state_survives_its_link(state: dict[str, str]) -> None:
    assert from_query("?" + urlencode(state)) == (state, [])


@given(states)
def test_a_state_survives_the_browser(state: dict[str, str]) -> None:
    assert from_values(state) == state


@given(st.text() | st.none() | st.integers() | st.lists(st.text()))
def test_any_link_gives_a_state(link: object) -> None:
    state, notices = from_query(link)
    assert set(state) == set(FIELDS)
    assert all(isinstance(text, str) and len(text) <= LONGEST_TEXT for text in state.values())
    assert all(isinstance(notice, str) for notice in notices)


plain = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda x: st.lists(x) | st.dictionaries(st.text(), x),
)


@given(st.dictionaries(st.sampled_from(list(FIELDS)) | st.text(), plain) | plain)
def test_anything_from_a_browser_gives_a_state(values: object) -> None:
    state = from_values(values)
    assert set(state) == set(FIELDS)
    for name, field in FIELDS.items():
        if field.kind == "choice":
            assert state[name] in dict(field.options)


def test_what_a_link_gets_wrong_is_said() -> None:
    state, notices = from_query("?batches=alphabetical&colour=red&noise=" + "9" * 100)
    assert state == DEFAULTS
    assert "'alphabetical'" in notices[0]
    assert "'reshuffled'" in notices[0]
    assert "'colour'" in notices[1]
    assert "100 characters" in notices[2]


def test_monstrous_links_are_not_read() -> None:
    assert from_query("?noise=1&" + "a=1&" * 3000)[0] == DEFAULTS
    assert from_query("?noise=2&" + "a=1&" * 300)[0] == DEFAULTS


def test_a_bad_value_stays_in_its_field() -> None:
    state, notices = from_query("?records=many")
    assert state["records"] == "many"
    assert notices == []
