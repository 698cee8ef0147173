"""Says whether pip would take PyTorch's build for CPUs, before anything is downloaded or installed.

    torch_for_cpus.py PYTHON REQUIREMENT [PIP OPTION ...]

``PYTHON`` has the pip that is asked. The build for GPUs comes with gigabytes of libraries that rlalloc does not use
and does not pin. Exit: 0 for the build for CPUs, 1 where pip finds none, 3 for another build. It needs nothing but
Python's standard library.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_GPU_LIBRARIES: Final = re.compile(r"(nvidia|cuda|triton|pytorch-triton|intel-)", re.IGNORECASE)
REFUSAL: Final = """\
pip would take PyTorch {version}, which is built for GPUs{libraries}. rlalloc runs on the build for CPUs. Give one of
these, then run this again:
  RLALLOC_TORCH_INDEX=URL    PyTorch's package index of builds for CPUs. PyTorch's page "Start Locally" shows the
                             address if you choose Linux, Pip and CPU.
  RLALLOC_TORCH=FILE         a wheel of the build for CPUs, torch-{release}+cpu-*.whl
  RLALLOC_TORCH_BUILD=any    to take the build for GPUs nevertheless: several GB"""


def build_of(metadata: Mapping[str, Any]) -> str:
    """What a wheel's metadata shows of its build: empty for CPUs, else what it brings."""
    local = str(metadata["version"]).partition("+")[2]
    if local.startswith("cpu"):
        return ""
    libraries = [each for each in metadata.get("requires_dist") or () if _GPU_LIBRARIES.match(each)]
    if libraries:
        return f" and brings {len(libraries)} further libraries"
    return f" ({local})" if local.startswith(("cu", "rocm", "xpu")) else ""


def cuda_of(site_packages: Path) -> str | None:
    """The version of CUDA for which an unpacked torch is built; None for CPUs. Raises OSError, ValueError."""
    text = (site_packages / "torch" / "version.py").read_text(encoding="utf-8")
    found = re.search(r"^cuda\b[^=]*=\s*(None|'([^']*)'|\"([^\"]*)\")", text, re.MULTILINE)
    if found is None:
        raise ValueError("torch/version.py does not say for what it is built")
    return found[2] or found[3]


def main() -> int:
    """Ask pip."""
    python, requirement, *options = sys.argv[1:]
    command = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--dry-run", "--quiet"]
    command += ["--ignore-installed", "--no-deps", "--report", "-", *options, requirement]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return 1
    (found,) = json.loads(done.stdout)["install"]
    build = build_of(found["metadata"])
    if build:
        version = found["metadata"]["version"]
        sys.stderr.write(REFUSAL.format(version=version, libraries=build, release=version.partition("+")[0]) + "\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
