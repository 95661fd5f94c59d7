"""Run every benchmark, print one table, save it with the machine's description.

Each module of this package with a function ``rows()`` returns a list of measurements: name, goal,
measured (as text or numbers), and ok (whether the goal is met; None where there is no goal).
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import platform
import sys
import time
from pathlib import Path
from typing import Any

import benchmarks

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "system": platform.system(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
        "date": time.strftime("%Y-%m-%d"),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main(wanted: list[str]) -> int:
    """Measure, print, save; return 1 if a goal is missed."""
    modules = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name[0] != "_")
    missed = 0
    for name in wanted or modules:
        module = importlib.import_module(f"benchmarks.{name}")
        if not hasattr(module, "rows"):
            continue
        rows = module.rows()
        print(f"\n{name}")
        for row in rows:
            mark = {True: "ok", False: "MISSED", None: "  "}[row.get("ok")]
            missed += row.get("ok") is False
            print(f"  {mark:>6}  {row['name']:<60} {_text(row['measured']):>14}  {row['goal']}")
        if not rows:  # what it needs is missing: what was measured elsewhere stays
            continue
        RESULTS.mkdir(exist_ok=True)
        saved = {"machine": machine(), "rows": rows}
        (RESULTS / f"{name}.json").write_text(json.dumps(saved, indent=2, default=str) + "\n")
    print(f"\n{missed} goals missed; saved under {RESULTS.name}/")
    return 1 if missed else 0


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
