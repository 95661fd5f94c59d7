"""No file runs when it is opened: the package calls no reader that executes what it reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from architecture import PACKAGE, modules

_NEVER = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "os.system",
    "os.popen",
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "cloudpickle.load",
    "cloudpickle.loads",
    "dill.load",
    "dill.loads",
    "joblib.load",
    "marshal.load",
    "marshal.loads",
    "shelve.open",
    "jsonpickle.decode",
    "pandas.read_pickle",
    "pd.read_pickle",
    "torch.jit.load",
    "torch.package.PackageImporter",
    "runpy.run_path",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
}
_READERS = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "runpy", "yaml"}
_WITH = {  # safe only with this, said on the spot
    "np.load": ("allow_pickle", False),
    "numpy.load": ("allow_pickle", False),
    "np.lib.format.read_array": ("allow_pickle", False),
    "torch.load": ("weights_only", True),
}
_USERS_OWN = {
    "audit/targets.py": {"spec.loader.exec_module"},  # a program that the user names
    "torch/registration.py": {"spec.loader.exec_module"},  # Opacus, as the user imports it
}


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def unsafe(source: str) -> Iterator[str]:
    """Calls, references and imports that could run what a file holds."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute | ast.Name):
            name = dotted(node)
            if name in _NEVER or name.endswith(".exec_module"):
                yield name
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _READERS:
            yield from (f"from {node.module} import {alias.name}" for alias in node.names)
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            said = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
            if name in _WITH and said.get(_WITH[name][0]) is not _WITH[name][1]:
                yield name
            if said.get("shell") is True:
                yield f"{name}(shell=True)"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_opens_what_runs(path):
    allowed = _USERS_OWN.get(str(path.relative_to(PACKAGE)), set())
    assert set(unsafe(path.read_text(encoding="utf-8"))) <= allowed


@pytest.mark.parametrize(
    "source",
    [
        "import joblib\njoblib.load('model')",
        "import pickle\nread = pickle.loads",
        "from pickle import loads",
        "import numpy as np\nnp.load('a.npz')",
        "import numpy as np\nnp.load('a.npz', allow_pickle=True)",
        "import torch\ntorch.load('a.pt')",
        "import torch\ntorch.load('a.pt', weights_only=False)",
        "eval('1')",
        "import yaml\nyaml.load('a', Loader=None)",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "spec.loader.exec_module(found)",
    ],
)
def test_the_search_finds_each_of_them(source):
    assert list(unsafe(source))


def test_the_search_lets_plain_readers_pass():
    assert not list(unsafe("np.load('a', allow_pickle=False); torch.load('b', weights_only=True)"))
    assert not list(unsafe("import pickle\npickle.dumps(1)\nmodel.eval()"))
