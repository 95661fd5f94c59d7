r"""Stochastic gradient Langevin dynamics, many chains at once.

    theta <- theta + (eta/2) (grad ln prior(theta) + (n/b) sum over batch of grad ln p(y|x, theta))
             + sqrt(eta * temperature) N(0, I)

(Welling and Teh 2011; Heller & Fetaya 2022, eq. (3)). With ``clip`` every record's gradient is
first divided by max(1, norm/clip) (Heller & Fetaya 2022, eq. (66)): no longer a sampler of the
posterior, but a noisy gradient descent that an accountant can bound. Without it nothing can be
promised (see ``interim_privacy``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lastiterate._internal.progress import shown
from lastiterate.description import Arithmetic, Batches, FullBatch, Training
from lastiterate.description.batches import check_drawn_by
from lastiterate.description.fields import number, one_of
from lastiterate.errors import DescriptionError
from lastiterate.noise import SecureSource, unpredictable
from lastiterate.noise.seeded import generator as seeded_generator
from lastiterate.sampling.batch_order import SeededDraws, batch_rows, secret_draws
from lastiterate.sampling.chains_on_grid import GridSteps, chain_grid
from lastiterate.sampling.likelihood import (
    SMALLEST,
    Array,
    GeneralizedLinear,
    Likelihood,
    RecordGradients,
    rounding_of_sums,
)
from lastiterate.sampling.returned import Returned
from lastiterate.sampling.samples import Samples
from lastiterate.train.one_thread import one_thread

Floats = NDArray[np.float64]
SMALL = 10_000_000
"""Products of one step below which a single thread is faster."""
Model = Likelihood | Callable[[Array, Array, Array], Array]


def sgld(
    likelihood: Model,
    X: Array,
    y: Array,
    start: Array,
    *,
    steps: int,
    step_size: float | Iterable[float],
    batches: Batches | None = None,
    prior_precision: float = 1.0,
    prior_gradient: Callable[[Array], Array] | None = None,
    temperature: float = 1.0,
    clip: float | None = None,
    burn_in: int = 0,
    thin: int = 1,
    random_state: int | np.random.Generator | None = None,
    normals: Callable[[tuple[int, int]], Array] | None = None,
    backend: Literal["numpy", "torch"] | None = None,
    progress: bool | None = None,
) -> Samples:
    """Run Langevin chains from ``start`` and keep every ``thin``-th iterate after ``burn_in``.

    Args:
        likelihood: ``gaussian_likelihood()``, ``logistic_likelihood()``, any ``Likelihood``, or a
            function ``(theta, X, y) -> per-record gradients`` of shape (chains, batch, d).
        X, y: the data; one row a record. torch tensors run on torch, on their own device.
        start: shape (chains, d), or (d,) for one chain.
        steps: how many updates.
        step_size: eta, a number or one per step.
        batches: ``FullBatch()`` (the unadjusted Langevin algorithm) unless given.
        prior_precision: of the prior N(0, I/prior_precision).
        prior_gradient: of the negative log prior, instead of that one.
        temperature: 1 samples the posterior, 0 is gradient descent.
        clip: bound on the norm of each record's gradient. A ``Likelihood`` of your own clips by
            its own word, and makes an experiment; a function is clipped here.
        burn_in, thin: how many iterates are dropped first; then one in ``thin`` is kept.
        random_state: a seed makes a reproducible experiment, about which nothing is promised.
        normals: where standard normal noise of a given shape comes from. By default the
            generator of ``random_state``; for clipped gradients without ``random_state`` the
            cryptographically secure source. Noise from anywhere else makes an experiment.
        backend: "numpy" or "torch"; by default what the data are made of.
        progress: show a bar; by default only on a terminal.

    Everything that is returned is a release: all kept draws, all chains, and the final iterates.
    ``samples.guarantee()`` accounts for all of it (with ``clip``, not seeded). ``start`` and the
    prior must not depend on the data.

    >>> x = np.linspace(-1, 1, 50)[:, None]
    >>> from lastiterate.sampling.likelihood import gaussian_likelihood
    >>> samples = sgld(gaussian_likelihood(), x, 2 * x[:, 0], np.zeros((200, 1)),
    ...                steps=400, step_size=0.02, burn_in=200, random_state=0)
    >>> bool(abs(samples.mean()[0] - 1.89) < 0.05)      # the exact posterior mean is 1.890
    True
    """
    schedule = _schedule(step_size, steps)
    batches = FullBatch() if batches is None else batches
    X, y, theta = _arrays(X, y, start, backend)
    records, chains = len(X), len(theta)
    _check(records, len(y), steps, temperature, clip, burn_in, thin)
    batches = batches.of(records)
    check_drawn_by("The sampler", batches)
    scale = records / batches.divisor(records)
    number("prior_precision", prior_precision, at_least=0)

    def plain_prior(theta: Array) -> Array:
        return -prior_precision * theta

    precision = prior_precision if prior_gradient is None else None
    prior_gradient = plain_prior if prior_gradient is None else prior_gradient
    model: Likelihood = (
        likelihood if hasattr(likelihood, "gradient") else RecordGradients(likelihood)
    )
    moves_other_records = (
        batches.moves_other_records and batches.fixed_size
    )  # coins leave every row in its place
    if type(model) is GeneralizedLinear and clip is not None and moves_other_records:
        model = replace(model, placeless=True)
    clipped_here = type(model) in (GeneralizedLinear, RecordGradients)  # a subclass may do anything
    # A clipped run may be released: its noise and its batches must be secret.
    secure = normals is None and clip is not None and random_state is None
    generator, source = seeded_generator(random_state), SecureSource()
    if secure:
        normals = _secure_like(theta, source)
    draw = _normals_like(theta, generator) if normals is None else normals
    coarse = theta.dtype.itemsize < 8  # less than double precision
    chain = steps_on_grid = None
    if clip is not None:
        chain = sgld_training(records, steps, schedule, clip, batches, temperature=temperature)
        grid = chain_grid(chain, _to_numpy(theta), precision)
        if secure and clipped_here and not coarse and grid is not None:
            steps_on_grid = GridSteps(grid, chain.noises, source)
            theta = steps_on_grid.start(theta)
    draws = secret_draws(chains) if secure else SeededDraws(generator, chains)
    rows = batch_rows(batches, records, draws)
    kept = np.empty((chains, max(0, -(-(steps - burn_in) // thin)), theta.shape[1]))

    work = chains * X.shape[1] * round(batches.divisor(records))
    with one_thread(work < SMALL):
        for step in shown("sgld", 0, steps, progress):
            eta = float(schedule[step])
            chosen, weight = next(rows)
            if weight is not None and not isinstance(theta, np.ndarray):
                weight = theta.new_tensor(weight)
            pull = model.gradient(theta, X[chosen], y[chosen], weight, clip)
            if steps_on_grid is not None:
                pull *= scale * (eta / 2)
                theta = steps_on_grid.moved(step, theta, pull, prior_gradient(theta) * (eta / 2))
            else:
                pull *= scale
                pull += prior_gradient(theta)
                pull *= eta / 2
                theta = theta + pull
                if temperature > 0:
                    theta += math.sqrt(eta * temperature) * draw(tuple(theta.shape))
            if step >= burn_in and (step - burn_in) % thin == 0:
                kept[:, (step - burn_in) // thin] = _to_numpy(theta)
    left = steps_on_grid is not None and steps_on_grid.left(theta)
    if left or not np.all(np.isfinite(_to_numpy(theta))):
        raise DescriptionError(
            "step_size", step_size, "small enough for the chain to stay finite", "it diverged"
        )
    returned = None
    if chain is not None and clip is not None:
        if clipped_here:
            entries = max(X.shape[1], theta.shape[1])
            error = rounding_of_sums(batches.largest(records), entries, clip)
            error = error / batches.divisor(records) * (1 + 2**-50)
            spacing = 0.0 if grid is None else grid.spacing
            chain = chain.replace(arithmetic=Arithmetic(spacing, error, theta.shape[1]))
        after = tuple(range(burn_in + 1, steps + 1, thin))
        releases = after if after[-1] == steps else (*after, steps)  # `last` is returned as well
        l2 = None if precision is None else precision / records
        returned = Returned(chain, releases, chains, l2)
    trusted = secure and clipped_here and unpredictable(source)
    return Samples(kept, theta, returned, experiment=not trusted or coarse)


def _secure_like(theta: Array, secure: SecureSource) -> Callable[[tuple[int, int]], Array]:
    """Secure standard normals in the array type of theta."""
    if isinstance(theta, np.ndarray):
        return secure.normal
    return lambda shape: theta.new_tensor(secure.normal(shape))


def sgld_training(
    records: int,
    steps: int,
    step_size: float | Iterable[float],
    clip: float,
    batches: Batches,
    *,
    temperature: float = 1.0,
    adjacency: str = "zero-out",
) -> Training:
    """One chain of the clipped sampler, its last iterate released, in the library's own terms.

    ``sgld`` returns more than that: ask its result for its ``guarantee()``, or give
    `account` the ``releases``.

    Heller & Fetaya's step eta moves by (eta n/2) times the average clipped gradient, with noise
    sqrt(eta * temperature). A Gaussian prior of precision p is the data-free term p/n:
    account with ``Loss(..., regularization=p/n)``.

    Args:
        records, steps, batches, adjacency: as in `Training`.
        step_size: eta of SGLD, or one per step.
        clip: length that every gradient is clipped to.
        temperature: factor on the variance of the noise.

    >>> from lastiterate.description import Cyclic
    >>> run = sgld_training(1000, 20, 1e-4, clip=1.0, batches=Cyclic(100))
    >>> run.step_size, run.noise, run.clipping
    (0.05, 0.01, 'gradient')
    """
    eta = _schedule(step_size, steps)
    constant = bool(np.all(eta == eta[0])) if steps else True
    move, noise = eta * records / 2, np.sqrt(eta * temperature)
    return Training(
        records=records,
        steps=steps,
        step_size=float(move[0]) if constant else move,
        noise=float(noise[0]) if constant else noise,
        gradient_norm=clip,
        batches=batches,
        clipping="gradient",
        adjacency=adjacency,
    )


def _schedule(step_size: float | Iterable[float], steps: int) -> Floats:
    if isinstance(step_size, Iterable):
        schedule = np.asarray(list(step_size), dtype=np.float64)
    else:
        schedule = np.full(steps, float(step_size))
    if schedule.shape != (steps,):
        allowed = f"one per step, {steps}"
        why = "every update uses one"
        raise DescriptionError("step_size", f"{schedule.shape[0]} values", allowed, why)
    if not (np.all(schedule > 0) and np.all(np.isfinite(schedule))):
        raise DescriptionError("step_size", step_size, "positive and finite", "noise grows with it")
    return schedule


def _arrays(
    X: Array, y: Array, start: Array, backend: Literal["numpy", "torch"] | None
) -> tuple[Array, Array, Array]:
    """The data and a fresh copy of the start, all of one backend, start of shape (chains, d)."""
    if backend is not None:
        one_of("backend", backend, ("numpy", "torch"))
    theta: Array
    if backend == "torch" or (backend is None and type(X).__module__.startswith("torch")):
        import torch

        X = torch.as_tensor(X)
        X = X if X.is_floating_point() else X.double()
        y = torch.as_tensor(y, dtype=X.dtype, device=X.device)
        theta = torch.as_tensor(start, dtype=X.dtype, device=X.device).clone()
    else:
        X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        theta = np.array(start, dtype=np.float64)
    if theta.ndim == 1:
        theta = theta[None, :]
    if X.ndim != 2 or theta.ndim != 2:
        allowed = "(records, p) and (chains, d)"
        why = "one row is one record, one chain"
        raise DescriptionError("X, start", (tuple(X.shape), tuple(theta.shape)), allowed, why)
    return X, y, theta


def _normals_like(
    theta: Array, generator: np.random.Generator
) -> Callable[[tuple[int, int]], Array]:
    if isinstance(theta, np.ndarray):
        # half of a step is spent on noise, and this source is the fastest
        return np.random.Generator(np.random.SFC64(generator.integers(2**63))).standard_normal
    import torch

    source = torch.Generator(device=theta.device)
    source.manual_seed(int(generator.integers(2**63 - 1)))

    def draw(shape: tuple[int, int]) -> Any:
        return torch.randn(shape, generator=source, dtype=theta.dtype, device=theta.device)

    return draw


def _to_numpy(theta: Array) -> Floats:
    if isinstance(theta, np.ndarray):
        return theta
    return np.asarray(theta.detach().cpu().double().numpy())


def _check(
    records: int,
    labels: int,
    steps: int,
    temperature: float,
    clip: float | None,
    burn_in: int,
    thin: int,
) -> None:
    if records == 0:
        raise DescriptionError("X", "empty", "at least one record", "there is no posterior")
    if labels != records:
        raise DescriptionError("y", f"{labels} labels", f"{records}, one a record", "they pair up")
    number("steps", steps, at_least=1)
    number("temperature", temperature, at_least=0)
    if clip is not None:
        number("clip", clip, at_least=SMALLEST, infinite=True)
    number("burn_in", burn_in, at_least=0, below=steps)
    number("thin", thin, at_least=1)
