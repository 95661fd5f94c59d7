"""Write requirements-dev.lock: the installed versions, each with the SHA-256 of its file.

pip names for every version the file that it would install here, and its hash as the index states
it or, for a local file, as it is. So the hashes are those of one platform and Python.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HEAD = """\
# Written by make lock; see CONTRIBUTING.md. The hashes are of files for Linux (x86-64) and Python
# 3.11; that of torch is of PyTorch's CPU build.
"""


def main(path: str) -> None:
    """Write the lock file."""
    frozen = _pip("freeze", "--all", "--exclude", "pip", "--exclude", "lastiterate")
    names = [line.partition("+")[0] for line in frozen.splitlines() if not line.startswith("-e ")]
    with tempfile.TemporaryDirectory() as folder:
        asked, found = Path(folder) / "asked.txt", Path(folder) / "found.json"
        asked.write_text("\n".join(names) + "\n", encoding="utf-8")
        alone = ("--dry-run", "--ignore-installed", "--no-deps", "--quiet")
        _pip("install", *alone, "--report", str(found), "--requirement", str(asked))
        files = json.loads(found.read_text(encoding="utf-8"))["install"]
    lines = []
    for file in files:
        name, version = file["metadata"]["name"], file["metadata"]["version"].partition("+")[0]
        sha256 = file["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name}=={version} --hash=sha256:{sha256}\n")
    if len(lines) != len(names):
        raise SystemExit(f"pip found {len(lines)} files for {len(names)} installed packages.")
    lines.sort(key=str.lower)
    Path(path).write_text(HEAD + "".join(lines), encoding="utf-8")


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main(sys.argv[1])
