"""What a network computes of a record is the same, to the last bit, in every batch."""

from __future__ import annotations

import copy
import functools
import warnings
from itertools import count
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastiterate import Cyclic, FullBatch, Loss, Poisson, Training, account
from lastiterate.curves import gaussian
from lastiterate.errors import UnsupportedError
from lastiterate.train.norms import lengths
from lastiterate.train.record_places import placed

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from lastiterate.torch import noisy_module_descent  # noqa: E402
from lastiterate.torch.module_gradients import ModuleGradients  # noqa: E402
from lastiterate.torch.opacus_gradients import OpacusGradients  # noqa: E402

N = 200


def describe(records=N, batches=None, **changes):
    settings = {
        "records": records,
        "steps": 1,
        "step_size": 1.0,
        "noise": 0.01,
        "gradient_norm": 1.0,
        "clipping": "gradient",
        "batches": Poisson(0.25) if batches is None else batches,
        "adjacency": "zero-out",
    }
    return Training(**{"adjacency": "replace", **settings, **changes})


class Words(nn.Module):
    """Embeddings, optionally attention, a mean over the words and a head."""

    def __init__(self, attention=False):
        super().__init__()
        self.words, self.norm = nn.Embedding(40, 16), nn.LayerNorm(16)
        self.mix = (
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
            if attention
            else nn.Identity()
        )
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.mix(self.norm(self.words(x))).mean(1))


class Tied(nn.Module):
    """One weight, used forwards and backwards."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(37, 37), nn.Linear(37, 37)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.full((37,), 0.5))

    def forward(self, x):
        return self.second(torch.tanh(self.first(x * self.scale)))[:, :3]


def steep(out, y):
    """Cross-entropy plus the squared length of its own gradient: a double backward pass."""

    def entropy(z):
        return nn.functional.cross_entropy(z, y)

    return entropy(out) + torch.func.grad(entropy)(out).square().sum()


def network(which):
    """A network, its inputs and its loss."""
    torch.manual_seed(3)
    entropy = nn.CrossEntropyLoss()
    images, flat = torch.randn(N, 2, 9, 9), torch.randn(N, 57)
    if which == "linear":
        return nn.Linear(57, 3), flat, entropy
    if which == "convolutions":
        parts = [nn.Conv2d(2, 8, 3, stride=2), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten()]
        return nn.Sequential(*parts, nn.Linear(128, 3)), images, entropy
    if which == "channels last":
        net = nn.Sequential(nn.Conv2d(2, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(392, 3))
        last = torch.channels_last
        return net.to(memory_format=last), images.to(memory_format=last), entropy
    if which in ("words", "attention"):
        return Words(which == "attention"), torch.randint(0, 40, (N, 7)), entropy
    if which == "tied":
        return Tied(), torch.randn(N, 37), entropy
    norm = nn.BatchNorm1d(129) if which == "frozen statistics" else nn.LayerNorm(129)
    net = nn.Sequential(nn.Linear(57, 129), norm, nn.GELU(), nn.Linear(129, 3))
    if which == "doubles":
        return net.double(), flat.double(), entropy
    return net, flat, steep if which == "double backward" else entropy


KINDS = [
    "linear",
    "convolutions",
    "channels last",
    "words",
    "attention",
    "tied",
    "layernorm",
    "doubles",
    "double backward",
]


def differing(gradients, batches):
    """Records whose gradient or norm differs between two of these batches."""
    theta, seen, found = gradients.vector(), {}, set()
    for batch in batches:
        each, norms = gradients.per_record(theta, torch.as_tensor(batch))
        each, norms = each.detach().cpu(), norms.cpu()
        for i, row, norm in zip(batch.tolist(), each, norms, strict=True):
            bits = row.numpy().tobytes(), norm.numpy().tobytes()
            if seen.setdefault(i, bits) != bits:
                found.add(i)
    return found


def several_batches():
    rng = np.random.default_rng(1)
    some = np.flatnonzero(rng.random(N) < 0.3)
    return [some, some[1:], np.r_[some, N - 1], rng.permutation(some), np.arange(N), some[-1:]]


@pytest.mark.parametrize("how", ["func", "hooks"])
@pytest.mark.parametrize("which", KINDS)
def test_a_gradient_is_the_same_whoever_shares_the_batch(which, how):
    net, inputs, loss = network(which)
    gradients = ModuleGradients(net, loss, inputs, torch.arange(N) % 3, describe())
    if how == "hooks":
        pytest.importorskip("opacus")
        from lastiterate.torch.opacus_gradients import OpacusGradients

        if which in ("attention", "tied", "channels last"):
            pytest.skip("Opacus has no hooks for it, or is refused")
        gradients = OpacusGradients(gradients, ghost=False)
    gradients.check_independence()
    assert not differing(gradients, several_batches())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("which", KINDS)
def test_so_it_is_on_a_gpu(which):
    net, inputs, loss = network(which)
    net, inputs, targets = net.cuda(), inputs.cuda(), (torch.arange(N) % 3).cuda()
    gradients = ModuleGradients(net, loss, inputs, targets, describe())
    gradients.check_independence()
    assert not differing(gradients, several_batches())


class Lowered(nn.Module):
    """Computes in fewer bits."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(57, 129), nn.Linear(129, 3)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self.second(torch.relu(self.first(x))).float()


def test_so_it_is_under_autocast():
    _, inputs, loss = network("linear")
    gradients = ModuleGradients(Lowered(), loss, inputs, torch.arange(N) % 3, describe())
    gradients.check_independence()
    assert not differing(gradients, several_batches())


@pytest.mark.parametrize("per_record", ["func", "hooks"])
def test_under_autocast_gradients_are_those_of_the_present_parameters(per_record):
    """Autocast keeps weights that it rounded: every update had the gradient of the start."""
    if per_record == "hooks":
        pytest.importorskip("opacus")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(57, 8), nn.Tanh(), nn.Linear(8, 3))
    given = (net, nn.CrossEntropyLoss(), torch.randn(N, 57), torch.arange(N) % 3, describe())
    gradients = ModuleGradients(*given)
    if per_record == "hooks":
        gradients = OpacusGradients(gradients, ghost=False)
    start, index = gradients.vector(), torch.arange(20)
    later = start + torch.randn_like(start)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        before = gradients.per_record(start, index)[0].clone()
        after = gradients.per_record(later, index)[0].clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(gradients.per_record(later, index)[0], after)
    assert float((after - before).norm()) > 1.0


def test_rows_of_extreme_length_change_no_other_norm():
    net, inputs, loss = network("linear")
    inputs[::7] *= 1e30
    inputs[3::7] *= 0
    gradients = ModuleGradients(net, loss, inputs, torch.arange(N) % 3, describe())
    assert not differing(gradients, several_batches())


# --- the truth -----------------------------------------------------------------------------------


class Sharp(nn.Module):
    """Its gradient is the sine of a large multiple of products that round."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(57, 129), nn.Linear(129, 10)
        self.requires_grad_(False)
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return torch.sin(2.0**24 * self.second(torch.tanh(self.first(x)))[:, 0]) * self.weight


@pytest.mark.parametrize("chunk", [None, 256, 64, 1])
def test_the_certified_delta_holds_where_gradients_amplify_what_is_rounded(chunk):
    """One Poisson step with all records, with and without the first: the law is exact.

    Where the others move to other places of the product with the record left out, their gradients
    change, and the sum moved by 4.4 clips instead of one.
    """
    torch.manual_seed(1)
    records = 256
    inputs, targets = torch.randn(records, 57), torch.zeros(records)
    run = describe(records, Poisson(1.0), noise=1.0 / records)
    gradients = ModuleGradients(Sharp(), lambda out, y: out.sum(), inputs, targets, run, chunk)
    theta = gradients.vector()
    here = gradients.total(theta, np.arange(records))
    gone = gradients.total(theta, np.arange(1, records))
    arithmetic = gradients.arithmetic(1)
    moved = run.step_size * float((here - gone).norm()) / records
    certified = account(run.replace(arithmetic=arithmetic), Loss.unknown())
    for epsilon in (0.0, 0.5, 2.0):
        truth = gaussian.delta(moved / run.noise, epsilon)
        assert certified.delta(epsilon) >= truth


# --- what is refused -----------------------------------------------------------------------------


class Drawn(nn.Module):
    """Adds a random number to what it sees."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(57, 3)

    def forward(self, x):
        return self.head(x + torch.randn_like(x))


class Centred(nn.Module):
    """Subtracts a little of the mean of the batch."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(57, 3)

    def forward(self, x):
        return self.head(x - 1e-6 * x.mean(0, keepdim=True))


class Remembering(nn.Module):
    """Subtracts a little of what it saw before; torch.func itself refuses writing in place."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(57, 3)
        self.register_buffer("mean", torch.zeros(57))

    def forward(self, x):
        out = self.head(x - 1e-6 * self.mean)
        self.mean = x.detach().mean(0)
        return out


@pytest.mark.parametrize("make", [lambda: nn.Sequential(nn.Dropout(), nn.Linear(57, 3)), Drawn])
@pytest.mark.parametrize("batches", [FullBatch(), Poisson(0.25)])
def test_random_layers_are_refused(make, batches):
    _, inputs, loss = network("linear")
    run = describe(batches=batches)
    with pytest.raises(UnsupportedError, match="to the last bit"):
        noisy_module_descent(make(), loss, inputs, torch.arange(N) % 3, run)
    noisy_module_descent(
        nn.Sequential(nn.Dropout(), nn.Linear(57, 3)).eval(),
        loss,
        inputs,
        torch.arange(N) % 3,
        run,
    )


class Spectral(nn.Sequential):
    """Its weight is divided by an estimate that every pass makes better: a state."""

    def __init__(self):
        super().__init__(nn.utils.parametrizations.spectral_norm(nn.Linear(57, 3)))


def test_a_layer_with_a_state_is_refused():
    _, inputs, loss = network("linear")
    with pytest.raises(UnsupportedError, match="to the last bit"):
        noisy_module_descent(Spectral(), loss, inputs, torch.arange(N) % 3, describe())


def test_labels_and_words_of_any_range_pass_the_check():
    """What is made up must be allowed: classes from 1 on, words without an embedding."""

    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.randn(9, 3))

        def forward(self, x):
            return self.table[x - 5].mean(1)

    torch.manual_seed(0)
    done = noisy_module_descent(
        Counted(),
        lambda out, y: nn.functional.cross_entropy(out, y - 1),
        torch.randint(5, 14, (N, 4)),
        torch.arange(N) % 3 + 1,
        describe(),
    )
    assert not done.experiment


class Counting(nn.Module):
    """Acts on how often it was called, from some call on."""

    def __init__(self, where):
        super().__init__()
        self.head, self.where = nn.Linear(57, 3), where
        self.number, self.passes, self.table, self.turns = 0, [], {"passes": 0}, count()

    def forward(self, x):
        match self.where:
            case "number":
                self.number += 1
            case "list":
                self.passes.append(None)
            case "table":
                self.table["passes"] += 1
        calls = max(self.number, len(self.passes), self.table["passes"])
        calls = next(self.turns) if self.where == "iterator" else calls
        return self.head(x) * (2.0 if calls > 50 else 1.0)


@pytest.mark.parametrize("per_record", ["func", "hooks"])
@pytest.mark.parametrize("where", ["number", "list", "table", "iterator"])
def test_a_layer_that_counts_its_calls_is_refused(where, per_record):
    """How many chunks there were depends on who was in earlier batches."""
    if per_record == "hooks":
        pytest.importorskip("opacus")
    _, inputs, loss = network("linear")
    given = (loss, inputs, torch.arange(N) % 3, describe())
    with pytest.raises(UnsupportedError, match="remembers"):
        noisy_module_descent(Counting(where), *given, per_record=per_record)


def counted(where):
    """A network, and a loss that doubles from the 51st call on; who counts is ``where``."""
    passes, net = [], nn.Sequential(nn.Linear(57, 3))

    def factor():
        passes.append(None)
        return 2.0 if len(passes) > 50 else 1.0

    class Loss(nn.CrossEntropyLoss):
        calls = 0

        def forward(self, out, y):
            self.calls += 1
            return super().forward(out, y) * (2.0 if self.calls > 50 else 1.0)

        def method(self, out, y):
            return self.forward(out, y)

    def with_argument(kept, out, y):
        kept.append(None)
        return nn.functional.cross_entropy(out, y) * (2.0 if len(kept) > 50 else 1.0)

    losses = {
        "closure": lambda out, y: factor() * nn.functional.cross_entropy(out, y),
        "module": Loss(),
        "method": Loss().method,
        "argument": functools.partial(with_argument, []),
        "default": lambda out, y, kept=[]: with_argument(kept, out, y),
        "global": lambda out, y: with_argument(CALLS, out, y),
    }
    if where == "hook":
        net[0].register_forward_hook(lambda layer, x, out: factor() * out)
    return net, losses.get(where, nn.CrossEntropyLoss())


CALLS: list[None] = []


@pytest.mark.parametrize("per_record", ["func", "hooks"])
@pytest.mark.parametrize(
    "where", ["closure", "module", "method", "argument", "default", "global", "hook"]
)
def test_a_loss_or_a_hook_that_counts_its_calls_is_refused(where, per_record):
    """As a layer that counts: it knows how many chunks earlier batches had."""
    if per_record == "hooks":
        pytest.importorskip("opacus")
    _, inputs, _ = network("linear")
    net, loss = counted(where)
    given = (inputs, torch.arange(N) % 3, describe())
    with pytest.raises(UnsupportedError, match="remembers"):
        noisy_module_descent(net, loss, *given, per_record=per_record)


WEIGHTS = torch.tensor([1.0, 2.0, 3.0])


def test_losses_that_keep_what_they_are_given_are_accepted():
    """Weights, a settings object and a network that is captured do not change in a call."""
    _, inputs, _ = network("linear")
    net, settings = nn.Linear(57, 3), {"label_smoothing": 0.1}

    def loss(out, y, *, weight=WEIGHTS):
        penalty = sum(p.square().sum() for p in net.parameters())
        return nn.functional.cross_entropy(out, y, weight, **settings) + 1e-3 * penalty

    done = noisy_module_descent(net, loss, inputs, torch.arange(N) % 3, describe())
    assert not done.experiment


class Everywhere(nn.Module):
    """Attention whose sequence is the batch, if there is one."""

    def __init__(self):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(3, 1), nn.Linear(57, 3)

    def forward(self, x):
        words = x.reshape(len(x), 19, 3)
        return self.head(self.attention(words, words, words)[0].reshape(len(x), 57))


class Buffered(nn.Module):
    """Counts its calls in a buffer, or in a parameter that is not trained."""

    def __init__(self, frozen):
        super().__init__()
        self.head = nn.Linear(57, 3)
        if frozen:
            self.calls = nn.Parameter(torch.zeros(()), requires_grad=False)
        else:
            self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.head(x) * (1 + (self.calls > 50).float())


ODD = {
    "attention across": Everywhere,
    "group norm": lambda: nn.Sequential(
        nn.Unflatten(1, (3, 19)), nn.GroupNorm(3, 3), nn.Flatten(), nn.Linear(57, 3)
    ),
    "no dropout": lambda: nn.Sequential(nn.Dropout(0.0), nn.Linear(57, 3)),
    "weight norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(57, 3))),
    "compiled": lambda: torch.compile(nn.Sequential(nn.Linear(57, 3)), backend="eager"),
    "buffer": lambda: Buffered(frozen=False),
    "frozen parameter": lambda: Buffered(frozen=True),
    "batch norm": lambda: nn.Sequential(nn.BatchNorm1d(57), nn.Linear(57, 3)).eval(),
    "scripted": lambda: torch.jit.script(nn.Linear(57, 3)),
    "frequent words": lambda: words_of(scale_grad_by_freq=True),
    "sparse words": lambda: words_of(sparse=True),
    "no word": lambda: words_of(padding_idx=0),
    "bag": lambda: nn.Sequential(nn.EmbeddingBag(40, 3), nn.Linear(3, 3)),
}


ACCEPTED = {
    "func": {
        *("attention across", "group norm", "no dropout", "weight norm", "compiled"),
        *("frequent words", "no word", "bag"),
    },
    "hooks": {"group norm", "weight norm", "compiled"},
}


def words_of(**settings):
    return nn.Sequential(nn.Embedding(40, 3, **settings), nn.Flatten(), nn.Linear(21, 3))


@pytest.mark.parametrize("per_record", ["func", "hooks"])
@pytest.mark.parametrize("which", ODD)
def test_odd_networks_are_refused_or_their_gradients_are_of_single_records(which, per_record):
    """What is accepted has the gradient of every record by itself; the rest raises before it."""
    if per_record == "hooks":
        pytest.importorskip("opacus")
    torch.manual_seed(3)
    net = ODD[which]().train(which != "batch norm")
    text = "word" in which or which == "bag"
    inputs = torch.randint(0, 40, (N, 7)) if text else torch.randn(N, 57)
    labels, loss = torch.arange(N) % 3, nn.CrossEntropyLoss()
    alone = copy.deepcopy(net)
    try:
        plain = ModuleGradients(net, loss, inputs, labels, describe())
        found = plain if per_record == "func" else OpacusGradients(plain, ghost=False)
        found.check_independence()
    except (UnsupportedError, RuntimeError, AssertionError):  # of torch.func or Opacus itself
        assert which not in ACCEPTED[per_record]
        return
    assert which in ACCEPTED[per_record]
    index = torch.tensor([5, 0, 17, 3])
    each, _ = found.per_record(found.vector(), index)
    for row, record in zip(each, index.tolist(), strict=True):
        alone.zero_grad()
        loss(alone(inputs[record : record + 1]), labels[record : record + 1]).backward()
        trained = [p for p in alone.parameters() if p.requires_grad]
        expected = torch.cat([p.grad.reshape(-1) for p in trained])
        torch.testing.assert_close(row, expected, rtol=1e-4, atol=1e-6)


class Centring(nn.Module):
    """Subtracts a little of the mean of what is above a threshold."""

    def __init__(self, threshold):
        super().__init__()
        self.head, self.threshold = nn.Linear(57, 3), threshold

    def forward(self, x):
        x = x.float()
        return self.head(x - 1e-6 * (x * (x.abs() > self.threshold)).mean(0, keepdim=True))


@pytest.mark.parametrize(
    ("dtype", "threshold", "says"),
    [
        (torch.float32, 10, "to the last bit"),
        (torch.uint8, 0, "to the last bit"),
        (torch.int16, 0, "to the last bit"),
        (torch.int32, 0, "floats"),
        (torch.int64, 0, "floats"),
    ],
)
def test_hooks_of_layers_that_mix_far_or_whole_numbers_are_refused(dtype, threshold, says):
    pytest.importorskip("opacus")
    inputs = torch.randint(0, 100, (N, 57)).to(dtype)
    told = (nn.CrossEntropyLoss(), inputs, torch.arange(N) % 3, describe())
    with pytest.raises(UnsupportedError, match=says):
        noisy_module_descent(Centring(threshold), *told, per_record="hooks")


class Asking(nn.Linear):
    """Notes which kernels PyTorch was to take; in the class, as layers may keep no state."""

    seen: ClassVar[list[bool]] = []

    def forward(self, x):
        cudnn = torch.backends.cudnn
        told = torch.are_deterministic_algorithms_enabled()
        self.seen.append(told and cudnn.deterministic and not cudnn.benchmark)
        return super().forward(x)


def test_kernels_always_round_alike_and_the_settings_come_back():
    """One that adds in any order passed the check by chance and then did not repeat itself."""
    _, inputs, loss = network("linear")
    net = Asking(57, 3)
    Asking.seen.clear()
    torch.backends.cudnn.benchmark = True
    try:
        noisy_module_descent(net, loss, inputs, torch.arange(N) % 3, describe())
        assert torch.backends.cudnn.benchmark
    finally:
        torch.backends.cudnn.benchmark = False
    assert len(net.seen) > 4
    assert all(net.seen)
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_kernel_that_cannot_repeat_itself_is_refused(monkeypatch):
    _, inputs, loss = network("linear")

    def forward(self, x):
        warnings.warn("add_cuda does not have a deterministic implementation", stacklevel=1)
        return x @ self.weight.T

    monkeypatch.setattr(nn.Linear, "forward", forward)
    with pytest.raises(UnsupportedError, match="to the last bit"):
        noisy_module_descent(nn.Linear(57, 3), loss, inputs, torch.arange(N) % 3, describe())


@pytest.mark.parametrize("make", [Centred, Remembering])
def test_layers_that_mix_a_little_are_refused_with_hooks(make):
    """Opacus' clipped gradients differ from those of single records by less than is compared."""
    pytest.importorskip("opacus")
    _, inputs, loss = network("linear")
    told = (loss, inputs, torch.arange(N) % 3, describe())
    with pytest.raises(UnsupportedError, match="to the last bit"):
        noisy_module_descent(make(), *told, per_record="hooks")


def test_the_check_sees_no_record():
    """It draws its inputs from their shape and type alone, so that a refusal tells nothing."""

    net, inputs, loss = network("linear")
    gradients = ModuleGradients(net, loss, inputs, torch.arange(N) % 3, describe())
    shown = []
    compute = gradients.at_once
    gradients.at_once = lambda vector, x, y: (shown.append(x), compute(vector, x, y))[1]
    gradients.check_independence()
    assert shown
    for x in shown:
        assert not torch.isin(x, inputs).any()


# --- places --------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 99), unique=True, max_size=60), st.integers(1, 40))
def test_every_record_comes_once_and_in_its_place(batch, size):
    index, seen = np.array(batch, dtype=np.int64), []
    for at, places, chunk in placed(index, size):
        assert len(chunk) == size
        np.testing.assert_array_equal(chunk[places], index[at])
        np.testing.assert_array_equal(chunk % size, np.arange(size))
        seen += at.tolist()
    assert sorted(seen) == list(range(len(batch)))


def test_numpy_norms_do_not_depend_on_the_place():
    """Gradient functions and JAX are clipped by these."""
    rng = np.random.default_rng(0)
    for columns in (1, 3, 8, 57, 1001):
        rows = rng.standard_normal((64, columns)) * np.exp(rng.uniform(-300, 300, (64, 1)))
        alone = np.concatenate([lengths(rows[k : k + 1]) for k in range(64)])
        for first in range(5):
            np.testing.assert_array_equal(lengths(rows[first:]), alone[first:])


def test_batches_in_order_are_computed_in_one_chunk():
    net, inputs, loss = network("linear")
    run = describe(batches=Cyclic(50))
    gradients = ModuleGradients(net, loss, inputs, torch.arange(N) % 3, run)
    calls = []
    compute = gradients.at_once
    gradients.at_once = lambda *told: (calls.append(1), compute(*told))[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradients.total(gradients.vector(), slice(50, 100))
    assert len(calls) == 1


# --- siblings ------------------------------------------------------------------------------------


class Gated(nn.Module):
    """Adds a mean of the batch, times a weight that is 0 at the start."""

    def __init__(self):
        super().__init__()
        self.head, self.gate = nn.Linear(57, 3), nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.gate.weight)

    def forward(self, x):
        mean = self.gate(self.gate(x.mean().reshape(1, 1)))
        return self.head(x) + mean.expand(len(x), 1)


def test_a_layer_that_mixes_later_than_at_the_start_is_refused():
    """All its gradients at the start are those of single records."""
    pytest.importorskip("opacus")
    from lastiterate.torch.opacus_gradients import OpacusGradients

    _, inputs, loss = network("linear")
    plain = ModuleGradients(Gated(), loss, inputs, torch.arange(N) % 3, describe())
    gradients = OpacusGradients.__new__(OpacusGradients)
    gradients.__dict__.update(plain.__dict__)
    gradients.at_once = lambda vector, x, y: _at_once(plain, vector, x, y)
    gradients._check_at(plain.vector(), *plain._made_up())
    with pytest.raises(UnsupportedError, match="to the last bit"):
        gradients.check_independence()


def _at_once(plain, vector, x, y):
    """Gradients of the losses of one batch that the network sees together."""
    return torch.func.jacrev(
        lambda vector: torch.nn.functional.cross_entropy(
            torch.func.functional_call(plain._module, plain.shaped(vector), (x,)),
            y,
            reduction="none",
        )
    )(vector)


def test_hooks_are_compared_on_made_up_records(monkeypatch):
    """A comparison of the first records was refused where their gradients cancel."""
    pytest.importorskip("opacus")
    from lastiterate.torch.opacus_gradients import OpacusGradients

    net, inputs, loss = network("linear")
    plain = ModuleGradients(net, loss, inputs, torch.arange(N) % 3, describe())
    shown = []
    for kind, name in ((ModuleGradients, "at_once"), (OpacusGradients, "_forward")):
        compute = getattr(kind, name)

        def noted(self, vector, x, y, compute=compute):
            shown.append(x)
            return compute(self, vector, x, y)

        monkeypatch.setattr(kind, name, noted)
    OpacusGradients(plain, ghost=False)
    assert len(shown) == 2
    assert not any(torch.isin(x, inputs).any() for x in shown)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Embedding(40, 3, max_norm=1.0), nn.Flatten(), nn.Linear(21, 3)),
        lambda: nn.Sequential(
            nn.Embedding(40, 3), nn.InstanceNorm1d(7, track_running_stats=True), nn.Flatten()
        ),
        lambda: nn.Sequential(nn.Embedding(40, 3), nn.SyncBatchNorm(7), nn.Flatten()),
    ],
)
def test_layers_that_learn_from_a_batch_are_refused_by_name(make):
    words = torch.randint(0, 40, (N, 7))
    told = (nn.CrossEntropyLoss(), words, torch.arange(N) % 3, describe())
    for per_record in ("func", "hooks"):
        with pytest.raises(UnsupportedError, match=r"max_norm|mixes the records"):
            noisy_module_descent(make(), *told, per_record=per_record)
