"""Writes packages/lock/*.txt: the exact versions of all Python libraries that rlalloc's packages contain.

A layer lists what it adds to those before it, so that each library is in one package only. Run it by ``make lock``
when pyproject.toml changes or libraries are to be renewed; it asks pip's index.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[1]
LOCKS: Final = PROJECT / "packages" / "lock"
TORCH: Final = "torch==2.13.0"
LAYERS: Final = {
    "controller": (f"{PROJECT}[daemon,mysql,postgresql]",),
    "torch": (TORCH, f"{PROJECT}[agent]"),
    "trainer": (TORCH, f"{PROJECT}[trainer]"),
    "build": ("setuptools>=77",),
}
"""What each layer needs; ``build`` is only used while packages are built."""


def resolve(requirements: Sequence[str], pinned: dict[str, str]) -> dict[str, str]:
    """What pip would install: versions by name. ``pinned`` may not change."""
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in pinned.items()))
        options = ("--dry-run", "--ignore-installed", "--quiet", "--report", "-", "-c", str(constraints))
        command = [sys.executable, "-m", "pip", "install", *options, *requirements]
        report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    found = {each["metadata"]["name"]: each["metadata"]["version"] for each in report["install"]}
    # A local version such as +cpu says who built it, and another index has the same release without it.
    return {name: version.partition("+")[0] for name, version in found.items() if name != "rlalloc"}


def main() -> None:
    """Write all layers."""
    pinned: dict[str, str] = {}
    for layer, requirements in LAYERS.items():
        known = {} if layer == "build" else pinned
        found = resolve(requirements, known)
        added = {name: version for name, version in found.items() if name not in known}
        lines = [f"{name}=={version}\n" for name, version in sorted(added.items(), key=lambda each: each[0].lower())]
        head = f"# Python libraries of the layer '{layer}'; written by make lock\n"
        if layer == "torch":
            head += "# torch is the build for CPUs: scripts/torch_for_cpus.py refuses another\n"
        (LOCKS / f"{layer}.txt").write_text(head + "".join(lines))
        pinned |= added


if __name__ == "__main__":
    main()
