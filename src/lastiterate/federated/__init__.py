"""User-level privacy of federated averaging: the accountant, and a Flower strategy that keeps it.

One client's whole data is what is protected. Clients see the model of every round, outsiders only
the last one, so every answer here has two numbers. Flower is imported when `PrivateFedAvg` is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lastiterate.errors import MissingExtraError
from lastiterate.federated.accounting import FederatedGuarantee, account_federated
from lastiterate.federated.federation import Federation

if TYPE_CHECKING:
    from lastiterate.federated.strategy import PrivateFedAvg

__all__ = [
    "FederatedGuarantee",
    "Federation",
    "PrivateFedAvg",
    "account_federated",
]


def __getattr__(name: str) -> Any:
    if name != "PrivateFedAvg":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from lastiterate.federated.strategy import PrivateFedAvg
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "flwr":
            raise
        raise MissingExtraError("PrivateFedAvg (Flower)", error.name, "federated") from None
    return PrivateFedAvg
