"""`lastiterate compose FILES`: one certificate for several runs on the same data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lastiterate.cli.output import print_json, print_text
from lastiterate.errors import LastIterateError


def compose_certificates(
    files: Sequence[Path], output: Path | None, delta: float | None, as_json: bool
) -> None:
    """Load, compose, write a new file."""
    import lastiterate

    if output is None:
        raise LastIterateError(
            "Say where the joint certificate goes: --out both.json. It is never written over one "
            "of the certificates that it composes."
        )
    if output.exists() or output.is_symlink():
        raise LastIterateError(
            f"{output} exists already, and a certificate is not overwritten: whoever filed it "
            "would lose what was promised. Choose another name for --out, or move that file away."
        )
    certificates = [lastiterate.Certificate.load(file) for file in files]
    joint = lastiterate.compose(certificates, delta)
    try:
        joint.save(output)
    except OSError as error:
        raise LastIterateError(f"{output} cannot be written: {error.strerror}.") from None
    if as_json:
        keys = ("epsilon", "delta", "mu", "curve", "adjacency", "dataset", "sha256")
        answer = {key: joint.content[key] for key in keys}
        print_json("compose", {"file": str(output), "runs": len(joint.parts), **answer})
    else:
        print_text(str(joint))
        print_text(f"Written to {output}; check it with: lastiterate verify {output}")
