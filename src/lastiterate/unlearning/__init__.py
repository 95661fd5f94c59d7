"""Forgetting records that a run has used: cheaper than training again, where it is.

`plan_unlearning` says how many clean steps on what remains make the model forget, which single
perturbation does the same at once, and what starting again would cost; `plan_requests` does so for
requests one after the other. The guarantee is the ordinary one, for somebody who left the run.
`plan_network` needs no assumption at all, and says why it is seldom worth it.
`Ledger` writes down what records really did; `lastiterate.train.unlearn` forgets them with it.
"""

from lastiterate.unlearning.ledger import Ledger
from lastiterate.unlearning.networks import NetworkPlan, plan_network
from lastiterate.unlearning.planning import UnlearningPlan, plan_unlearning
from lastiterate.unlearning.requests import RequestsPlan, plan_requests
from lastiterate.unlearning.restart import Restart

__all__ = [
    "Ledger",
    "NetworkPlan",
    "RequestsPlan",
    "Restart",
    "UnlearningPlan",
    "plan_network",
    "plan_requests",
    "plan_unlearning",
]
