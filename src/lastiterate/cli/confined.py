"""Commands that read strangers' files run in a process of their own, with limits.

A small file can ask for a long computation or for much memory, and a library under us may crash on
it. So `verify`, `report` and `compose` are started a second time, in a process that limits its own
time and memory before it looks at the file; whatever ends it, the answer is a refusal. `audit`,
`unlearn`, `predict` and `export`, which take as long as it takes, let such a process read the files
before they do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

CONFINED = ("verify", "report", "compose")
CHECK_FAILED = 3
_PATIENCE = 20  # seconds of a clock for every second of computing: others may use the machine
_CRASHED, _TOO_LARGE = 70, 71  # exit codes of the second process: an unforeseen error, no memory

_READ = "--read"  # what the second process is asked for by commands that only read in it

_here = False  # whether this process is the second one, which may limit itself
program = False  # whether a user started this process, and not a caller in Python


def limit(seconds: float, megabytes: int) -> None:
    """From here on the process has so much time and memory; then the system ends it."""
    if not _here:
        return
    try:
        import resource
    except ImportError:  # no such limits on this system
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: int(used.ru_utime + used.ru_stime + seconds) + 1,
        resource.RLIMIT_AS: _occupied() + (megabytes << 20),
    }
    for what, most in wanted.items():
        with contextlib.suppress(ValueError, OSError):  # a stricter limit is in force already
            resource.setrlimit(what, (most, most))
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE * seconds)  # nobody handles it: it ends us


def _occupied() -> int:
    """Bytes of address space that libraries take before any file was read."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 4 << 30


def readable(seconds: float, megabytes: int, *paths: Path) -> int:
    """Whether runs' folders and certificates can be read within limits: 0, or an exit code.

    What a second process has read is then read again here, which takes no more than it took there.
    """
    if not (program and paths):
        return 0
    return confined([_READ, str(seconds), str(megabytes), *map(str, paths)])


def confined(arguments: list[str]) -> int:
    """Run the command in a second process; its exit code, or that of a refusal."""
    # -P: not where the user stands, which may be the stranger's folder, with modules of his.
    child = subprocess.Popen([sys.executable, "-P", "-m", "lastiterate.cli.confined", *arguments])
    try:
        code = child.wait()
    except KeyboardInterrupt:
        child.send_signal(signal.SIGINT)  # it may not have seen the key
        try:
            child.wait(timeout=10)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            child.kill()
            child.wait()
        raise
    if code >= 0 and code not in (_CRASHED, _TOO_LARGE):
        return code
    if arguments[0] == "verify" and "--json" in arguments:
        from lastiterate.cli.output import print_json

        print_json("verify", {"verified": False, "reason": _why(code)})
    what = {"compose": "composed", _READ: "read"}.get(arguments[0], "verified")
    print(f"lastiterate: not {what}: {_why(code)}", file=sys.stderr)
    return CHECK_FAILED


def _why(code: int) -> str:
    ended = {-number for name in ("SIGXCPU", "SIGALRM", "SIGKILL") if (number := _signal(name))}
    if code == _TOO_LARGE or code in ended:
        return (
            "this takes more time or memory than the command allows a file that may be a "
            "stranger's. If you know who wrote it, allow more by --seconds and --megabytes."
        )
    return "the file broke the program that read it, so nothing about it is confirmed."


def _signal(name: str) -> int:
    return int(getattr(signal, name, 0))


def _in_here() -> int:
    """The second process: the command itself, whose unforeseen errors become a refusal."""
    from lastiterate.cli.main import complain, invoke
    from lastiterate.cli.output import escaped
    from lastiterate.errors import LastIterateError

    global _here
    _here = True
    try:
        return _read(sys.argv[2:]) if sys.argv[1:2] == [_READ] else invoke(sys.argv[1:])
    except LastIterateError as error:
        return complain(str(error))
    except MemoryError:
        return _TOO_LARGE
    except BrokenPipeError:
        raise
    except Exception as error:
        said = escaped(f"{type(error).__name__}: {error!s:.300}")
        print(f"lastiterate: {said}", file=sys.stderr)
        return _CRASHED


def _read(arguments: list[str]) -> int:
    """Everything of these files that those commands look at before they work."""
    from lastiterate.certificate import Certificate
    from lastiterate.models.saved import TableModel

    seconds, megabytes, *paths = arguments
    limit(float(seconds), int(megabytes))
    for path in map(Path, paths):
        model = TableModel.load(path).model if path.is_dir() else None
        claim = Certificate.load(path) if model is None else model.certificate_
        if claim is not None:
            _ = claim.unit, claim.mu
    return 0


if __name__ == "__main__":
    # As a module of that name: `limit` must find that this is the second process.
    from lastiterate.cli import confined as second
    from lastiterate.cli.main import leave

    leave(second._in_here)
