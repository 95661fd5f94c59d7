"""Bounds of the literature as published, one paper per file, for comparison and study.

`PUBLISHED` lists them as rows of the registry: sound and corrected bounds, which are never tighter
than those of `lastiterate.theory`, and refuted claims with their counterexamples. `account` never
evaluates them; ``compare(..., published=True)`` does. `statements` lists everything that a paper
states, with the function that evaluates it.

>>> sorted({theorem.status for theorem in PUBLISHED})
['corrected', 'refuted', 'sound']
"""

from lastiterate.published import (
    chien_li,
    chourasia_ye_shokri,
    equalised,
    he_wang_tao,
    heller_fetaya,
    ye_shokri,
)
from lastiterate.published.statements import PAPERS, Statement, statements
from lastiterate.theory.registry import Theorem

PUBLISHED: tuple[Theorem, ...] = (
    *equalised.ROWS,
    *chourasia_ye_shokri.ROWS,
    *ye_shokri.ROWS,
    *chien_li.ROWS,
    *he_wang_tao.ROWS,
    *heller_fetaya.ROWS,
)

__all__ = ["PAPERS", "PUBLISHED", "Statement", "statements"]
