"""`lastiterate compose FILES`: one certificate for several runs on the same data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lastiterate._internal.progress import Working
from lastiterate.cli.new_file import refuse_taken, write_new
from lastiterate.cli.output import print_json, print_text, warn_of
from lastiterate.errors import LastIterateError


def compose_certificates(
    files: Sequence[Path], output: Path | None, delta: float | None, force: bool, as_json: bool
) -> None:
    """Load, compose, write a new file."""
    import lastiterate

    if output is None:
        raise LastIterateError(
            "Say where the joint certificate goes: --out both.json. It is never written over one "
            "of the certificates that it composes."
        )
    refuse_taken([output], force, "--out")
    if any(output.exists() and file.exists() and output.samefile(file) for file in files):
        raise LastIterateError(
            f"{output} is one of the certificates that are composed, and is not written over: the "
            "joint one is checked beside them. Choose another name for --out."
        )
    certificates = [lastiterate.Certificate.load(file) for file in files]
    with Working("composition"):
        joint = lastiterate.compose(certificates, delta)
    warn_of(joint.delta, max(run.training.records for run in joint.parts if run.training))
    write_new(output, joint.to_json(), force, "--out")
    if as_json:
        keys = ("epsilon", "delta", "mu", "curve", "adjacency", "dataset", "sha256")
        answer = {key: joint.content[key] for key in keys}
        print_json("compose", {"file": str(output), "runs": len(joint.parts), **answer})
    else:
        print_text(str(joint))
        print_text(f"Written to {output}; check it with: lastiterate verify {output}")
