"""What can be told about a network that Opacus trains, by looking at it.

Opacus tells an accountant nothing about the network. Whether a declared loss can be true depends on
it: only where the output is linear in what is trained is a convex criterion a convex loss, and only
a head that bounds its own inputs keeps gradients short without a clip.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from lastiterate.description import Loss
from lastiterate.errors import AssumptionError, UnsupportedError
from lastiterate.torch.bounded_heads import BoundedSoftmax

_ROOM = 1 + 2.0**-10  # far above what a gradient computed in float32 can be longer
_OPACUS = 1e-6  # what Opacus adds to a norm before it divides by it


def hooked_module(optimizer: Any) -> nn.Module:
    """The network whose parameters this optimizer of Opacus updates.

    The optimizer does not know it; what computes gradients of single records does, and lives as
    long as its hooks. Raises unless there is exactly one.
    """
    from opacus.grad_sample import gsm_base

    kinds: set[type] = set()
    for name in ("AbstractGradSampleModule", "AbstractGradSampleHooks"):
        kinds |= _subclasses(getattr(gsm_base, name, object))
    trained = {id(p) for p in optimizer.params}
    found: dict[int, nn.Module] = {}
    for thing in gc.get_objects():
        if type(thing) in kinds and trained <= {id(p) for p in thing._module.parameters()}:
            found[id(thing._module)] = thing._module
    if len(found) != 1:
        raise UnsupportedError(
            f"{len(found)} networks with the parameters of this optimizer are known to Opacus, so "
            "that nobody can tell which one it trains. Keep what make_private returned, call it "
            "once for every network, and describe the run right after it."
        )
    return found.popitem()[1]


def mixing_layer(module: nn.Module) -> str | None:
    """A layer whose output for one record depends on the others of its batch, if there is one.

    Opacus looks at trained layers alone: a frozen BatchNorm in training mode passes, and moves the
    gradients of a whole batch when one record changes. Its statistics would be released, too.
    """
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._NormBase):
            by_record = isinstance(part, nn.modules.instancenorm._InstanceNorm)
            kept = part.running_mean is not None
            if (part.training and (kept or not by_record)) or not (kept or by_record):
                return f"{name or 'the network'} ({type(part).__name__})"
    return None


def not_linear(module: nn.Module) -> str | None:
    """Why the output is not known to be linear in what is trained; None where it is.

    One linear layer is trained, what comes before it is frozen, and nothing but a change of shape
    comes after it.

    >>> not_linear(nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))
    >>> not_linear(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    '2 of its layers are trained, one on the output of another'
    """
    for part in _path(module):
        if isinstance(part, str):
            return part
    return None


def proved_gradient_norm(module: nn.Module, loss: Loss) -> float:
    """No gradient of cross-entropy on this network is longer; raises where nothing is proved.

    For z = W·x with ‖x‖ ≤ R, which `BoundedSoftmax` sees to, ‖∇‖ = ‖p − e_y‖·‖x‖ ≤ √2·R for every
    W: Opacus does not project, so that the smaller bound inside a ball does not hold.
    """
    *_, last = _path(module)
    if not (
        not_linear(module) is None
        and type(last) is BoundedSoftmax
        and last.weight.dtype in (torch.float32, torch.float64)
    ):
        raise AssumptionError(
            "clipping='none' says that no gradient is ever longer than max_grad_norm, and nothing "
            "about this network proves it: Opacus shortens longer ones, and a clipped step can "
            "drive two runs apart. Leave clipping out ('gradient' is what Opacus does), or train "
            "lastiterate.torch.BoundedSoftmax, which bounds its inputs."
        )
    known = last.regularity()
    assert known.smoothness is not None
    if not loss.convex or loss.strong_convexity or (loss.smoothness or 0.0) < known.smoothness:
        raise AssumptionError(
            f"The declared loss is {loss}, but cross-entropy on this head is {known} and nothing "
            "better. Declare module.regularity()."
        )
    return math.sqrt(2) * last.feature_bound * _ROOM + _OPACUS


def longest_gradient(optimizer: Any) -> float:
    """The norm of the longest gradient of a single record that Opacus is about to clip."""
    each = [g.reshape(len(g), -1) for g in optimizer.grad_samples]
    if not len(each[0]):
        return 0.0
    norms = [torch.linalg.vector_norm(g, dim=1, dtype=torch.float64) for g in each]
    longest = torch.stack([norm.to(norms[0].device) for norm in norms]).norm(dim=0).max()
    return float(longest)


def _subclasses(kind: type) -> set[type]:
    """Itself and what inherits from it; looked up once, as there are many objects to ask."""
    if kind is object:  # an older Opacus has no such class
        return set()
    below: list[type] = type.__subclasses__(kind)
    return {kind}.union(*(_subclasses(each) for each in below))


def _path(module: nn.Module) -> Iterator[nn.Module | str]:
    """From the network down to the layer that is trained; a text where the way is lost."""
    yield _changed(module) or module
    if type(module) is nn.Sequential:
        parts = list(module._modules.values())  # a layer that is used twice counts twice
        trained = [k for k, part in enumerate(parts) if part is not None and _trained(part)]
        if len(trained) != 1:
            yield f"{len(trained)} of its layers are trained, one on the output of another"
            return
        for part in parts[trained[0] + 1 :]:
            if part is None or type(part) not in (nn.Identity, nn.Flatten) or _changed(part):
                yield f"a {type(part).__name__} comes after the layer that is trained"
        below = parts[trained[0]]
        assert below is not None
        yield from _path(below)
    elif type(module) not in (nn.Linear, BoundedSoftmax):
        yield f"a {type(module).__name__} is not known to be linear"


def _trained(module: nn.Module) -> bool:
    return any(p.requires_grad for p in module.parameters())


def _changed(module: nn.Module) -> str | None:
    """Whether something beside its class decides what a module computes."""
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    foreign = [hook for hook in hooks if not str(hook.__module__).startswith("opacus.")]
    if foreign or "forward" in module.__dict__ or not {*module._parameters} <= {"weight", "bias"}:
        return f"a {type(module).__name__} was changed by hooks or other parameters"
    return None
