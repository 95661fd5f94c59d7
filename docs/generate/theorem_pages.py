"""Writes theorems.md from the registry when the documentation is built."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastiterate import theorems
from lastiterate.theory import BY_KEY, Theorem

HEAD = """# Registry of theorems

Every privacy theorem of the library, as it stands in the code (`lastiterate.theorems()`,
or `lastiterate theorems` in a shell). This page is written from the code when the documentation is
built.

- **sound**: proved, and tested against problems whose exact answer is known.
- **corrected**: what the paper prints had to be mended; the entry says how.
- **refuted**: false. Kept for study; it can never carry a guarantee. Counterexamples:
  [errata](errata.md).

Proofs: [theory](theory/index.md). `account` evaluates the entries that can be tightest and apply to the run, and
reports the smallest bound. Bounds of the literature that are never tightest follow them; `compare(..., published=True)`
evaluates those too.
"""


# Papers that references name, and where to read them.
PAPERS = {
    "Balle et al. 2019": "1905.12264",
    "Balle, Barthe & Gaboardi 2018": "1807.01647",
    "Bok, Su & Altschuler 2024": "2403.00278",
    "Chien & Li 2025": "2410.01068",
    "Chourasia, Ye & Shokri 2021": "2102.05855",
    "Chua et al. 2024": "2412.16802",
    "Denisov et al. 2022": "2202.08312",
    "Dong, Roth & Su 2022": "1905.02383",
    "Feldman & Zrnic 2021": "2008.11193",
    "He, Wang & Tao 2020": "2007.09371",
    "Heller & Fetaya 2022": "2110.05057",
    "Ye & Shokri 2022": "2203.05363",
    "Zhu, Dong & Wang 2022": "2106.08567",
}
PAPER = re.compile("|".join(sorted(map(re.escape, PAPERS), key=len, reverse=True)))
PAGE = re.compile(r"docs/([\w/-]+\.md)")


def linked(reference: str) -> str:
    """A reference in which papers and pages of this documentation are links."""
    parts, end = [], 0
    for found in re.finditer(f"{PAPER.pattern}|{PAGE.pattern}", reference):
        paper = PAPERS.get(found[0])
        target = f"https://arxiv.org/abs/{paper}" if paper else found[1]
        parts += [plain(reference[end : found.start()]), f"[{plain(found[0])}]({target})"]
        end = found.end()
    return "".join([*parts, plain(reference[end:])])


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
    yield f"**{theorem.status.capitalize()}.** {linked(theorem.reference)}. Key: `{theorem.key}`."
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
    yield "theorems.md", "\n\n".join(parts) + "\n"
