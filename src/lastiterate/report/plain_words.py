"""The part of a report that everybody reads.

All sentences stand in ``messages.toml``. Text from a file is escaped where it is put into a
sentence; the sentences themselves are ours.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from lastiterate._internal.formatting import escaped
from lastiterate.certificate import Certificate

_LAST = "the last iterate released, every other iterate kept secret"
_TRAINER = ("the trainer", "the noise source", "in the trainer")
_PROVED = "proved by this library"


@cache
def catalogue() -> Mapping[str, str]:
    """Return every message by name."""
    text = files("lastiterate.report").joinpath("messages.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def shown(value: object) -> object:
    """Return texts of files without signs that hide others or turn them round."""
    return escaped(value) if type(value) is str else value


def say(name: str, **fields: object) -> Markup:
    """Return the message of this name, with its fields filled in and escaped.

    >>> print(say("why", reason="<b>"))
    Why: &lt;b&gt;
    """
    filled = {key: shown(value) for key, value in fields.items()}
    return Markup(catalogue()[name]).format(**filled)


def plain_words(certificate: Certificate, promise: Mapping[str, Any]) -> dict[str, Any]:
    """Headline, attacker's table and the four answers: who, from whom, what, how much."""
    kind = "person" if promise["several"] else "record"
    tested = "replaced" if promise["replaced"] else "record"
    small = "factor_person_small" if promise["several"] else "factor_small"
    return {
        "title": say("words_title"),
        "numbers": [
            (say("factor", factor=promise["factor"]), say(small)),
            (f"ε = {promise['epsilon']}", say("epsilon_small")),
            (f"δ = {promise['delta']}", say("delta_small")),
        ],
        "tested": say(f"tested_{tested}"),
        "answers": [
            (say("who"), _who(promise)),
            (say("from_whom"), _from_whom(certificate)),
            (say("promised"), _promised(kind, promise)),
        ],
        "declared": [say("declared", text=text) for text in promise["declarations"]],
    }


def _who(promise: Mapping[str, Any]) -> Markup:
    records = " or ".join(promise["records"])
    if promise["whom"]:
        return say("who_person", whom=promise["whom"], records=records)
    return say("who_record", records=records)


def _from_whom(certificate: Certificate) -> Markup:
    release = say("release_last") if certificate.seen == _LAST else certificate.seen
    return say("from_anybody", release=release)


def _promised(kind: str, promise: Mapping[str, Any]) -> Markup:
    change = "_replaced" if promise["replaced"] else "_zero"
    sentence = say(
        "would_close" if promise["close"] else "would",
        had=say(f"had_{kind}{change}"),
        factor=promise["factor"],
        one_in=promise["one_in"],
    )
    return sentence + (" " + say("huge") if promise["huge"] else "")


def to_sign(
    assumptions: list[tuple[str, str]],
    *,
    trainer: str | None,
    short: bool = False,
) -> dict[str, Any]:
    """What a person has to vouch for, and what not; ``short``: the full report has the details.

    What this library proved is recomputed with the certificate. What the trainer sees to is one
    word about the program, where the run's folder says which one it was (``trainer``, a version).
    """
    proved = [text for text, by in assumptions if _PROVED in by]
    rest = [(text, by) for text, by in assumptions if _PROVED not in by]
    ours = [text for text, by in rest if trainer is not None and by.endswith(_TRAINER)]
    boxes: list[Any] = [text for text, _ in rest if text not in ours]
    if ours and short:
        boxes.append(say("sign_trainer_short", version=trainer))
    elif ours:
        boxes.append(say("sign_trainer", version=trainer, statements="; ".join(ours)))
    boxes.append(say("sign_alone"))
    return {
        "boxes": boxes,
        "proved": say("sign_proved", statements="; ".join(proved))
        if proved and not short
        else None,
    }
