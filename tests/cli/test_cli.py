"""The command line: what people type, what machines read, what happens when it is wrong."""

from __future__ import annotations

import json
import math
import shlex
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from patience import HANG_SECONDS

import lastiterate
from lastiterate import Cyclic, FullBatch, Loss, Poisson, Shuffled, TailAverage, Training
from lastiterate.cli.described import combine
from lastiterate.cli.main import run
from lastiterate.errors import LastIterateError
from lastiterate.theory import THEOREMS

COMMAND = str(Path(sysconfig.get_path("scripts")) / "lastiterate")

RUN = shlex.split(
    "--records 5 --steps 200 --step-size 0.1 --noise 1 --gradient-norm 2 --batches full "
    "--adjacency replace --smoothness 1 --strong-convexity 1"
)
TRAINING = Training(
    records=5,
    steps=200,
    step_size=0.1,
    noise=1.0,
    gradient_norm=2.0,
    batches=FullBatch(),
    adjacency="replace",
)
LOSS = Loss(smoothness=1.0, strong_convexity=1.0)

FILE = """
delta = 1e-6
releases = [50]

[training]
records = 100
steps = 100
step_size = 0.1
noise = 1.0
gradient_norm = 2.0
adjacency = "zero-out"
batches = { scheme = "cyclic", size = 10 }
release = { tail_average = 3 }

[loss]
smoothness = 1.0
strong_convexity = 0.5
regularization = 0.25
"""


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Run the entry point in this process."""

    def call(*arguments: str) -> Answer:
        with pytest.raises(SystemExit) as exit_:
            run(arguments)
        captured = capsys.readouterr()
        assert isinstance(exit_.value.code, int)
        return Answer(exit_.value.code, captured.out, captured.err)

    return call


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(FILE)
    return path


def refused(answer: Answer, *words: str) -> None:
    """Exit code 2, one message on stderr that names what to change, no traceback."""
    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.startswith("lastiterate: ")
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err
    for word in words:
        assert word in answer.err


# --- the commands --------------------------------------------------------------------------------


def test_account_for_machines(cli: Callable[..., Answer]) -> None:
    answer = cli("account", *RUN, "--delta", "1e-6", "--json")
    assert answer.code == 0
    found = json.loads(answer.out)
    guarantee = lastiterate.account(TRAINING, LOSS)
    assert found["epsilon"] == guarantee.epsilon(1e-6)
    assert found["lower"] == guarantee.lower(1e-6)
    assert found["mu"] == guarantee.mu
    assert found["delta"] == 1e-6
    assert found["theorem"]["key"] == "taut-string"
    assert Training.from_dict(found["training"]) == TRAINING
    assert Loss.from_dict(found["loss"]) == LOSS
    assert found["adjacency"] == "replace"
    assert {a["vouched_by"] for a in found["assumptions"]} >= {"declared by the user"}
    assert set(found) == {
        "command",
        "version",
        "epsilon",
        "delta",
        "mu",
        "lower",
        "theorem",
        "note",
        "provenance",
        "guarantee",
        "assumptions",
        "not_covered",
        "training",
        "loss",
        "unit",
        "adjacency",
        "sensitivity",
        "implied_sensitivity",
        "declared_sensitivity",
        "epochs",
        "dropped_records",
        "releases",
    }


def test_account_for_people(cli: Callable[..., Answer]) -> None:
    answer = cli("account", *RUN)
    assert answer.code == 0
    assert answer.err == ""
    for words in ("Bok, Su & Altschuler 2024", "What is protected", "Not covered", "1.336"):
        assert words in answer.out


def test_infinity_is_a_word_in_json(cli: Callable[..., Answer]) -> None:
    answer = cli("account", *RUN, "--noise", "0", "--json")

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    assert json.loads(answer.out, parse_constant=refuse)["epsilon"] == "inf"


def test_compare_lists_every_bound_in_order(cli: Callable[..., Answer]) -> None:
    found = json.loads(cli("compare", *RUN, "--json").out)
    epsilons = [row["epsilon"] for row in found["bounds"]]
    assert epsilons == sorted(epsilons)
    assert epsilons[0] == lastiterate.account(TRAINING, LOSS).epsilon(1e-5)
    named = {row["theorem"] for row in found["bounds"] + found["inapplicable"]}
    assert named == {theorem.name for theorem in THEOREMS}
    assert all(row["reason"] for row in found["inapplicable"])
    assert "Composition" in cli("compare", *RUN).out


def test_plateau(cli: Callable[..., Answer]) -> None:
    found = json.loads(cli("plateau", *RUN, "--json").out)
    assert found["plateau"] == lastiterate.plateau(TRAINING, LOSS, 1e-5)
    there = lastiterate.account(TRAINING.replace(steps=found["plateau"]), LOSS)
    assert found["epsilon_there"] == there.epsilon(1e-5)
    assert f"step {found['plateau']}" in cli("plateau", *RUN).out


def test_no_plateau(cli: Callable[..., Answer]) -> None:
    arguments = ("plateau", *RUN, "--strong-convexity", "0")
    assert json.loads(cli(*arguments, "--json").out)["plateau"] is None
    assert "No plateau" in cli(*arguments).out


def test_theorems(cli: Callable[..., Answer]) -> None:
    ledger = lastiterate.theorems()
    found = json.loads(cli("theorems", "--json").out)["theorems"]
    assert [entry["name"] for entry in found] == [theorem.name for theorem in ledger]
    refuted = json.loads(cli("theorems", "--status", "refuted", "--json").out)["theorems"]
    assert {entry["status"] for entry in refuted} == {"refuted"}
    assert len(refuted) == sum(theorem.status == "refuted" for theorem in ledger)
    assert "Statement" in cli("theorems", "shifted interp").out
    refused(cli("theorems", "no such theorem"), "no such theorem")
    refused(cli("theorems", "--status", "wrong"), "--status", "refuted")


@pytest.mark.parametrize("command", ["account", "compare", "plateau", "theorems", "demo"])
def test_every_command_has_help(cli: Callable[..., Answer], command: str) -> None:
    answer = cli(command, "--help")
    assert answer.code == 0
    assert "--json" in answer.out
    assert command in cli("--help").out


def test_no_arguments_show_the_commands(cli: Callable[..., Answer]) -> None:
    assert cli().out == cli("--help").out
    assert cli("--version").out.strip() == lastiterate.__version__


# --- describing ----------------------------------------------------------------------------------


def flags(text: str) -> dict[str, Any]:
    """As `combine` reads them."""
    pairs = text.split()
    return {
        name.removeprefix("--").replace("-", "_"): _value(value)
        for name, value in zip(pairs[::2], pairs[1::2], strict=True)
    }


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def test_the_file_says_it_all(file: Path) -> None:
    found = combine(file, {})
    assert found.training == Training(
        records=100,
        steps=100,
        step_size=0.1,
        noise=1.0,
        gradient_norm=2.0,
        batches=Cyclic(10),
        adjacency="zero-out",
        release=TailAverage(3),
    )
    assert found.loss == Loss(1.0, 0.5, 0.25)
    assert (found.delta, found.releases) == (1e-6, (50,))


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ("--records 200", {"records": 200}),
        ("--steps 50", {"steps": 50}),
        ("--epochs 2.5", {"steps": 25}),
        ("--noise 2", {"noise": 2.0}),
        ("--batch-size 20", {"batches": Cyclic(20)}),
        ("--batches shuffled", {"batches": Shuffled(10)}),
        ("--batches poisson --rate 0.5", {"batches": Poisson(0.5)}),
        ("--batches poisson --batch-size 20", {"batches": Poisson(0.2)}),
        ("--batches full", {"batches": FullBatch()}),
        ("--adjacency replace", {"adjacency": "replace"}),
        ("--clipping margin", {"clipping": "margin"}),
        ("--diameter 3", {"diameter": 3.0}),
        ("--sensitivity 1.5", {"sensitivity": 1.5}),
        ("--schedule equalised", {"schedule": "equalised"}),
        ("--tail-average 7", {"release": TailAverage(7)}),
        ("--batches poisson --rate 0.3 --epochs 3", {"batches": Poisson(0.3), "steps": 10}),
    ],
)
def test_flags_win_over_the_file(file: Path, given: str, changes: dict[str, Any]) -> None:
    plain = combine(file, {}).training
    assert combine(file, flags(given)).training == plain.replace(**changes)


@pytest.mark.parametrize(
    ("given", "loss"),
    [
        ("--smoothness 2", Loss(2.0, 0.5, 0.25)),
        ("--strong-convexity 0.75", Loss(1.0, 0.75, 0.25)),
        ("--regularization 0", Loss(1.0, 0.5)),
        ("--loss nonconvex", Loss.nonconvex(smoothness=1.0, regularization=0.25)),
        ("--loss unknown", Loss.unknown(regularization=0.25)),
        (
            "--loss holder --exponent 0.5",
            Loss.holder(constant=1.0, exponent=0.5, regularization=0.25),
        ),
    ],
)
def test_loss_flags_win_over_the_file(file: Path, given: str, loss: Loss) -> None:
    assert combine(file, flags(given)).loss == loss


def test_dp_sgd_and_langevin_flags_replace_the_noise_of_the_file(file: Path) -> None:
    found = combine(file, flags("--noise-multiplier 2 --clip 4")).training
    expected = Training.dp_sgd(
        records=100,
        steps=100,
        step_size=0.1,
        noise_multiplier=2.0,
        clip=4.0,
        batches=Cyclic(10),
        release=TailAverage(3),
    )
    assert found == expected
    found = combine(file, flags("--sigma 2 --gradient-sensitivity 4")).training
    expected = Training.langevin(
        records=100,
        steps=100,
        step_size=0.1,
        sigma=2.0,
        gradient_sensitivity=4.0,
        batches=Cyclic(10),
        adjacency="zero-out",
        release=TailAverage(3),
    )
    assert found == expected


def test_a_norm_beside_a_langevin_sensitivity(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    text = (
        "[training]\nadjacency = 'replace'\n"
        "records = 60\nsteps = 6\nstep_size = 1.0\nsigma = 1.5\n"
        'gradient_sensitivity = 1.0\nbatches = { scheme = "full" }\n[loss]\nkind = "unknown"\n'
    )
    path.write_text(text)
    assert combine(path, {}).training.gradient_norm == math.inf
    told = combine(path, flags("--gradient-norm 3")).training  # still Langevin: sigma stays
    assert (told.gradient_norm, told.sensitivity, told.noise) == (3.0, 1.0, math.sqrt(2) * 1.5)
    assert combine(path, flags("--noise 2 --gradient-norm 3")).training.sensitivity == 6.0
    path.write_text(text.replace("sigma = 1.5", "sigma = 1.5\ngradient_norm = 2.0"))
    assert combine(path, {}).training.gradient_norm == 2.0
    with pytest.raises(LastIterateError, match="contradicts"):
        combine(path, flags("--sigma 2 --gradient-norm 3 --noise 1"))


def test_flags_leave_out_a_sensitivity_that_was_declared_for_something_else(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        "[training]\nadjacency = 'replace'\n"
        "records = 60\nsteps = 6\nstep_size = 1.0\nnoise = 1.0\nsensitivity = 0.5\n"
        'gradient_norm = 3.0\nbatches = { scheme = "full" }\n[loss]\nkind = "unknown"\n'
    )
    assert combine(path, flags("--steps 7 --gradient-norm 3")).training.sensitivity == 0.5
    assert combine(path, flags("--adjacency zero-out")).training.sensitivity == 3.0
    assert combine(path, flags("--gradient-norm 2")).training.sensitivity == 4.0
    assert combine(path, flags("--gradient-norm 2 --sensitivity 1")).training.sensitivity == 1.0
    text = path.read_text().replace("gradient_norm = 3.0\n", "")  # only the change is known
    path.write_text(text)
    assert combine(path, {}).training.gradient_norm == math.inf
    with pytest.raises(LastIterateError, match="--gradient-norm"):
        combine(path, flags("--adjacency zero-out"))


def test_the_file_may_speak_dp_sgd(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        "[training]\nrecords = 60\nepochs = 2\nstep_size = 1.0\n"
        "noise_multiplier = 1.5\nclip = 1.0\n"
        'batches = { scheme = "shuffled", size = 20 }\n[loss]\nkind = "unknown"\n'
    )
    run_ = combine(path, {}).training
    assert (run_.steps, run_.noise, run_.clipping) == (6, 1.5 / 20, "gradient")


def test_a_schedule_comes_from_the_file(tmp_path: Path, cli: Callable[..., Answer]) -> None:
    path = tmp_path / "run.toml"
    path.write_text(FILE.replace("steps = 100", "steps = 3").replace("= 0.1", "= [0.1, 0.2, 0.3]"))
    found = combine(path, {"releases": "1,2"})
    assert list(found.training.step_sizes) == [0.1, 0.2, 0.3]
    assert found.releases == (1, 2)


# --- what is wrong is said once, with its name ---------------------------------------------------


def test_everything_missing_is_named_together(cli: Callable[..., Answer]) -> None:
    refused(
        cli("account"),
        "--records",
        "--step-size",
        "--steps",
        "--epochs",
        "--noise",
        "--gradient-norm",
        "--batches",
        "--smoothness",
    )
    refused(cli("account", *RUN, "--batches", "shuffled"), "--batch-size")
    refused(cli("account", *RUN, "--batches", "poisson"), "--rate")
    refused(
        cli("account", *RUN, "--batches", "poisson", "--rate", "1", "--batch-size", "1"), "rate"
    )
    refused(cli("account", *RUN, "--loss", "holder"), "--exponent")
    partly = shlex.split(
        "--records 5 --steps 2 --step-size 1 --batches full --smoothness 1 --clip 1"
    )
    answer = cli("account", *partly)
    refused(answer, "--noise-multiplier")
    assert "--records" not in answer.err


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("--records 0", ["records must"]),
        ("--records x", ["--records"]),
        ("--records 1.5", ["--records"]),
        ("--steps -1", ["steps must"]),
        ("--step-size nan", ["step_size must"]),
        ("--noise -1", ["noise must"]),
        ("--noise inf", ["noise must"]),
        ("--gradient-norm -2", ["gradient_norm must"]),
        ("--diameter -1", ["diameter must"]),
        ("--sensitivity 9", ["sensitivity must", "<= 4"]),
        ("--adjacency swap", ["adjacency must", "'zero-out' or 'replace'"]),
        ("--clipping hard", ["clipping must"]),
        ("--batches foo", ["batches.scheme must", "shuffled"]),
        ("--batch-size 2", ["batches must", "full"]),
        ("--batches cyclic --batch-size 6", ["batches.size must", "<="]),
        ("--batches cyclic --batch-size 0", ["batches.size must"]),
        ("--batches poisson --rate 1.5", ["batches.rate must"]),
        ("--schedule linear", ["schedule must"]),
        ("--loss concave", ["kind must"]),
        ("--smoothness -1", ["smoothness must"]),
        ("--strong-convexity 2", ["strong_convexity must", "smoothness"]),
        ("--regularization nan", ["regularization must"]),
        ("--exponent 0.5", ["exponent must"]),
        ("--delta 0", ["delta must"]),
        ("--delta 2", ["delta must"]),
        ("--tail-average 201", ["release.window must"]),
        ("--releases a,b", ["releases must"]),
        ("--releases 500", ["releases must"]),
        ("--noise-multiplier 1", ["--noise contradicts --noise-multiplier"]),
        ("--sigma 1", ["--noise contradicts --sigma"]),
        ("--clip 1", ["contradicts --clip"]),
        ("--epochs 3", ["--steps contradicts --epochs"]),
        ("--no-such-flag 1", ["--no-such-flag"]),
        ("--records 99999999999999999999", ["records must", "2^53"]),
    ],
)
def test_bad_flags(cli: Callable[..., Answer], extra: str, words: list[str]) -> None:
    refused(cli("account", *RUN, *extra.split()), *words)


def test_half_an_update_does_not_exist(cli: Callable[..., Answer]) -> None:
    some = [a for a in RUN if a not in ("--steps", "200")]
    refused(cli("account", *some, "--epochs", "1.5"), "epochs must", "steps")
    for epochs in ("1e308", "inf", "nan", "-1"):
        answer = cli("account", *some, "--epochs", epochs, "--batches", "poisson", "--rate", "0.1")
        refused(answer, "epochs must")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("records = = 1", ["valid TOML", "line 1"]),
        ("x = 1", ["description.x"]),
        ("training = 3", ["training must"]),
        ("[training]\nrecord = 5", ["did you mean records?"]),
        (FILE.replace("records", "record"), ["did you mean records?"]),
        (FILE + "smothness = 1.0\n", ["loss.smothness"]),
        (FILE.replace("noise = 1.0", "noise = 1.0\nclip = 2.0"), ["noise contradicts clip"]),
        (FILE.replace("noise = 1.0", 'noise = "1"'), ["noise must"]),
        (FILE.replace("delta = 1e-6", 'delta = "x"'), ["delta must"]),
        (FILE.replace("[50]", "50"), ["releases must"]),
        (FILE.replace('"cyclic"', '"spiral"'), ["batches.scheme must"]),
        (FILE.replace("tail_average", "window"), ["release.window"]),
        ("a = " + "[" * 50_000, ["valid TOML"]),
    ],
)
def test_bad_files(cli: Callable[..., Answer], tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    refused(cli("account", str(path)), *words)


def test_files_that_cannot_be_read(cli: Callable[..., Answer], tmp_path: Path) -> None:
    refused(cli("account", str(tmp_path / "absent.toml")), "absent.toml", "No such file")
    refused(cli("account", str(tmp_path)), "Cannot read")
    (tmp_path / "picture").write_bytes(b"\xff\xfe\x00")
    refused(cli("account", str(tmp_path / "picture")), "not text")


def test_a_mistyped_command_is_guessed(cli: Callable[..., Answer]) -> None:
    refused(cli("acount"), "acount", "account")


def test_plateau_refuses_releases(cli: Callable[..., Answer]) -> None:
    refused(cli("plateau", *RUN, "--releases", "5"), "--releases")


# --- the real command ----------------------------------------------------------------------------


def test_the_installed_command() -> None:
    found = subprocess.run(
        [COMMAND, "account", *RUN, "--json"], capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert found.returncode == 0
    assert json.loads(found.stdout)["epsilon"] == pytest.approx(1.336, abs=5e-4)
    wrong = subprocess.run(
        [COMMAND, "account"], capture_output=True, text=True, timeout=HANG_SECONDS
    )
    refused(Answer(wrong.returncode, wrong.stdout, wrong.stderr), "--records")


def test_a_reader_that_leaves_early_is_no_error() -> None:
    writer = subprocess.Popen(
        [COMMAND, "theorems", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.close()
    assert writer.stderr.read() == b""
    writer.stderr.close()
    assert writer.wait(timeout=HANG_SECONDS) == 1


def test_ctrl_c_leaves_without_a_traceback() -> None:
    # A computation that is still running when the signal comes.
    program = (
        "import sys, time\n"
        "from lastiterate.cli import application, main\n"
        "def slow() -> None:\n"
        "    print('started', flush=True)\n"
        "    time.sleep(30)\n"
        "application.COMMANDS = (*application.COMMANDS, slow)\n"
        "main.run(['slow'])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_without_typer_the_command_says_how_to_install_it() -> None:
    program = (
        "import sys; sys.modules['typer'] = None\n"
        "from lastiterate.cli.main import run; run(['account'])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 2
    assert 'pip install "lastiterate[cli]"' in found.stderr
    assert "Traceback" not in found.stderr


# --- printed numbers are never below the computed ones -------------------------------------------


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (1.33601, "1.337"),
        (1.336, "1.336"),
        (0.99991, "1"),
        (123456.7, "1.235e+05"),
        (1e-300, "1e-300"),
        (0.0, "0"),
        (math.inf, "inf"),
        (None, "-"),
    ],
)
def test_printing_rounds_up(value: float | None, printed: str) -> None:
    from lastiterate.cli.output import number

    assert number(value) == printed
    if value is not None:
        assert float(printed) >= value


# --- strangers' folders --------------------------------------------------------------------------

ATTACK = "import sys; sys.stderr.write('the folder ran code'); sys.exit(7)\n"


@pytest.mark.parametrize("command", ["verify", "report"])
def test_no_module_of_the_working_folder_is_imported(command: str, tmp_path: Path) -> None:
    """Whoever checks a stranger's folder may well stand in it; its numpy.py is not ours."""
    certificate = lastiterate.certify(TRAINING, LOSS, delta=1e-5)
    certificate.save(tmp_path / "c.json")
    for name in ("numpy", "typer", "rich", "flint", "json", "multiprocessing", "lastiterate"):
        (tmp_path / f"{name}.py").write_text(ATTACK)
    started = [COMMAND, command, "c.json"]
    done = subprocess.run(started, cwd=tmp_path, capture_output=True, text=True)
    assert "ran code" not in done.stderr
    assert done.returncode == 0, done.stderr
