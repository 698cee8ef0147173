"""The examples of etc/examples on a real site: resized, as submitted, and without rlalloc.

torchrun and ``accelerate launch`` are the real ones, and train the demo's GPT with gloo. Without an accelerator in
the machine, Accelerate starts several processes only if it is told to (--multi_gpu). vLLM is the real one, too, on
CPUs and with a tiny model (plan_examples/serve_vllm.py); scripts/install-vllm.sh installs it.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlalloc.store import Decision
from rlalloc_testbed import Installation, install, start_site
from slurm_testbed import wait_until

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "etc" / "examples"
PROGRAMS = Path(__file__).parent / "plan_examples"
RENDEZVOUS = "--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:0 --local-addr=127.0.0.1"
"""In the place of --standalone, as docs/user.md says for nodes that cannot resolve localhost."""
VLLM = Path(sys.prefix).resolve() / "vllm"
REQUEST = ("--gpus-per-node=4", "--cpus-per-task=8", "--mem=8G", "--time=60")
SMALL = ("--gpus-per-node=2", "--cpus-per-task=4", "--mem=4G", "--time=60")


@pytest.fixture(scope="module")
def busy() -> Iterator[Installation]:
    """An installation on a site with two free GPUs, for hours: what asks for four would wait."""
    with start_site(f"plans-{os.getpid()}", nodes=1) as site:
        rule = {"name": "llm", "mode": "enforce", "bounds": {"moldable": {"gpus_factor": [0.5, 2]}}}
        installation = install(site, grace_s=60, rules=[rule])
        installation.start("rlalloc-agent")
        installation.start("rlallocd")
        filler = site.sbatch(
            "#!/bin/sh\nsleep 3600\n", options=["--gpus-per-node=6", "-c6", "--mem=1G", "--time=600"]
        )
        site.wait_for_states([filler], {"RUNNING"}, timeout_s=120)
        programs = site.directory / "programs"
        programs.mkdir()
        rendezvous = f'set -- $(echo "$*" | sed "s/--standalone/{RENDEZVOUS}/")'
        commands = {
            "torchrun": f'{rendezvous}\nexec {sys.executable} -m torch.distributed.run "$@"',
            "accelerate": 'shift; case "$*" in *--num_processes\\ 1\\ *) ;; *) set -- --multi_gpu "$@" ;; esac\n'
            f'exec {sys.executable} -m accelerate.commands.launch "$@"',
            "vllm": f'exec {sys.executable} {PROGRAMS}/serve_vllm.py {VLLM}/bin/python "$@"',
        }
        for name, command in commands.items():
            (programs / name).write_text(f"#!/bin/sh\n{command}\n")
            (programs / name).chmod(0o755)
        programs.chmod(0o755)
        yield installation
        installation.stop_all()


def example(busy: Installation, name: str, directive: str = "", **changes: str) -> str:
    """An example's script, to be run in the folder of its training program."""
    script = (EXAMPLES / f"{name}.sbatch").read_text()
    for old, new in changes.items():
        assert old in script
        script = script.replace(old, new)
    head, rest = script.split("\n", 1)
    paths = f"export PATH={busy.site.directory}/programs:$PATH PYTHONPATH={ROOT}/demo OMP_NUM_THREADS=1"
    return f"{head}\n{directive}\n{paths} GLOO_SOCKET_IFNAME=lo\ncd {PROGRAMS}\nenv | grep RLALLOC_ | sort\n{rest}"


def run(busy: Installation, script: str, options: tuple[str, ...]) -> tuple[int, str]:
    job_id = busy.submit(script, *options)
    busy.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=600)
    wait_until(lambda: busy.output(job_id), what="the job's output", timeout_s=30)
    return job_id, busy.output(job_id)


def decided(busy: Installation, job_id: int) -> Decision:
    decision = busy.decision(job_id)
    assert decision.reason == ""
    assert decision.allocation is not None
    return decision


LINES = {
    "torchrun": "trained by torch: DP {data} TP {tensor} on {gpus} processes, a batch of 64",
    "accelerate": "trained by Accelerate: DP {data} TP {tensor} on {gpus} processes, a batch of 64",
    "vllm": "served meta-llama/Llama-2-70b-hf: DP {data} TP {tensor} PP 1 on {gpus} GPUs, 4 tokens",
}


ACCELERATE = pytest.param(
    "accelerate",
    marks=[
        pytest.mark.slow,
        pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed"),
    ],
)
needs_vllm = pytest.mark.skipif(
    not (VLLM / "rlalloc.stamp").exists(), reason="no vLLM; scripts/install-vllm.sh installs it"
)
SERVED = pytest.param("vllm", marks=[pytest.mark.slow, needs_vllm])


@pytest.mark.parametrize("name", ["torchrun", ACCELERATE])
def test_a_resized_example_runs_by_its_plan(busy: Installation, name: str) -> None:
    """No #RLALLOC line: the script takes its size from Slurm, and states its model and its global batch."""
    job_id, output = run(busy, example(busy, name), REQUEST)
    size = decided(busy, job_id).allocation
    assert size is not None
    assert size.gpus == 2
    assert "RLALLOC_DP=2\nRLALLOC_GPUS=2\n" in output
    assert LINES[name].format(data=2, tensor=1, gpus=2) in output


@pytest.mark.slow
@needs_vllm
def test_a_resized_server_gets_as_many_ranks_as_its_model_needs(busy: Installation) -> None:
    """Llama 2 70B needs two A100 of 80 GiB: the bounds, the plan and the server agree."""
    job_id, output = run(busy, example(busy, "vllm", "#RLALLOC gpus=1-4"), REQUEST)
    decision = decided(busy, job_id)
    assert decision.bounds is not None
    assert decision.bounds.gpus.minimum_from == "model"
    assert "RLALLOC_DP=1\nRLALLOC_GPUS=2\n" in output
    assert "RLALLOC_PP=1\nRLALLOC_TP=2\n" in output
    assert LINES["vllm"].format(data=1, tensor=2, gpus=2) in output
    assert busy.explain(job_id)[0]["decision"]["circumstances"]["plan"] == {"data": 1, "tensor": 2, "pipeline": 1}


RANKS = {"torchrun": (2, 1), "accelerate": (2, 1), "vllm": (1, 2)}
"""Of each example on two GPUs, data- and tensor-parallel ones."""


@pytest.mark.parametrize("name", ["torchrun", SERVED])
def test_an_example_as_submitted_has_a_plan_too(busy: Installation, name: str) -> None:
    """Nothing is changed, so that no update is needed; the plan of a known model comes as a note of its own."""
    job_id, output = run(busy, example(busy, name, "#RLALLOC gpus=2"), SMALL)
    decision = decided(busy, job_id)
    assert decision.allocation == decision.request
    data, tensor = RANKS[name]
    assert f"RLALLOC_DP={data}\nRLALLOC_GPUS=2\n" in output
    assert LINES[name].format(data=data, tensor=tensor, gpus=2) in output


def test_the_users_own_tensor_parallelism_is_kept(busy: Installation) -> None:
    """It trains with two tensor-parallel ranks for real."""
    stated = {'"${RLALLOC_TP:-1}"': "2", '"${RLALLOC_PP:-1}"': "1"}
    job_id, output = run(busy, example(busy, "torchrun", "#RLALLOC gpus=2-4", **stated), REQUEST)
    size = decided(busy, job_id).allocation
    assert size is not None
    assert size.gpus == 2
    assert "RLALLOC_DP=1\nRLALLOC_GPUS=2\n" in output
    assert "RLALLOC_PP=1\nRLALLOC_TP=2\n" in output
    assert LINES["torchrun"].format(data=1, tensor=2, gpus=2) in output


@pytest.mark.parametrize("name", ["torchrun", ACCELERATE, SERVED])
def test_without_rlalloc_an_example_runs_as_well(busy: Installation, name: str) -> None:
    """The values behind ``:-`` hold. Last of all: rlallocd is stopped for good."""
    if "rlallocd" in busy.processes:
        busy.stop("rlallocd")
    _, output = run(busy, example(busy, name), SMALL)
    data, tensor = RANKS[name]
    assert "RLALLOC_" not in output
    assert LINES[name].format(data=data, tensor=tensor, gpus=2) in output
