"""Ray and Dask: clusters of our own that nobody else can use, or one that the user names.

Whoever can send a task to a cluster runs code as its owner and reads the records that it works on.
So a cluster that is started here listens on loopback only and asks for credentials that are made
for it, and a running one is joined only where the user said which.
"""

from __future__ import annotations

import os
import secrets
import sys
import warnings
from contextlib import ExitStack
from typing import Any

from lastiterate.errors import AssumptionError, DescriptionError, PrivacyWarning

# Ray looks at these once, while it is imported.
_LOOPBACK, _CREDENTIALS, _TOKEN = (
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER",  # without it Ray announces 127.0.0.1, on every system
    "RAY_AUTH_MODE",
    "RAY_AUTH_TOKEN",
)
_RAY_TRUSTS = (
    "The models are trained on the Ray cluster at {address}. Ray keeps nobody out who reaches its "
    "ports, unless it was started with RAY_AUTH_MODE=token: everybody in its network runs code "
    "there and reads the records that it gets. Use a cluster in a network that you trust."
)


def use_ray(stack: ExitStack, workers: int | None) -> None:
    """Let joblib work on Ray: the cluster this process is connected to, the one that RAY_ADDRESS
    names, or a small one of our own, which ends with ``stack``.
    """
    named = os.environ.get("RAY_ADDRESS")
    named = None if named in ("", "local") else named
    if named == "auto":
        raise DescriptionError(
            "RAY_ADDRESS",
            named,
            "the address of a cluster, such as 10.0.0.5:6379",
            "records are sent there, and auto means whichever cluster announced itself last",
        )
    if not named and "ray" not in sys.modules:
        token = secrets.token_hex(32)
        for name, value in ((_LOOPBACK, "0"), (_CREDENTIALS, "token"), (_TOKEN, token)):
            os.environ.setdefault(name, value)
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as missing:
        raise not_installed("ray", "cluster") from missing
    own = not (named or ray.is_initialized())
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # what we can import
    started: dict[str, Any] = {"log_to_driver": False, "runtime_env": {"env_vars": path}}
    if own:
        _alone(ray)
        ray.init(address="local", num_cpus=workers, include_dashboard=False, **started)
        stack.callback(ray.shutdown)
    elif not ray.is_initialized():
        ray.init(address=named, **started)
        stack.callback(ray.shutdown)
    if not own:
        address = named or ray.get_runtime_context().gcs_address
        warnings.warn(_RAY_TRUSTS.format(address=address), PrivacyWarning, stacklevel=2)
    start: Any = register_ray
    start()


def _alone(ray: Any) -> None:
    """A cluster that is started now would serve this process only; if not, a refusal."""
    where, asks = ray.util.get_node_ip_address(), os.environ.get(_CREDENTIALS)
    if where == "127.0.0.1" and asks == "token":
        return
    raise AssumptionError(
        f"A Ray cluster that is started now would listen on {where} and on every other interface, "
        f"or run code for whoever connects ({_CREDENTIALS} is {asks!r}), with the records inside. "
        f"Ray was imported before, and settled that: set {_LOOPBACK}=0, {_CREDENTIALS}=token and a "
        f"secret {_TOKEN} before anything imports it, or name a cluster of yours (RAY_ADDRESS, or "
        "ray.init before the audit)."
    )


def use_dask(stack: ExitStack, workers: int | None) -> None:
    """Let joblib work on Dask: the cluster that a client of this process is connected to, or a
    small one of our own, on loopback, under TLS with certificates made for it.
    """
    try:
        import distributed
    except ImportError as missing:
        raise not_installed("distributed", "cluster") from missing
    dask: Any = distributed
    try:
        dask.get_client()
    except ValueError:  # nobody connected to a cluster
        cluster = dask.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=None,
            processes=True,
            host="127.0.0.1",
            security=True,
        )
        stack.callback(cluster.close)
        stack.enter_context(dask.Client(cluster))


def not_installed(package: str, extra: str) -> DescriptionError:
    """What to install for a backend."""
    return DescriptionError(
        "backend",
        package,
        f"installed (pip install 'lastiterate[{extra}]')",
        "cohorts of models are handed to it",
    )
