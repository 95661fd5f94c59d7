"""Auditing: a measured lower bound beside the proved upper bound.

Train many models with and without one record, try to tell them apart, and turn the success into an
epsilon that no honest claim can be below. Names are loaded when first used, so that
each part needs only the packages that it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastiterate._internal.lazy import loaded_on_use

_HOME = {
    "audit": "lastiterate.audit.worlds",
    "audit_scores": "lastiterate.audit.scores",
    "AuditResult": "lastiterate.audit.result",
    "required_models": "lastiterate.audit.power",
    "highest_epsilon": "lastiterate.audit.power",
    "fewest_models": "lastiterate.audit.power",
    "Store": "lastiterate.audit.store",
}

if TYPE_CHECKING:
    from lastiterate.audit.power import fewest_models, highest_epsilon, required_models
    from lastiterate.audit.result import AuditResult
    from lastiterate.audit.scores import audit_scores
    from lastiterate.audit.store import Store
    from lastiterate.audit.worlds import audit

__all__ = [
    "AuditResult",
    "Store",
    "audit",
    "audit_scores",
    "fewest_models",
    "highest_epsilon",
    "required_models",
]

__getattr__ = loaded_on_use(__name__, _HOME)
