"""The kernel can be read without the rest of the library: it imports nothing of it."""

from __future__ import annotations

import sys

import pytest
from architecture import PACKAGE, imports

MODULES = sorted((PACKAGE / "kernel").glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_kernel_imports_only_itself_python_flint_and_the_standard_library(path):
    for name in imports(path.read_text(encoding="utf-8")):
        package = name.partition(".")[0]
        own = name.startswith("lastiterate.kernel")
        assert own or package == "flint" or package in sys.stdlib_module_names, name


def test_kernel_has_modules():
    assert {"balls", "document", "run"} <= {path.stem for path in MODULES}
