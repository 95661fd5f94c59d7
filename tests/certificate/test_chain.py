"""Chains: runs that go on from released models, what they say, and everything that breaks them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from lastiterate import (
    AssumptionError,
    Certificate,
    CertificateChain,
    CertificateError,
    Cyclic,
    DescriptionError,
    FullBatch,
    LifetimeBudget,
    LifetimeBudgetError,
    Loss,
    Poisson,
    PrivacyUnit,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    UnsupportedError,
    account,
    certify,
    compose,
    verify,
)
from lastiterate._internal.formatting import printed
from lastiterate.curves import gaussian
from lastiterate.losses import Logistic
from lastiterate.theory.ordered_batches import position_mus
from lastiterate.theory.run import Run
from lastiterate.train import noisy_descent
from lastiterate.verifier.chain import Terms, verify_chain
from lastiterate.verifier.document import canonical, fingerprint, parameters_hash

DELTA = 1e-4
LOSS = Logistic()
rng = np.random.default_rng(0)
X = rng.standard_normal((40, 3))
X /= np.linalg.norm(X, axis=1, keepdims=True)
Y = np.where(X[:, 0] > 0, 1.0, -1.0)


def day(**changes):
    fields = {
        "records": 40,
        "steps": 20,
        "step_size": 1.0,
        "noise": 0.3,
        "gradient_norm": 1.0,
        "batches": Cyclic(2),
        "adjacency": "zero-out",
        "schedule": "equalised",
    }
    return Training(**{"adjacency": "replace", **fields, **changes})


def trained(source=None, run=None, **settings):
    return noisy_descent(LOSS, X, run or day(), labels=Y, continue_from=source, **settings)


def chained(folder, links=3, lifetime_budget=None, run=None):
    chain = CertificateChain.create(folder, lifetime_budget or LifetimeBudget(mu=2.0))
    for _ in range(links):
        chain.append(trained(chain, run), DELTA)
    return chain


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chains") / "model"
    chained(folder)
    return folder


@pytest.fixture
def chain(kept, tmp_path):
    shutil.copytree(kept, tmp_path / "copy")
    return CertificateChain(tmp_path / "copy")


def test_a_chain_verifies_and_says_for_whom(chain):
    checked = chain.verify()
    assert len(checked.links) == len(chain) == 3
    before = chain.terms.head
    for link, model in zip(chain.links, chain.folder.glob("0*"), strict=True):
        assert link.link.former == before.sha256
        assert link.link.start == before.parameters
        assert verify(link).epsilon == link.epsilon
        assert any("this link of the chain alone" in text for text in link.assumptions)
        assert model.is_dir()
        before = link.head
    assert chain.epsilon(DELTA) == gaussian.epsilon(2.0, DELTA)
    assert chain.links[0].epsilon < chain.epsilon(DELTA)
    assert "used in link 3 alone" in str(chain)
    forever = f"used in any number of links, for ever: epsilon <= {printed(chain.epsilon(DELTA))}"
    assert forever in str(chain)
    assert "mu = 2 for ever" in str(checked)


def test_the_sum_is_what_a_person_in_all_links_pays(chain):
    """Cyclic and equalised: (s/nu)^2 / B a day, whatever the position."""
    one = (1.0 / 2 / 0.3) ** 2 / 20
    assert chain.verify().mus == pytest.approx([one**0.5] * 3, rel=1e-5)
    assert chain.remaining_mu == pytest.approx((4 - 3 * one) ** 0.5, rel=1e-6)


def test_days_without_noise_go_on_where_the_last_one_ended():
    run = day(noise=0.0, batches=FullBatch(), steps=7, schedule=None)
    first = trained(None, run)
    second = trained(first, run)
    whole = trained(None, run.replace(steps=14))
    assert second.parameters == pytest.approx(whole.parameters, rel=1e-12)
    assert second.started == parameters_hash(first.parameters)
    assert first.started is None
    average = trained(None, run.replace(release=TailAverage(3)))
    after = trained(average, run.replace(steps=0))
    assert np.array_equal(after.parameters, average.parameters)  # released, not the hidden last one


def test_a_start_is_rounded_to_the_grid_of_the_day():
    first = trained(None, day())
    again = trained(first, day(noise=300.0, step_size=500.0))
    grid = again.training.arithmetic.grid
    assert grid > first.training.arithmetic.grid
    assert np.array_equal(again.parameters / grid, np.rint(again.parameters / grid))
    assert again.started == parameters_hash(first.parameters)  # of what was released


@pytest.mark.parametrize("batches", [FullBatch(), Shuffled(2), Reshuffled(20)])
def test_other_batches_pay_their_worst_position(batches, tmp_path):
    run = day(batches=batches, schedule=None, noise=1.0)
    chain = CertificateChain.create(tmp_path / "model", LifetimeBudget(mu=3.0))
    released = trained(chain, run)
    link = chain.append(released, DELTA)
    chain.verify()
    assert gaussian.epsilon(link.link.mu, DELTA) >= link.epsilon * (1 - 1e-6)
    if isinstance(batches, Shuffled):
        assert link.mu is None
        worst = position_mus(Run(released.training, released.loss)).max()
        assert link.link.mu == pytest.approx(worst, rel=1e-9)
        assert link.link.mu >= 0.5  # s/nu of the last position, without what rounding adds


def test_what_is_too_much_is_refused_and_nothing_is_added(tmp_path):
    chain = chained(tmp_path / "model", 1, LifetimeBudget(mu=0.5))
    released = trained(chain)
    with pytest.raises(LifetimeBudgetError, match="Day 2 is refused"):
        chain.append(released, DELTA)
    assert len(chain) == 1
    assert sorted(path.name for path in chain.folder.iterdir()) == ["000001", "terms.json"]
    weekly = chained(tmp_path / "weekly", 4, LifetimeBudget(mu=0.6, days=2))  # any two of them
    weekly.verify()
    assert weekly.epsilon(DELTA, days=1) == gaussian.epsilon(0.6, DELTA)
    with pytest.raises(DescriptionError):
        weekly.epsilon(DELTA, days=3)


def test_epsilon_for_so_many_days(tmp_path):
    chain = CertificateChain.create(tmp_path / "model", epsilon=2.0, delta=DELTA, days=7)
    assert chain.epsilon(DELTA) <= 2.0
    assert chain.epsilon(DELTA) == pytest.approx(2.0, rel=1e-6)
    share = gaussian.mu(2.0, DELTA) / 7**0.5
    assert chain.remaining_mu == pytest.approx(share, rel=1e-9)
    chain.lifetime_budget.check([chain.remaining_mu] * 20)
    for given in (
        {},
        {"epsilon": 1.0},
        {"lifetime_budget": LifetimeBudget(1.0), "epsilon": 1.0, "delta": 0.1},
    ):
        with pytest.raises(DescriptionError):
            CertificateChain.create(tmp_path / "other", **given)
    with pytest.raises(DescriptionError, match="does not exist yet"):
        CertificateChain.create(tmp_path / "model", LifetimeBudget(1.0))
    with pytest.raises(CertificateError, match="holds no chain"):
        CertificateChain(tmp_path / "nowhere")


# --- what breaks a chain ----------------------------------------------------------------------


def broken(chain):
    with pytest.raises(CertificateError) as caught:
        CertificateChain(chain.folder).verify()
    return str(caught.value)


def test_a_missing_link(chain):
    shutil.rmtree(chain.folder / "000002")
    assert "missing" in broken(chain)
    (chain.folder / "000003").rename(chain.folder / "000002")  # closes the gap
    assert "does not follow" in broken(chain)


def test_the_last_link_cannot_be_told_to_be_missing_but_the_next_one_tells(chain):
    kept_certificate = chain.links[2]
    shutil.rmtree(chain.folder / "000003")
    chain.verify()
    with pytest.raises(CertificateError):
        verify_chain(chain.terms, [*chain.links, kept_certificate, kept_certificate])


def test_reordered_links(chain):
    a, b, c = chain.links
    for order in ([b, a, c], [a, c, b], [a, a, b], [b, c], [a, c]):
        with pytest.raises(CertificateError, match="does not follow"):
            verify_chain(chain.terms, order)
    assert verify_chain(chain.terms, [a, b]).mus == chain.verify().mus[:2]


def test_a_link_of_another_chain(chain, tmp_path):
    other = chained(tmp_path / "other", 1)
    with pytest.raises(CertificateError, match="does not follow"):
        verify_chain(chain.terms, other.links)
    with pytest.raises(CertificateError, match="does not follow"):
        chain.add(other.links[0], other.parameters)
    shutil.rmtree(chain.folder / "000001")
    shutil.copytree(other.folder / "000001", chain.folder / "000001")
    assert "does not follow" in broken(chain)


def test_a_certificate_that_is_no_link(chain):
    released = trained(None)
    alone = certify(released.training, released.loss, DELTA, parameters=released.parameters)
    assert alone.link is None
    with pytest.raises(CertificateError, match="does not follow"):
        chain.add(alone, released.parameters)


def test_other_terms(chain):
    path = chain.folder / "terms.json"
    text = path.read_text()
    path.write_text(text.replace('"mu": 2.0', '"mu": 3.0'))
    assert "does not follow" in broken(chain)
    for bad in (text + " ", "{}", "[]", "null", text.replace("mu", "nu"), text[:-9], "[" * 9999):
        path.write_text(bad)
        with pytest.raises(CertificateError):
            CertificateChain(chain.folder)
    path.write_text(text)
    chain.verify()


@pytest.mark.fuzz
def test_damaged_files_are_refused_and_never_break_anything(chain):
    """Bytes changed, cut off or put in: a refusal, unless what is read is the same."""
    damage = np.random.default_rng(5)
    files = sorted(path for path in chain.folder.rglob("*") if path.is_file())
    whole = {path: path.read_bytes() for path in files}
    links = chain.links
    for _ in range(600):
        path = files[damage.integers(len(files))]
        raw, at = bytearray(whole[path]), int(damage.integers(len(whole[path])))
        kind = damage.integers(3)
        if kind == 0:
            raw[at] ^= 1 << int(damage.integers(8))
        elif kind == 1:
            del raw[at:]
        else:
            raw[at:at] = bytes(damage.integers(0, 256, 3, dtype=np.uint8))
        path.write_bytes(bytes(raw))
        try:
            CertificateChain(chain.folder).verify()
        except CertificateError:
            pass
        else:  # bytes of the archive that say nothing about the numbers
            assert path.suffix == ".npz"
        path.write_bytes(whole[path])
    assert CertificateChain(chain.folder).links == links


def resealed(certificate, **changes):
    content = json.loads(certificate.to_json())
    content["link"].update(changes)
    content["sha256"] = fingerprint(content)
    return Certificate.from_json(canonical(content))


@pytest.mark.parametrize(
    "changes",
    [
        {"mu": 0.1},
        {"mu": -1.0},
        {"mu": "0.1"},
        {"mu": True},
        {"mu": None},
        {"former": "0" * 64},
        {"former": "x"},
        {"former": None},
        {"start": None},
        {"start": "0" * 64},
        {"start": 7},
        {"day": 2},
    ],
)
def test_every_field_of_a_link_is_checked(chain, changes):
    a, b, c = chain.links
    with pytest.raises(CertificateError):
        verify_chain(chain.terms, [a, resealed(b, **changes), c])


def test_a_liar_who_rewrites_the_words_too(chain):
    """Another start in all places: the model of the link before it tells."""
    a, b, _ = chain.links
    content = json.loads(b.to_json().replace(b.link.start, "0" * 64))
    content["sha256"] = fingerprint(content)
    lied = Certificate.from_json(canonical(content))
    verify(lied)
    with pytest.raises(CertificateError, match="did not start from"):
        verify_chain(chain.terms, [a, lied])


def test_a_model_that_was_changed(chain):
    first = chain.folder / "000001" / "parameters.npz"
    before = first.read_bytes()
    np.savez(first, parameters=chain.parameters)
    assert "model of link 1" in broken(chain)
    first.write_bytes(before)
    chain.verify()
    model = chain.folder / "000003" / "parameters.npz"
    np.savez(model, parameters=chain.parameters + 1e-9)
    assert "not the one" in broken(chain)
    with pytest.raises(CertificateError):
        trained(CertificateChain(chain.folder))
    model.write_bytes(b"nothing")
    assert "holds no model" in broken(chain)
    model.unlink()
    assert "holds no model" in broken(chain)


def test_links_are_not_composed(chain):
    with pytest.raises(UnsupportedError, match="lifetime budget"):
        compose(chain.links[:2])
    both = compose([certify(day(), Loss(smoothness=1.0), DELTA)] * 2)
    content = json.loads(both.to_json())
    content["link"] = chain.links[0].content["link"]
    content["sha256"] = fingerprint(content)
    with pytest.raises(CertificateError):
        verify(Certificate(content))


def test_links_speak_of_the_same_people(chain):
    for changes, given in (
        ({"adjacency": "replace"}, {}),
        ({}, {"dataset": "others"}),
        ({}, {"unit": PrivacyUnit(records=2)}),
        ({}, {"unit": PrivacyUnit(last_step=3)}),
    ):
        with pytest.raises(CertificateError, match="Link 4"):
            chain.append(trained(chain, day(**changes)), DELTA, **given)
    fresh = CertificateChain.create(chain.folder.parent / "fresh", LifetimeBudget(mu=2.0))
    with pytest.raises(CertificateError, match="everybody in a link"):
        fresh.append(trained(fresh), DELTA, unit=PrivacyUnit(first_step=3))
    assert len(chain) == 3


def test_persons_with_several_records_and_released_checkpoints(tmp_path):
    person = PrivacyUnit(records=3, per_batch=1)
    chain = CertificateChain.create(tmp_path / "model", LifetimeBudget(mu=4.0))
    alone = []
    for releases in ((), (10,)):
        link = chain.append(trained(chain), DELTA, unit=person, releases=releases)
        alone.append(link.epsilon)
    assert alone[0] < alone[1]
    assert chain.verify().links[1].unit == person


def test_a_day_of_people_says_so(tmp_path):
    chain = CertificateChain.create(tmp_path / "model", LifetimeBudget(mu=4.0))
    whose = {"groups": np.arange(40) % 20, "max_records_per_group": 2}
    link = chain.append(trained(chain, day(noise=1.0), **whose), DELTA)
    assert link.unit == PrivacyUnit(records=2)


def test_a_link_says_how_its_loader_placed_the_records(tmp_path):
    """In hidden batches neither placement bounds the other (tests/bounds/test_unit.py)."""
    chain = CertificateChain.create(tmp_path / "model", LifetimeBudget(mu=4.0))
    whose = {"groups": np.arange(40) % 20, "max_records_per_group": 2}
    shuffled = day(noise=1.0, batches=Shuffled(2), schedule=None)
    for told, claimed in (
        ({}, PrivacyUnit(records=2, per_batch=1)),
        (whose, PrivacyUnit(records=2, per_batch=1)),
        ({**whose, "per_batch": 1}, PrivacyUnit(records=2)),
        ({**whose, "per_batch": 1}, PrivacyUnit()),  # groups kept apart restrict the arrangements
    ):
        with pytest.raises(AssumptionError, match="per_batch"):
            chain.append(trained(chain, shuffled, **told), DELTA, unit=claimed)
    assert len(chain) == 0


def test_a_chain_names_people_with_short_gradients(tmp_path):
    """Of somebody with gradients of 0 it costs nothing, and of nobody else."""
    chain = CertificateChain.create(tmp_path / "model", LifetimeBudget(mu=4.0))
    quiet = PrivacyUnit(gradient_norm=0.0)
    chain.append(trained(chain), DELTA, unit=quiet)
    for text in (str(chain), str(chain.verify())):
        assert str(quiet) in text


def test_empty_slots_do_not_curve(tmp_path):
    """Records (x - a)^2/2, of which all but two are dropped: c is 0.95 and not 0."""

    def gradient(parameters, rows):
        return np.resize(parameters, (len(rows), 1))

    run = day(batches=FullBatch(), schedule=None, noise=1.0, gradient_norm=50.0)
    told = {"groups": [0] + [1] * 39, "max_records_per_group": 1, "start": np.zeros(1)}
    curved = Loss(smoothness=1.0, strong_convexity=1.0)

    def law(present, pull):  # mean and deviation of the last iterate
        behind = (1 - present / 40) ** np.arange(20)
        return pull / 40 * behind.sum(), np.linalg.norm(behind)

    (here, wide), (gone, narrow) = law(2, 40.0), law(1, 0.0)  # the person's a is 40, or no record
    between = (here + gone) / 2
    told_apart = NormalDist(here, wide).cdf(between) - NormalDist(gone, narrow).cdf(between)
    assert abs(told_apart) > 1.5 * account(run, curved).delta(0.0)
    chain = CertificateChain.create(tmp_path / "model", LifetimeBudget(mu=40.0))
    done = noisy_descent(gradient, None, run, **told)
    with pytest.raises(AssumptionError, match="strong_convexity"):
        chain.append(done, DELTA, loss=curved)
    chain.append(done, DELTA, loss=Loss(smoothness=1.0))


# --- who may go on from what ------------------------------------------------------------------


def test_a_run_says_what_it_went_on_from():
    first = trained(None)
    second = trained(first)
    given = {"parameters": second.parameters, "started": second.started}
    with pytest.raises(AssumptionError, match="started from"):
        certify(second.training, second.loss, DELTA, **given)
    head = certify(first.training, first.loss, DELTA, parameters=first.parameters).head
    with pytest.raises(AssumptionError, match="started from"):
        certify(second.training, second.loss, DELTA, parameters=second.parameters, follows=head)
    with pytest.raises(AssumptionError, match="give parameters"):
        certify(second.training, second.loss, DELTA, follows=head, started=second.started)
    link = certify(second.training, second.loss, DELTA, follows=head, **given)
    assert link.link.former == head.sha256
    assert verify(link, parameters=second.parameters).epsilon == link.epsilon
    assert f"A link after {head.sha256[:16]}" in str(link)


def test_experiments_stay_experiments(chain):
    seeded = trained(None, random_state=3)
    after = trained(seeded)
    assert after.experiment
    assert "model of an experiment" in after.objection
    for released in (seeded, after, trained(chain, random_state=1)):
        with pytest.raises(AssumptionError, match="cannot be certified"):
            chain.append(released, DELTA)
    with pytest.raises(AssumptionError, match="started from"):
        chain.append(trained(None), DELTA)  # from zero, not from the chain
    with pytest.raises(AssumptionError, match="loss"):
        chain.append(replace(trained(chain), loss=None), DELTA)


@pytest.mark.parametrize("source", [np.zeros(3), "model", {"parameters": np.zeros(3)}, 0])
def test_only_released_models_are_gone_on_from(source):
    with pytest.raises(DescriptionError, match="continue_from"):
        trained(source)


def test_start_and_continue_from():
    with pytest.raises(DescriptionError, match="absent with continue_from"):
        trained(trained(None), start=np.zeros(3))
    wide = noisy_descent(LOSS, np.eye(40), day(), labels=Y)
    with pytest.raises(DescriptionError, match="shape"):
        trained(wide)


def test_sampled_batches_are_no_links(tmp_path):
    chain = CertificateChain.create(tmp_path / "model", LifetimeBudget(mu=4.0))
    run = day(batches=Poisson(0.1), schedule=None)
    with pytest.raises(UnsupportedError, match="no single Gaussian"):
        chain.append(trained(chain, run), DELTA)


def test_two_processes_cannot_add_the_same_link(chain):
    other = CertificateChain(chain.folder)
    one, two = trained(chain), trained(other)
    chain.append(one, DELTA)
    with pytest.raises(AssumptionError, match="started from"):
        other.append(two, DELTA)
    assert len(chain) == 4
    chain.verify()


def test_a_link_that_appears_meanwhile_is_not_replaced(chain):
    before = (chain.folder / "000003" / "certificate.json").read_bytes()
    with pytest.raises(CertificateError, match="another one may have been added"):
        chain._write(3, chain.links[0], chain.parameters)
    assert (chain.folder / "000003" / "certificate.json").read_bytes() == before
    assert not list(chain.folder.glob(".link-*"))


LOOP = """
import sys
sys.path[:0] = {path!r}
from tests.certificate.test_chain import CertificateChain, DELTA, trained
chain = CertificateChain(sys.argv[1])
print("ready", flush=True)
while True:
    chain.append(trained(chain), DELTA)
"""


def killed(folder, after):
    program = LOOP.format(path=sys.path)
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def check_kills(folder, times):
    chain = CertificateChain.create(folder, LifetimeBudget(mu=50.0))
    for after in times:
        killed(folder, after)
        before = len(chain)
        chain.verify()
        chain.append(trained(chain), DELTA)  # goes on from wherever it is
        assert len(chain) == before + 1
    chain.verify()


def test_a_killed_process_leaves_a_chain_that_goes_on(tmp_path):
    check_kills(tmp_path / "model", [0.2])


@pytest.mark.slow
def test_many_killed_processes(tmp_path):
    check_kills(tmp_path / "model", np.random.default_rng(1).uniform(0, 0.3, 12))


def test_a_half_written_link_is_nothing(chain):
    staging = chain.folder / ".link-abc"
    staging.mkdir()
    (staging / "parameters.npz").write_bytes(b"half")
    assert len(chain) == 3
    chain.verify()


def test_terms_have_one_text():
    terms = Terms("a chain of my own", LifetimeBudget(1.0, days=3))
    assert Terms.from_json(terms.to_json()) == terms
    assert terms.head != Terms("another chain of mine", LifetimeBudget(1.0, days=3)).head
    assert terms.head.parameters is None
