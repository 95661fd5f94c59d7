"""The server answers to this machine only, and never with a traceback."""

from __future__ import annotations

import base64
import copy
import json
import random
import re
from typing import Any

import pytest
from dash import Dash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastiterate.explore.fields import DEFAULTS, FIELDS
from lastiterate.explore.guard import MOST_BODY, MOST_DEPTH, secret_room
from lastiterate.explore.page import build
from lastiterate.explore.pool import Pool

POST = "/_dash-update-component"


def callback(app: Dash, first_output: str, **values: Any) -> dict[str, Any]:
    """What the page sends for the callback with this output."""
    name, known = next(
        (key, entry)
        for key, entry in app.callback_map.items()
        if "callback" in entry and first_output in key
    )
    pairs = [part.rsplit(".", 1) for part in name.strip(".").split("...")]

    def listed(part: str) -> list[dict[str, Any]]:
        return [
            {
                "id": e["id"],
                "property": e["property"],
                "value": values.get(f"{e['id']}.{e['property']}"),
            }
            for e in known[part]
        ]

    return {
        "output": name,
        "outputs": [{"id": i, "property": p} for i, p in pairs],
        "inputs": listed("inputs"),
        "changedPropIds": list(values)[:1],
        "parsedChangedPropsIds": list(values)[:1],
        "state": listed("state"),
    }


@pytest.fixture
def refresh(app: Dash) -> dict[str, Any]:
    return callback(app, "tick.disabled", **{"state.data": dict(DEFAULTS)})


@pytest.fixture
def upload(app: Dash) -> dict[str, Any]:
    contents = "data:application/json;base64," + base64.b64encode(b"{}").decode()
    return callback(app, "verdict.children", **{"upload.contents": contents})


@pytest.fixture
def fill(app: Dash) -> dict[str, Any]:
    return callback(app, "notice.children", **{"url.search": "?noise=1"})


def send(client: Any, body: Any, **options: Any) -> Any:
    data = body if isinstance(body, (bytes, str)) else json.dumps(body)
    path = options.pop("path", POST)
    response = client.post(path, data=data, content_type="application/json", **options)
    assert response.status_code < 500
    assert b"Traceback" not in response.data
    assert b'File "' not in response.data
    return response


def test_what_the_page_sends_is_answered(
    client: Any, refresh: dict[str, Any], upload: dict[str, Any], fill: dict[str, Any]
) -> None:
    answer = send(client, refresh)
    assert answer.status_code == 200
    assert "python" in answer.json["response"]
    for _ in range(200):
        answer = send(client, upload)
        if "CHECKING" not in json.dumps(answer.json):
            break
    assert "not a certificate" in json.dumps(answer.json)
    answer = send(client, fill)
    assert answer.json["response"]["field-noise"]["value"] == "1"


def test_a_preset_button_fills_the_form(app: Dash, client: Any) -> None:
    body = callback(app, "notice.children", **{"preset-chien-li-figure-1.n_clicks": 1})
    answer = send(client, body).json["response"]
    assert answer["field-diameter"]["value"] == "1"
    assert "field-sgld_records" not in answer


STRANGERS = (
    "evil.example",
    "evil.example:80",
    "127.0.0.1.evil.example",
    "10.0.0.1",
    "[::2]",
    "localhost.evil",
    "a b",
    "[",
    "",
    "127.0.0.1:99999",
    "localhost:http",
    "127.0.0.1:-1",
)


@pytest.mark.parametrize("host", STRANGERS)
def test_other_names_for_this_machine_are_refused(client: Any, host: str) -> None:
    for response in (
        client.get("/", headers={"Host": host}),
        client.post(POST, data="{}", content_type="application/json", headers={"Host": host}),
    ):
        assert response.status_code in (400, 403)
        assert b"Traceback" not in response.data


@pytest.mark.parametrize("host", ["127.0.0.1:5000", "localhost:5000", "[::1]:5000", "localhost"])
def test_loopback_is_answered(client: Any, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 200


def test_other_sites_cannot_post(client: Any, refresh: dict[str, Any]) -> None:
    here = {"Host": "127.0.0.1:5000"}
    own = here | {"Origin": "http://127.0.0.1:5000", "Sec-Fetch-Site": "same-origin"}
    assert send(client, refresh, headers=own).status_code == 200
    for origin in ("http://evil.example", "http://127.0.0.1:6000", "null", "http://["):
        assert send(client, refresh, headers=here | {"Origin": origin}).status_code == 403
    cross = here | {"Sec-Fetch-Site": "cross-site"}
    assert send(client, refresh, headers=cross).status_code == 403
    simple = client.post(POST, data=json.dumps(refresh), content_type="text/plain", headers=here)
    assert simple.status_code == 400


def test_a_token_lets_a_browser_in(app: Dash, client: Any, refresh: dict[str, Any]) -> None:
    token = client.environ_base["HTTP_AUTHORIZATION"].removeprefix("token ")
    stranger = app.server.test_client()
    wrong: dict[str, Any]
    for wrong in (
        {},
        {"query_string": {"token": ""}},
        {"query_string": {"token": token[:-1]}},
        {"query_string": {"token": "ü\x00"}},
        {"headers": {"Authorization": "token "}},
        {"headers": {"Authorization": f"Bearer {token}x"}},
        {"headers": {"Cookie": "lastiterate-explore-None="}},
    ):
        for path in ("/", "/_dash-layout", "/_dash-dependencies", "/assets/explore.js"):
            assert stranger.get(path, **wrong).status_code == 403
    assert stranger.get("/_dash-layout", query_string={"token": token}).status_code == 403
    assert send(stranger, refresh).status_code == 403
    let_in = stranger.get("/", query_string={"noise": "ü&1", "token": token, "records": "5"})
    assert let_in.status_code == 302
    room, _, query = let_in.headers["Location"].partition("?")
    assert query == "noise=%C3%BC%261&records=5"  # nothing left to copy
    cookie = let_in.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "Domain" not in cookie
    page = stranger.get(room)
    assert page.status_code == 200
    assert send(stranger, refresh, path=room.rstrip("/") + POST).status_code == 200
    assert token.encode() not in page.data
    assert token[:8] not in room
    assert stranger.get(f"{room}_dash-layout").status_code == 200
    assert stranger.get(f"{room}assets/explore.js").status_code == 200
    for file in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert file.startswith(room)
        assert stranger.get(file).status_code == 200


def test_what_listens_on_another_port_cannot_use_the_cookie(
    app: Dash, client: Any, refresh: dict[str, Any]
) -> None:
    """Cookies know no ports: before, every server on this machine was sent the token."""
    token = client.environ_base["HTTP_AUTHORIZATION"].removeprefix("token ")
    browser = app.server.test_client()
    room = browser.get("/", query_string={"token": token}).headers["Location"]
    kept = browser.get_cookie("lastiterate-explore", path=room)
    assert kept is not None
    assert kept.path == room  # what a browser sends elsewhere on the host is nothing
    assert re.fullmatch(r"/[0-9a-f]{32}/", room)
    other = app.server.test_client()
    stolen = {"Cookie": f"lastiterate-explore={token}"}
    for path in ("/", "/_dash-layout", f"/x{room}", f"/{'0' * 32}/", room[:-1], f"/{room}"):
        assert other.get(path, headers=stolen).status_code in (403, 404)
    assert send(other, refresh, headers=stolen).status_code == 403
    for path in (room, f"{room}_dash-layout"):  # the name of the room alone opens nothing
        assert other.get(path).status_code == 403
    assert send(other, refresh, path=room[:-1] + POST).status_code == 403
    assert app.config.requests_pathname_prefix == room != secret_room("another token")


def test_guesses_and_injected_headers_get_nothing(app: Dash, client: Any) -> None:
    token = client.environ_base["HTTP_AUTHORIZATION"].removeprefix("token ")
    room = secret_room(token)
    stranger = app.server.test_client()
    for method in ("HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "PATCH"):
        for path in ("/", f"/?token={token}", room, POST):
            answer = stranger.open(path, method=method)
            assert answer.status_code in (403, 405)
            assert "Set-Cookie" not in answer.headers
            assert "Access-Control-Allow-Origin" not in answer.headers
    for guess in (token.upper(), token + "\0", f" {token}", token[::-1], "*", "null", "token"):
        headers = {"Authorization": f"token {guess}"} if guess.isprintable() else {}
        assert stranger.get("/", query_string={"token": guess}).status_code == 403
        assert stranger.get("/", headers=headers).status_code == 403 or guess == f" {token}"
    twice = stranger.get(f"/?token=wrong&token={token}")
    assert twice.status_code == 403
    query = {"token": token, "noise": "1\r\nSet-Cookie: a=b", "x\r\ny": "//evil.example/"}
    let_in = stranger.get("/", query_string=query)
    assert len(let_in.headers.getlist("Set-Cookie")) == 1
    assert let_in.headers["Location"].startswith(f"{room}?")
    assert not set("\r\n") & set(let_in.headers["Location"])
    for path in (
        "../",
        "..%2f",
        "%2e%2e/server.py",
        "assets/..%5c..%5cserver.py",
        "assets//etc/passwd",
    ):
        assert b"def " not in stranger.get(room + path).data
        assert b"root:" not in stranger.get(room + path).data


def test_headers_keep_everything_local(client: Any) -> None:
    page = client.get("/")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    scripts = policy.split("script-src", 1)[1].split(";", 1)[0]
    assert "unsafe" not in scripts
    assert "http" not in policy
    text = page.get_data(as_text=True)
    assert 'src="http' not in text
    assert 'href="http' not in text
    assert page.headers["X-Frame-Options"] == "DENY"


def test_nothing_else_can_be_posted_or_read(client: Any) -> None:
    assert client.post("/", data="x").status_code == 400
    assert client.get("/assets/../server.py").status_code in (200, 404)
    assert b"def serve" not in client.get("/assets/../server.py").data
    assert b"def serve" not in client.get("/assets/%2e%2e/server.py").data
    assert client.get("/_dash-component-suites/os/path.py").status_code == 404
    assert client.put(POST, data="{}").status_code == 405


MALFORMED = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"5",
    b'"text"',
    b"\xff\xfe",
    b"NaN",
    b'{"output": NaN}',
    b'{"output": 5}',
    b'{"output": "nobody.children"}',
    b'{"output": {"a": 1}}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"output": "' + b"x" * 100_000 + b'"}',
    b"1" * 5000,
    b'{"output": null, "inputs": 1e999}',
]


@pytest.mark.parametrize("raw", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_requests_get_a_plain_refusal(client: Any, raw: bytes) -> None:
    assert send(client, raw).status_code == 400


def test_bodies_are_limited(client: Any) -> None:
    assert send(client, b"x" * (MOST_BODY + 1)).status_code in (400, 413)


def test_parts_of_a_payload_can_be_missing_or_wrong(client: Any, refresh: dict[str, Any]) -> None:
    for part in list(refresh):
        for wrong in (None, 5, "text", [], {}, [[]], [None], [{"id": "x"}], {"a": 1}):
            body = copy.deepcopy(refresh)
            body[part] = wrong
            send(client, body)
        body = copy.deepcopy(refresh)
        del body[part]
        send(client, body)


_leaf = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([10**400, "1e999", "9" * 500, "\x00", "�", "__proto__", "{{7*7}}"])
)
_json = st.recursive(
    _leaf,
    lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(max_size=8), x, max_size=4),
    max_leaves=12,
)
_slow = settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@_slow
@given(body=_json)
def test_random_json_is_never_an_error(client: Any, body: Any) -> None:
    assert send(client, body).status_code == 400


@_slow
@given(data=st.data())
def test_our_own_payloads_with_wild_values_are_never_an_error(
    client: Any, refresh: dict[str, Any], upload: dict[str, Any], fill: dict[str, Any], data: Any
) -> None:
    body = copy.deepcopy(data.draw(st.sampled_from([refresh, upload, fill])))
    for part in ("inputs", "state"):
        for entry in body[part]:
            if data.draw(st.booleans()):
                entry["value"] = data.draw(_json)
    body["changedPropIds"] = data.draw(
        st.just(body["changedPropIds"]) | st.lists(st.text(max_size=8), max_size=3)
    )
    send(client, body)


@_slow
@given(values=st.dictionaries(st.sampled_from(list(FIELDS)) | st.text(max_size=5), _json))
def test_wild_forms_are_never_an_error(
    client: Any, refresh: dict[str, Any], values: dict[str, Any]
) -> None:
    body = copy.deepcopy(refresh)
    body["inputs"][0]["value"] = DEFAULTS | values
    assert send(client, body).status_code == 200


def _mutated(value: Any, random_: random.Random) -> Any:
    """The same structure with one place replaced, doubled or removed."""
    if isinstance(value, dict) and value and random_.random() < 0.8:
        key = random_.choice(list(value))
        changed = dict(value)
        if random_.random() < 0.2:
            del changed[key]
        else:
            changed[key] = _mutated(value[key], random_)
        return changed
    if isinstance(value, list) and value and random_.random() < 0.8:
        index = random_.randrange(len(value))
        changed_list = list(value)
        if random_.random() < 0.2:
            changed_list.insert(index, changed_list[index])
        else:
            changed_list[index] = _mutated(value[index], random_)
        return changed_list
    nested: Any = 0
    for _ in range(random_.choice([1, 3, MOST_DEPTH + 2])):
        nested = [nested]
    return random_.choice([None, 0, -1, 10**30, 1.5, "", "x", [], {}, nested, {"id": 1}, True])


@pytest.mark.parametrize("seed", range(200))
def test_mutated_payloads_are_never_an_error(
    client: Any, refresh: dict[str, Any], upload: dict[str, Any], fill: dict[str, Any], seed: int
) -> None:
    random_ = random.Random(seed)
    body: Any = random_.choice([refresh, upload, fill])
    for _ in range(random_.randint(1, 4)):
        body = _mutated(body, random_)
    send(client, body)


def test_an_unexpected_error_becomes_one_sentence(pool: Pool) -> None:
    app = build(pool, "token")

    def fails() -> None:
        raise RuntimeError("secret: a path of the server")

    app.server.add_url_rule("/fails", view_func=fails)
    response = app.server.test_client().get("/fails", headers={"Authorization": "token token"})
    assert response.status_code == 500
    assert response.mimetype == "text/plain"
    assert b"secret" not in response.data
    assert b"Traceback" not in response.data
