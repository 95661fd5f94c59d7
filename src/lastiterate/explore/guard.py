"""What stands between the page and the world.

The server listens on loopback, but any web page can make a browser send requests there, a name
that points to 127.0.0.1 makes them look local (DNS rebinding), and other users of the machine reach
it too. So the Host and the Origin of every request are checked; a secret token, in the link that
the terminal shows, lets a browser in, which then has a cookie. Cookies know hosts and paths but no
ports, so that whatever else listens on this machine would be sent it: ours is for a path that has a
secret name, and is taken nowhere else. Callback payloads must have the
shape that our own page sends; and an error becomes one plain sentence, while its traceback stays
in the terminal.
"""

from __future__ import annotations

import hmac
import json
import logging
from typing import Any
from urllib.parse import urlencode, urlsplit

from dash import Dash
from dash.exceptions import DashException
from flask import Response, redirect, request
from werkzeug.exceptions import HTTPException

from lastiterate._internal.json_size import nesting
from lastiterate.explore.findings import MOST_CERTIFICATE_BYTES

LOOPBACK = {"127.0.0.1", "localhost", "::1"}
MOST_DEPTH = 32
MOST_BODY = MOST_CERTIFICATE_BYTES * 4 // 3 + (1 << 20)

_CALLBACK = "/_dash-update-component"
_PARTS = {"output", "outputs", "inputs", "state", "changedPropIds", "parsedChangedPropsIds"}
_STRANGER = "Open the link that the terminal shows, with its token."
_log = logging.getLogger(__name__)


def secret_room(token: str) -> str:
    """The path that the page lives under, "/.../": it follows from the token and does not tell it.

    >>> secret_room("token") == secret_room("token") != secret_room("another")
    True
    """
    return f"/{hmac.digest(token.encode(), b'path of the page', 'sha256').hex()[:32]}/"


def protect(app: Dash, token: str) -> None:
    """Put the guards in front of an application; ``token`` lets a browser in."""
    server = app.server
    _answer_in(app, secret_room(token))
    server.config["MAX_CONTENT_LENGTH"] = MOST_BODY
    policy = _policy(app)

    def only_from_here() -> Response | None:
        if not _is_loopback(f"//{request.host}"):
            return _plain("This server answers to this machine only.", 403)
        origin = request.headers.get("Origin")
        if origin is not None and (
            not _is_loopback(origin) or urlsplit(origin).netloc != request.host
        ):
            return _plain("Requests from other sites are refused.", 403)
        if request.headers.get("Sec-Fetch-Site") == "cross-site" and request.method != "GET":
            return _plain("Requests from other sites are refused.", 403)
        stranger = _let_in(token)
        if stranger is not None:
            return stranger
        if request.method == "POST":
            problem = _payload_problem(app)
            if problem:
                return _plain(problem, 400)
        return None

    def close_the_doors(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return response

    def in_words(error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return _plain(f"{error.name}.", error.code or 400)
        if isinstance(error, DashException):  # a file or a callback that does not exist
            return _plain("Nothing is here.", 404)
        _log.error("A request failed", exc_info=error)
        return _plain("The server could not answer; its terminal has the details.", 500)

    server.before_request(only_from_here)
    server.after_request(close_the_doors)
    server.register_error_handler(Exception, in_words)


def _let_in(token: str) -> Response | None:
    """None for who has the token; a cookie for who brings it in the link; else a refusal.

    Programs may send it as ``Authorization: token ...``.
    """
    room, cookie = secret_room(token), "lastiterate-explore"
    authorization = request.headers.get("Authorization", "")
    given = [authorization.removeprefix("token ")]
    if request.script_root == room.rstrip("/"):
        given.append(request.cookies.get(cookie, ""))
    if request.method == "GET" and request.path == "/" and "token" in request.args:
        if not _same(request.args["token"], token):
            return _plain(_STRANGER, 403)
        rest = [(name, value) for name, value in request.args.items(True) if name != "token"]
        answer: Any = redirect(room + (f"?{urlencode(rest)}" if rest else ""))  # without the token
        # Lax, as the link may be clicked on another page; who comes so can only look at this one.
        answer.set_cookie(cookie, token, path=room, httponly=True, samesite="Lax")
        answer.headers["Cache-Control"] = "no-store"
        response: Response = answer
        return response
    return None if any(_same(each, token) for each in given) else _plain(_STRANGER, 403)


def _answer_in(app: Dash, room: str) -> None:
    """Answer below a path as at the root, where programs with the token may ask as well."""
    inside: Any = app.server.wsgi_app

    def answering(environ: dict[str, Any], start: Any) -> Any:
        if environ.get("PATH_INFO", "").startswith(room):
            environ["SCRIPT_NAME"] = room.rstrip("/")
            environ["PATH_INFO"] = environ["PATH_INFO"][len(room) - 1 :]
        return inside(environ, start)

    app.server.wsgi_app = answering


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _policy(app: Dash) -> str:
    """Nothing from elsewhere; no script but our files and Dash's own start."""
    scripts = " ".join(f"'{digest.strip(chr(39))}'" for digest in app.csp_hashes())
    return (
        f"default-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
        "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _is_loopback(address: str) -> bool:
    try:
        return urlsplit(address).hostname in LOOPBACK
    except ValueError:
        return False


def _payload_problem(app: Dash) -> str | None:
    """What is wrong with a POST, or None if it is what our own page sends."""
    if request.path != _CALLBACK:
        return "Nothing can be posted here."
    if request.mimetype != "application/json":
        return "A callback is JSON."
    raw = request.get_data(cache=True)
    if nesting(raw) > MOST_DEPTH:
        return "The request is nested too deeply."
    try:
        body = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return "The request is not JSON."
    if not isinstance(body, dict):
        return "A callback is a JSON object."
    return _shape_problem(app, body)


def _shape_problem(app: Dash, body: dict[str, Any]) -> str | None:
    output = body.get("output")
    known = app.callback_map.get(output) if isinstance(output, str) else None
    if known is None or "callback" not in known:
        return "No such callback."
    if set(body) - _PARTS:
        return "The callback has fields that nobody knows."
    for part in ("inputs", "state"):
        wanted = [(each["id"], each["property"]) for each in known[part]]
        given = body.get(part, [])
        if not isinstance(given, list) or len(given) != len(wanted):
            return f"The callback has other {part} than these."
        for each, (identity, prop) in zip(given, wanted, strict=True):
            if not isinstance(each, dict) or set(each) - {"id", "property", "value"}:
                return f"An entry of {part} is malformed."
            if each.get("id") != identity or each.get("property") != prop:
                return f"The callback has other {part} than these."
    changed = body.get("changedPropIds", [])
    if not isinstance(changed, list) or not all(isinstance(each, str) for each in changed):
        return "changedPropIds is a list of names."
    if body.get("outputs") != _outputs(output):
        return "The callback has other outputs than these."
    parsed = body.get("parsedChangedPropsIds", [])
    if not isinstance(parsed, list):
        return "parsedChangedPropsIds is a list."
    return None


def _outputs(output: Any) -> Any:
    """What the browser lists for an output, from its name ``..a.children...b.data..``."""
    names = output.strip(".").split("...") if output.startswith("..") else [output]
    pairs = [name.rsplit(".", 1) for name in names]
    listed = [{"id": identity, "property": prop.split("@")[0]} for identity, prop in pairs]
    return listed if output.startswith("..") else listed[0]


def _no_constant(word: str) -> float:
    raise ValueError(word)


def _plain(words: str, status: int) -> Response:
    return Response(words + "\n", status=status, mimetype="text/plain")
