"""Plans for deleting records that a run has used.

`plan_unlearning` compares three ways: releasing the model unchanged, training again on what
remains, and clean steps on what remains. `plan_requests` plans the clean steps of requests one
after the other. The guarantee is the ordinary one, for records that left the run.
"""

from lastiterate.unlearning.planning import UnlearningPlan, plan_unlearning
from lastiterate.unlearning.requests import RequestsPlan, plan_requests
from lastiterate.unlearning.restart import Restart

__all__ = [
    "RequestsPlan",
    "Restart",
    "UnlearningPlan",
    "plan_requests",
    "plan_unlearning",
]
