"""Writes ledger.md from the ledger itself when the documentation is built."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastiterate import theorems
from lastiterate.bounds import BY_KEY, Theorem

HEAD = """# Ledger of theorems

Every privacy theorem that the library knows, as it stands in the code (`lastiterate.theorems()`,
or `lastiterate theorems` in a shell). This page is written from the code when the documentation is
built.

- **sound**: proved, and tested against problems whose exact answer is known.
- **corrected**: what the paper prints had to be mended; the entry says how.
- **refuted**: false. Kept for study; it can never carry a guarantee. Counterexamples:
  [errata](errata.md).

Proofs: [theory](theory/index.md). `account` asks every entry that is not refuted whether it applies
to the run, and reports the tightest bound.
"""


def plain(text: str) -> str:
    """Text of the code as it is: no character of it is markup."""
    return re.sub(r"[\\`*_{}\[\]<>|#&]", lambda found: f"&#{ord(found[0])};", text)


def table() -> Iterator[str]:
    yield "| theorem | status | intermediate models must stay secret |"
    yield "|---|---|---|"
    for theorem in theorems():
        link = f"[{plain(theorem.name)}](#{theorem.key})"
        hidden = "yes" if theorem.hidden_state else "no"
        yield f"| {link} | {theorem.status} | {'–' if theorem.status == 'refuted' else hidden} |"


def entry(theorem: Theorem) -> Iterator[str]:
    yield f"## {plain(theorem.name)} {{ #{theorem.key} }}"
    yield f"**{theorem.status.capitalize()}.** {plain(theorem.reference)}. Key: `{theorem.key}`."
    yield plain(theorem.statement)
    if theorem.assumptions:
        yield "Assumptions:\n\n" + "\n".join(f"- {plain(one)}" for one in theorem.assumptions)
    if theorem.correction:
        yield f"*What was corrected.* {plain(theorem.correction)}"
    if theorem.dominated_by:
        yield "Where they apply, never worse: " + plain(
            ", ".join(BY_KEY[key].name for key in theorem.dominated_by)
        )


def pages() -> Iterator[tuple[str, str]]:
    parts = [HEAD, "\n".join(table()), *(part for one in theorems() for part in entry(one))]
    yield "ledger.md", "\n\n".join(parts) + "\n"
