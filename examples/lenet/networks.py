r"""Many LeNet-5 networks at once, trained by SGLD: the experiment of Heller & Fetaya 2022, section
V and appendix E.

    θ ← θ + (η/2)(−precision·θ − (n/b) Σ_{i in batch} ∇loss_i) + √η·N(0, I),   η = 2b·step/n,

so a batch's summed gradient moves the parameters by ``step`` (Heller & Fetaya's "effective" rate).
All models lie in one buffer, every layer is one batched matrix product over all of them, and the
gradient is added to the weights inside the product that computes it. On a GPU one step is one CUDA
graph. Needs NumPy and PyTorch alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from lastiterate.errors import AssumptionError, DescriptionError
from lenet import kernels
from lenet.graphs import recorded

Tensor = Any

SHAPES = {
    "w1": (6, 25),
    "b1": (6,),
    "w2": (16, 150),
    "b2": (16,),
    "w3": (120, 400),
    "b3": (120,),
    "w4": (84, 120),
    "b4": (84,),
    "w5": (10, 84),
    "b5": (10,),
}
FAN_IN = {"1": 25, "2": 150, "3": 400, "4": 120, "5": 84}
PARAMETERS = sum(math.prod(shape) for shape in SHAPES.values())  # 61,706, as published
_ALIGN = 32  # numbers: every weight of every model starts on a boundary that kernels like


class LeNets:
    """The parameters of ``models`` networks, in one buffer; ``p[name]`` is (models, *shape)."""

    def __init__(self, models: int, device: Any, dtype: Any) -> None:
        offsets, end = {}, 0
        for name, shape in SHAPES.items():
            offsets[name] = end
            end += -(-math.prod(shape) // _ALIGN) * _ALIGN
        self.models = models
        self.flat: Tensor = torch.zeros((models, end), device=device, dtype=dtype)
        self.p = {
            name: self.flat[:, offsets[name] : offsets[name] + math.prod(shape)].view(
                models, *shape
            )
            for name, shape in SHAPES.items()
        }

    def initialise(self, seeds: Sequence[int]) -> None:
        """Uniform on ±1/√(fan-in), from each model's own seed: the data has no say."""
        for m, seed in enumerate(seeds):
            generator = np.random.Generator(np.random.SFC64(seed))
            for name, shape in SHAPES.items():
                bound = 1 / math.sqrt(FAN_IN[name[1]])
                start = generator.uniform(-bound, bound, shape)
                self.p[name][m] = torch.as_tensor(start, dtype=self.flat.dtype)


def forward(p: dict[str, Tensor], x: Tensor) -> dict[str, Tensor]:
    """All activations for x of shape (models, batch, 28, 28): conv, tanh, average pool, twice;
    then three full layers.
    """
    M, B = x.shape[:2]
    cols1 = _patches(functional.pad(x, (2, 2, 2, 2))[:, None]).reshape(M, 25, B * 784)
    h1 = torch.baddbmm(p["b1"][:, :, None], p["w1"], cols1).tanh_()
    pool1 = functional.avg_pool2d(h1.view(M, 6 * B, 28, 28), 2).view(M, 6, B, 14, 14)
    cols2 = _patches(pool1).reshape(M, 150, B * 100)
    h2 = torch.baddbmm(p["b2"][:, :, None], p["w2"], cols2).tanh_()
    pool2 = functional.avg_pool2d(h2.view(M, 16 * B, 10, 10), 2).view(M, 16, B, 25)
    a2 = pool2.transpose(1, 2).reshape(M, B, 400)
    return {"cols1": cols1, "h1": h1, "cols2": cols2, "h2": h2, **_full_layers(p, a2)}


def _full_layers(p: dict[str, Tensor], a2: Tensor) -> dict[str, Tensor]:
    a3 = torch.baddbmm(p["b3"][:, None], a2, p["w3"].mT).tanh_()
    a4 = torch.baddbmm(p["b4"][:, None], a3, p["w4"].mT).tanh_()
    logits = torch.baddbmm(p["b5"][:, None], a4, p["w5"].mT)
    return {"a2": a2, "a3": a3, "a4": a4, "logits": logits}


def descend(
    p: dict[str, Tensor], x: Tensor, labels: Tensor, step: float, clip: float | None = None
) -> None:
    """p ← p − step·Σ_{i in batch} ∇ cross-entropy, in place; with ``clip`` each record's gradient
    is first divided by max(1, norm/clip) (Heller & Fetaya 2022, eq. (66)).
    """
    M, B = x.shape[:2]
    a = forward(p, x)
    d5, d4, d3, slope = _full_slopes(p, a, labels)
    d2 = slope.view(M, B, 16, 25).transpose(1, 2)
    d2 = _unpooled(d2.reshape(M, 16, B, 5, 5), a["h2"].view(M, 16, B, 10, 10))
    d1 = torch.bmm(p["w2"].mT, d2.view(M, 16, B * 100)).view(M, 6, 5, 5, B, 10, 10)
    d1 = _unpooled(_folded(d1, (M, 6, B, 14, 14)), a["h1"].view(M, 6, B, 28, 28))
    if clip is not None:
        square = _full_squares(a, (d3, d4, d5)) + _convolution_squares(a, (d1, d2))
        scale = clip / square.sqrt().clamp(min=clip)
        d5, d4, d3 = (d * scale[:, :, None] for d in (d5, d4, d3))
        d2, d1 = (d * scale[:, None, :, None, None] for d in (d2, d1))
    _full_updates(p, a, (d3, d4, d5), step)
    for name, d, entry in (("1", d1, "cols1"), ("2", d2, "cols2")):
        flat = d.view(M, d.shape[1], -1)
        p["w" + name].baddbmm_(flat, a[entry].mT, alpha=-step)
        p["b" + name].sub_(flat.sum(2), alpha=step)


def descend_fused(
    p: dict[str, Tensor],
    images: Tensor,
    rows: Tensor,
    labels: Tensor,
    step: float,
    clip: float | None = None,
) -> None:
    """`descend` on ``images[rows]``, ``labels[rows]`` with the Triton kernels (float32)."""
    first, a2 = kernels.convolved(p, images, rows)
    a = _full_layers(p, a2)
    d5, d4, d3, slope = _full_slopes(p, a, labels[rows])
    each = kernels.convolution_gradients(p, images, rows, first, slope)
    if clip is None:
        totals = [g.sum(1) for g in each]
    else:
        square = _full_squares(a, (d3, d4, d5)) + sum((g * g).sum(-1) for g in each)
        scale = (clip / square.sqrt().clamp(min=clip))[:, :, None]
        d5, d4, d3 = (d * scale for d in (d5, d4, d3))
        totals = [(g * scale).sum(1) for g in each]
    _full_updates(p, a, (d3, d4, d5), step)
    for name, total in zip("12", totals, strict=True):
        w, b = p["w" + name], p["b" + name]
        w.sub_(total[:, : -b.shape[1]].view_as(w), alpha=step)
        b.sub_(total[:, -b.shape[1] :], alpha=step)


def _full_slopes(p: dict[str, Tensor], a: dict[str, Tensor], labels: Tensor) -> tuple[Tensor, ...]:
    """Slopes of the full layers' sums, last layer first, and of what enters them."""
    classes = torch.arange(10, device=labels.device)
    d5 = torch.softmax(a["logits"], -1) - (labels[:, :, None] == classes).to(a["logits"].dtype)
    d4 = torch.bmm(d5, p["w5"]) * (1 - a["a4"] ** 2)
    d3 = torch.bmm(d4, p["w4"]) * (1 - a["a3"] ** 2)
    return d5, d4, d3, torch.bmm(d3, p["w3"])


def _full_updates(
    p: dict[str, Tensor], a: dict[str, Tensor], slopes: tuple[Tensor, ...], step: float
) -> None:
    for name, d, entry in zip("345", slopes, ("a2", "a3", "a4"), strict=True):
        p["w" + name].baddbmm_(d.mT, a[entry], alpha=-step)
        p["b" + name].sub_(d.sum(1), alpha=step)


def _patches(x: Tensor) -> Tensor:
    """(M, C, B, H, W) -> windows of 5 x 5: (M, C, 5, 5, B, H-4, W-4); a view."""
    return x.unfold(3, 5, 1).unfold(4, 5, 1).permute(0, 1, 5, 6, 2, 3, 4)


def _folded(d: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The transpose of `_patches`: windows are added up where they overlap."""
    rows = _fold_axis(d.permute(0, 1, 4, 5, 6, 3, 2), 3, shape[3])
    return _fold_axis(rows, 4, shape[4])


def _fold_axis(d: Tensor, axis: int, length: int) -> Tensor:
    """Adds windows of one axis (the last one) back in place."""
    sizes = list(d.shape[:-1])
    sizes[axis] = length
    return torch.ops.aten.unfold_backward(d, sizes, axis, 5, 1)


def _unpooled(d: Tensor, h: Tensor) -> Tensor:
    """Back through average pooling and tanh: d is (..., H, W), h is (..., 2H, 2W)."""
    H, W = d.shape[-2:]
    fine = (1 - h * h).view(*h.shape[:-2], H, 2, W, 2)
    return (fine * (d / 4)[..., :, None, :, None]).view(h.shape)


def _full_squares(a: dict[str, Tensor], slopes: tuple[Tensor, ...]) -> Tensor:
    """Σ of the squares of every record's gradient in the full layers, (M, B).

    A full layer's gradient is an outer product: its norm is the product of two norms.
    """
    pairs = zip(slopes, ("a2", "a3", "a4"), strict=True)
    found = [(d * d).sum(-1) * ((a[entry] ** 2).sum(-1) + 1) for d, entry in pairs]
    return torch.stack(found).sum(0)


def _convolution_squares(a: dict[str, Tensor], slopes: tuple[Tensor, ...]) -> Tensor:
    """The same of the convolutions."""
    total: Tensor = 0.0
    for d, entry in zip(slopes, ("cols1", "cols2"), strict=True):
        M, C, B = d.shape[:3]
        each = d.reshape(M, C, B, -1).transpose(1, 2)
        cols = a[entry].view(M, -1, B, each.shape[-1]).transpose(1, 2)
        total = total + torch.matmul(each, cols.mT).pow(2).sum((2, 3)) + each.sum(3).pow(2).sum(2)
    return total


class LeNetSGLD:
    """Trains cohorts of LeNet-5 networks; a dataset is (images, labels), 28 x 28 pixels in [0, 1].

    What it returns per model are class probabilities at the probes, observed several times:
    (looks, probes, 10). Give `audit` a ``score`` that picks features from them.

    Args:
        probes: images at which the models are observed.
        steps: updates.
        every: updates between two observations (an epoch); the last one is always observed.
        step: Heller & Fetaya's effective rate, on the summed gradient of a batch.
        batch: records of each update, a fresh uniform subset per model. (Heller & Fetaya draws with
            replacement, which differs in one batch of ten thousand; subsets are in the ledger.)
        clip: bound on each record's gradient (appendix E), or None.
        prior_precision: of the Gaussian prior.
        noise: standard deviation per update; None: √η, which makes it SGLD.
        device: None: the GPU if there is one.
        dtype: of the parameters.
    """

    def __init__(
        self,
        probes: Any,
        *,
        steps: int,
        every: int | None = None,
        step: float = 0.001,
        batch: int = 4,
        clip: float | None = None,
        prior_precision: float = 1.0,
        noise: float | None = None,
        device: Any = None,
        dtype: Any = torch.float32,
    ) -> None:
        for name, value in (("steps", steps), ("batch", batch)):
            if value < 1:
                raise DescriptionError(name, value, "at least 1", "the networks must be trained")
        self.probes = np.asarray(probes, np.float32).reshape(-1, 28, 28)
        self.steps, self.every = steps, every or steps
        self.step, self.batch, self.clip = step, batch, clip
        self.prior_precision, self.noise = prior_precision, noise
        self.device, self.dtype = device, dtype

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "dtype": str(self.dtype).removeprefix("torch.")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, dtype=getattr(torch, state["dtype"]))

    def __call__(self, dataset: Any, seed: int) -> Any:
        """One model's probabilities."""
        return self.cohort(dataset, [seed])[0]

    def cohort(self, dataset: Any, seeds: Sequence[int]) -> Any:
        """(models, looks, probes, 10): what the probes showed."""
        looks: list[Any] = []
        self.train(dataset, seeds, lambda nets: looks.append(self.observe(nets)))
        return np.stack(looks, axis=1)

    def train(
        self, dataset: Any, seeds: Sequence[int], watch: Callable[[LeNets], None] | None = None
    ) -> LeNets:
        """Train and return the networks; ``watch`` sees them after every ``every`` updates."""
        device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        images = torch.as_tensor(np.asarray(dataset[0]), device=device).to(self.dtype)
        images = images.reshape(-1, 28, 28)
        labels = torch.as_tensor(np.asarray(dataset[1]), device=device).long()
        nets = LeNets(len(seeds), device, self.dtype)
        nets.initialise(seeds)
        update = self.update(nets, images, labels, seeds[0])
        for k in range(1, self.steps + 1):
            update()
            if watch is not None and (k % self.every == 0 or k == self.steps):
                watch(nets)
        if not bool(torch.isfinite(nets.flat).all()):
            raise AssumptionError("Networks diverged: use a smaller step.")
        return nets

    def update(self, nets: LeNets, images: Tensor, labels: Tensor, seed: int) -> Callable[[], None]:
        """One simultaneous update of all networks, as a function; a CUDA graph on a GPU."""
        n = len(images)
        eta = 2 * self.batch * self.step / n
        noise = math.sqrt(eta) if self.noise is None else self.noise
        shrink = 1 - eta / 2 * self.prior_precision
        cuda = nets.flat.is_cuda
        if cuda and kernels.AVAILABLE and self.dtype == torch.float32:
            return self._fused_update(nets, images, labels, seed, shrink, noise)
        draws = torch.empty_like(nets.flat)
        # On a GPU the default generator, which a graph advances; elsewhere a private one.
        generator = None if cuda else torch.Generator(device=nets.flat.device).manual_seed(seed)

        def update() -> None:
            rows = subsets(n, nets.models, self.batch, images.device, generator)
            descend(nets.p, images[rows], labels[rows], self.step, self.clip)
            draws.normal_(0.0, noise, generator=generator)
            torch.add(draws, nets.flat, alpha=shrink, out=nets.flat)

        return recorded(update, [nets.flat], seed, tf32=True) if cuda else update

    def _fused_update(
        self, nets: LeNets, images: Tensor, labels: Tensor, seed: int, shrink: float, noise: float
    ) -> Callable[[], None]:
        images = images.contiguous()
        counter = torch.tensor(seed, dtype=torch.int64, device=images.device)

        def update() -> None:
            rows = subsets(len(images), nets.models, self.batch, images.device)
            descend_fused(nets.p, images, rows, labels, self.step, self.clip)
            kernels.shrink_and_shake(nets.flat, shrink, noise, counter)

        return recorded(update, [nets.flat, counter], seed, tf32=True)

    def description(self, records: int) -> Any:
        """The clipped run on so many records, for the accountant (with ``Loss.unknown``)."""
        from lastiterate.description import Training, WithoutReplacement

        if self.clip is None:
            raise AssumptionError(
                "Without clipping nothing bounds a record's gradient: there is no description to "
                "account. Give clip=."
            )
        eta = 2 * self.batch * self.step / records
        return Training(
            records=records,
            steps=self.steps,
            step_size=self.batch * self.step,
            noise=math.sqrt(eta) if self.noise is None else self.noise,
            gradient_norm=self.clip,
            batches=WithoutReplacement(self.batch),
            clipping="gradient",
            adjacency="replace",
        )

    def observe(self, nets: LeNets) -> Any:
        """Class probabilities of all models at the probes: (models, probes, 10)."""
        x = torch.as_tensor(self.probes, device=nets.flat.device).to(nets.flat.dtype)
        return probabilities(nets, x).double().cpu().numpy()


def subsets(n: int, models: int, size: int, device: Any, generator: Any = None) -> Tensor:
    """For each model a uniform subset of ``size`` of 0, ..., n − 1 (Floyd's algorithm)."""
    if size > n:
        raise DescriptionError("batch", size, f"at most {n}", "a batch holds distinct records")
    low = n - size
    limits = torch.arange(low + 1, n + 1, device=device)
    # The remainder of a 62-bit number is uniform to 1e-14 for any n that fits a machine.
    draws = torch.randint(1 << 62, (models, size), device=device, generator=generator) % limits
    for j in range(1, size):
        taken = (draws[:, :j] == draws[:, j : j + 1]).any(1)
        draws[:, j] = torch.where(taken, low + j, draws[:, j])
    return draws


def probabilities(nets: LeNets, x: Tensor) -> Tensor:
    """Class probabilities of all models at the same images."""
    logits = forward(nets.p, x[None].expand(nets.models, *x.shape))["logits"]
    return torch.softmax(logits, -1)
