"""Which build of PyTorch is taken, before anything is downloaded: pip is asked, of a folder of wheels made here."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "torch_for_cpus.py"
sys.path.insert(0, str(SCRIPT.parent))
from torch_for_cpus import cuda_of  # noqa: E402 (a script, in no package)


def make_wheel(folder: Path, version: str, *requires: str) -> None:
    """A wheel with nothing but metadata."""
    head = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
    lines = "".join(f"Requires-Dist: {each}\n" for each in requires)
    with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as wheel:
        notes = f"torch-{version}.dist-info"
        wheel.writestr(f"{notes}/METADATA", head + lines)
        wheel.writestr(f"{notes}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{notes}/RECORD", "")


def asked(folder: Path) -> "subprocess.CompletedProcess[str]":
    options = ["--isolated", "--no-index", "--find-links", str(folder)]
    command = [sys.executable, str(SCRIPT), sys.executable, "torch==9.9.0", *options]
    environment = {**os.environ, "PIP_CONFIG_FILE": os.devnull}  # a machine may have constraints of its own
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("version", "requires", "status"),
    [
        ("9.9.0+cpu", ("filelock",), 0),
        ("9.9.0", ("filelock",), 0),
        ("9.9.0", ("filelock", "nvidia-cublas-cu12==1; platform_system == 'Linux'", "triton==3"), 3),
        ("9.9.0+cu130", ("filelock",), 3),
        ("9.9.0+rocm7", ("filelock",), 3),
    ],
)
def test_a_build_for_gpus_is_refused(tmp_path: Path, version: str, requires: tuple[str, ...], status: int) -> None:
    """With what to do instead, as the public index has only builds for GPUs."""
    make_wheel(tmp_path, version, *requires)
    done = asked(tmp_path)
    assert done.returncode == status, done.stderr
    for words in ("RLALLOC_TORCH_INDEX", "RLALLOC_TORCH=", "torch-9.9.0+cpu-*.whl"):
        assert (words in done.stderr) == (status == 3)


def test_an_index_without_it_is_told(tmp_path: Path) -> None:
    assert asked(tmp_path).returncode == 1


@pytest.mark.parametrize(
    ("line", "cuda"),
    [("cuda: Optional[str] = None", None), ("cuda: Optional[str] = '13.0'", "13.0"), ('cuda = "12.4"', "12.4")],
)
def test_what_an_unpacked_torch_is_built_for(tmp_path: Path, line: str, cuda: str | None) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '9.9.0'\n{line}\nhip = None\n")
    assert cuda_of(tmp_path) == cuda


def test_the_torch_of_the_tests_is_for_cpus() -> None:
    """As `make install` made it on a machine that offers that build."""
    import torch

    assert cuda_of(Path(torch.__file__).parents[1]) == torch.version.cuda
