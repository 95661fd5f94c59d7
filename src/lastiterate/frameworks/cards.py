"""A model card in the form of Hugging Face: metadata in YAML, and a section in plain words."""

from __future__ import annotations

import re

from lastiterate._internal.formatting import printed
from lastiterate.certificate import Certificate
from lastiterate.certificate.certificate import weakness
from lastiterate.errors import DescriptionError
from lastiterate.frameworks.checked_claims import Source, checked

HEADING = "## Privacy of the training records"
_FRONT = re.compile(r"\A---\n(.*?)^---$\n?", re.DOTALL | re.MULTILINE)


def model_card(certificate: Source, card: str = "") -> str:
    """A card with a section on privacy and the metadata ``privacy:``; the certificate is verified.

    Numbers in words are rounded up. Publish the certificate's file beside the card: whoever reads
    it can verify it.

    Args:
        certificate: a `Certificate`, or the path of one.
        card: the text of a card that this is added to; one that already speaks of privacy under
            these names is refused.

    >>> from lastiterate import FullBatch, Training
    >>> from lastiterate.losses import Logistic
    >>> from lastiterate.train import noisy_descent
    >>> import numpy as np
    >>> run = Training(records=40, steps=20, step_size=1.0, noise=0.3, gradient_norm=1.0,
    ...                batches=FullBatch(), adjacency="zero-out")
    >>> X, y = np.eye(40)[:, :3], np.resize([1.0, -1.0], 40)
    >>> certificate = noisy_descent(Logistic(), X, run, labels=y).certificate(delta=1e-5)
    >>> print(model_card(certificate).splitlines()[1])
    tags: ["differential-privacy", "lastiterate"]
    """
    verified, card = checked(certificate), card.replace("\r\n", "\n")
    if HEADING in card:
        why = "two guarantees of one model would contradict each other"
        raise DescriptionError("card", f"with {HEADING!r}", "one without that section", why)
    front = _FRONT.match(card)
    if front is None:
        tags = 'tags: ["differential-privacy", "lastiterate"]\n'
        return f"---\n{tags}{_metadata(verified)}---\n\n{card}{_gap(card)}{_section(verified)}"
    if re.search(r"^[\"']?privacy[\"']?\s*:", front[1], re.MULTILINE):
        why = "two guarantees of one model would contradict each other"
        raise DescriptionError("card", "with metadata `privacy:`", "one without them", why)
    rest = card[front.end() :]
    return f"---\n{front[1]}{_metadata(verified)}---\n{rest}{_gap(rest)}{_section(verified)}"


def _gap(before: str) -> str:
    return "" if not before.strip() else "\n" if before.endswith("\n") else "\n\n"


def _metadata(verified: Certificate) -> str:
    told = {
        "epsilon": repr(verified.epsilon),
        "delta": repr(verified.delta),
        "adjacency": _quoted(verified.adjacency),
        "release": _quoted(verified.release),
        "theorem": _quoted(verified.theorem),
        "dataset": _quoted(verified.dataset),
        "certificate_sha256": _quoted(verified.sha256),
    }
    return "privacy:\n" + "".join(f"  {key}: {_number(text)}\n" for key, text in told.items())


def _quoted(text: str) -> str:
    """A string of YAML: whatever is not a plain letter of ASCII is written as its number."""
    plain = (c if " " <= c <= "~" and c not in '"\\' else f"\\U{ord(c):08X}" for c in text)
    return f'"{"".join(plain)}"'


def _number(text: str) -> str:
    """YAML takes 1e-05 for a word; 1.0e-05 is a number."""
    return re.sub(r"^(\d+)e", r"\1.0e", text)


def _section(verified: Certificate) -> str:
    weak = weakness(verified)
    lines = [
        HEADING,
        "",
        f"The training is ({printed(verified.epsilon)}, {printed(verified.delta)})-differentially "
        f"private for {_plain(str(verified.unit))}, {_plain(verified.adjacency)} adjacency; "
        f"released: {_plain(verified.release)}. Proved by: {_plain(verified.theorem)}.",
        "",
        *([f"**{_plain(weak)}**", ""] if weak else []),
        *(f"- Rests on: {_plain(text)}" for text in verified.assumptions),
        *(f"- Declared, not proved: {_plain(text)}" for text in verified.declarations),
        *(f"- Not covered: {_plain(text)}" for text in verified.not_covered),
        "",
        f"Certificate `{verified.sha256}`; check it with `lastiterate verify certificate.json` "
        "(`pip install 'lastiterate[cli,verify]'`).",
    ]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Words of a certificate in Markdown, where they must mean nothing else."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))
