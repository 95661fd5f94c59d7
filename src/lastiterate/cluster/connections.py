"""Ray, Dask and Spark: clusters of our own that nobody else can use, or one that the user names.

Whoever can send a task to a cluster runs code as its owner and reads the records that it works on.
So a cluster that is started here listens on loopback only and asks for credentials that are made
for it, and a running one is joined only where the user said which.
"""

from __future__ import annotations

import os
import secrets
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from lastiterate.description.fields import integer, one_of
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


@contextmanager
def local(engine: str, workers: int = 2) -> Iterator[Any]:
    """A cluster of this machine's own, on loopback, that asks for credentials made for it.

    Args:
        engine: "ray", "dask" or "spark".
        workers: how many processes.

    Yields what data sets are made with: the module `ray`, a `distributed.Client` or a
    `SparkSession`. All that was started ends with the block.
    """
    integer("workers", workers)
    ways = {"ray": connect_ray, "dask": _with_dask, "spark": use_spark}
    one_of("engine", engine, tuple(ways))
    with ExitStack() as stack:
        yield ways[engine](stack, workers)


def _with_dask(stack: ExitStack, workers: int | None) -> Any:
    use_dask(stack, workers)
    import distributed

    client: Any = distributed.get_client
    return client()


def use_spark(stack: ExitStack, workers: int | None) -> Any:
    """A session of Spark in this machine's own processes, on loopback, with a secret."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise not_installed("pyspark", "spark") from missing
    if SparkSession.getActiveSession() is not None:
        raise AssumptionError(
            "There is a Spark session in this process already, with settings of its own: train on "
            "its data frames, or stop it first."
        )
    told = {
        "spark.master": f"local[{workers or '*'},20]",  # so many losses of one task
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(32),
        "spark.network.crypto.enabled": "true",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "spark.pyspark.python": sys.executable,
        "spark.log.level": "ERROR",
    }
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder: Any = SparkSession.builder
    for name, value in told.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    stack.callback(session.stop)
    return session


def use_ray(stack: ExitStack, workers: int | None) -> None:
    """Let joblib work on Ray (`connect_ray`)."""
    connect_ray(stack, workers)
    from ray.util.joblib import register_ray

    start: Any = register_ray
    start()


def connect_ray(stack: ExitStack, workers: int | None) -> Any:
    """Ray: the cluster this process is connected to, the one that RAY_ADDRESS
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
        warn_of_ray(named or ray.get_runtime_context().gcs_address)
    return ray


def warn_of_ray(address: str) -> None:
    """Say that a cluster of somebody's own may serve everybody."""
    warnings.warn(_RAY_TRUSTS.format(address=address), PrivacyWarning, stacklevel=3)


def asks_for_credentials() -> bool:
    """Whether Ray of this process keeps strangers out."""
    return os.environ.get(_CREDENTIALS) == "token"


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
        import dask.config
        import distributed
    except ImportError as missing:
        raise not_installed("distributed", "cluster") from missing
    tools: Any = distributed
    try:
        tools.get_client()
    except ValueError:  # nobody connected to a cluster
        # By default a worker that is missing 15 s after it was lost, be it lost once more, is given
        # up for good; and without any worker Dask waits for ever.
        patient = {
            "distributed.deploy.lost-worker-timeout": "1 day",
            "distributed.scheduler.no-workers-timeout": "10 minutes",
        }
        stack.enter_context(dask.config.set(patient))
        cluster = tools.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=None,
            processes=True,
            host="127.0.0.1",
            security=True,
            scheduler_kwargs={"allowed_failures": 20},  # workers lost with one task
        )
        stack.callback(cluster.close)
        stack.enter_context(tools.Client(cluster))


def not_installed(package: str, extra: str) -> DescriptionError:
    """What to install for a backend."""
    return DescriptionError(
        "backend",
        package,
        f"installed (pip install 'lastiterate[{extra}]')",
        "work is handed to it",
    )
