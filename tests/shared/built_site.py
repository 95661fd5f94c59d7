"""The documentation, built once for all the tests of a run: no figures, no output of notebooks."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from patience import HANG_SECONDS

ROOT = Path(__file__).parents[2]


def build(config: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "-f", config],
        cwd=config.parent,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )


def written(folder: Path, *options: str) -> Path:
    """All pages, and our own settings for them, in a folder; builds into its folder ``site``."""
    script = [sys.executable, ROOT / "docs" / "generate", folder / "pages"]
    subprocess.run([*script, *options], cwd=folder, check=True, timeout=HANG_SECONDS)
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    settings |= {"docs_dir": "pages", "site_dir": "site"}
    (plugin,) = [one for one in settings["plugins"] if "mkdocstrings" in one]
    python = plugin["mkdocstrings"]["handlers"]["python"]
    python["paths"] = [str(ROOT / "src")]
    python["options"]["extensions"] = [str(ROOT / one) for one in python["options"]["extensions"]]
    config = folder / "mkdocs.yml"
    config.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return config


def built(config: Path) -> Path:
    made = build(config)
    assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
    assert "Warning" not in made.stdout + made.stderr, made.stdout[-3000:]
    return config.parent / "site"


def shared_site(factory: pytest.TempPathFactory) -> Path:
    """The site without its figures; workers of one run share it, and the first one builds it."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder = folder / "documentation"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "site" / "done").exists():
            (built(written(folder, "--quick")) / "done").touch()
    return folder / "site"
