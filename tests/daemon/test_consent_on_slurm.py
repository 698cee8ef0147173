"""A script without a ``#RLALLOC`` line on a real site: resized, and the variables of consent are right in it."""

import os
from collections.abc import Iterator

import pytest

from rlalloc.config import Config
from rlalloc_testbed import Installation, install, start_site
from rlalloc_testbed.required_release import require
from slurm_testbed import wait_until

pytestmark = pytest.mark.slurm

RULES = Config().scripts
OF_STEPS = (*RULES.follows_cpus, *RULES.follows_memory)
FOLLOWS = (*RULES.follows, *RULES.follows_nodes, *RULES.follows_tasks, *OF_STEPS)
VARIABLES = [word[1:] for word in FOLLOWS if word.startswith("$")]
PRINTED = "\n".join(f'echo "{name}=${{{name}-unset}}"' for name in VARIABLES)
TRAINS = "train.py --model gpt2 --seq-length 1024 --global-batch-size 64 --micro-batch-size 4"
TORCHRUN = f"#!/bin/sh\n{PRINTED}\n: torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE {TRAINS}\n"
SRUN = f"#!/bin/sh\n#SBATCH --comment=x\n{PRINTED}\nsrun sh -c 'echo task of $SLURM_NTASKS'\n: lightning {TRAINS}\n"
LONG = f"{TORCHRUN}: {' '.join(f'--name-{number} {number}' for number in range(100))}\n"
"""More than rlalloc.lua looks at: rlallocd asks slurmctld for it."""
FORMS = {
    "per node": (TORCHRUN, ("--nodes=1", "--gpus-per-node=4", "--cpus-per-task=8")),
    "in all": (LONG, ("--nodes=1", "--gpus=4", "--cpus-per-task=8")),
    "gres": (TORCHRUN, ("--nodes=1", "--gres=gpu:4", "--cpus-per-gpu=2")),
    "a task per GPU": (SRUN, ("--nodes=1", "--gpus-per-node=4", "--ntasks-per-node=4", "--cpus-per-task=2")),
}

OF_TASKS = ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE")
UNSET = {
    "per node": ("SLURM_GPUS", *OF_TASKS),
    "in all": ("SLURM_GPUS_PER_NODE", *OF_TASKS),
    "gres": ("SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_CPUS_PER_TASK", *OF_TASKS),
    "a task per GPU": ("SLURM_GPUS",),
}
"""What Slurm does not set for each form, resized or not."""


@pytest.fixture(scope="module", params=("local", "trixie", *os.environ.get("RLALLOC_TEST_RELEASES", "").split()))
def busy(request: pytest.FixtureRequest) -> Iterator[Installation]:
    """An installation on a site with two free GPUs, for hours: what asks for four would wait."""
    release = None if request.param == "local" else request.param
    if release is not None:
        require(release)
    site_kind = {} if release is None else {"release": release}
    with start_site(f"consent-{request.param}-{os.getpid()}", nodes=1, **site_kind) as site:
        rule = {"name": "llm", "mode": "enforce", "bounds": {"moldable": {"gpus_factor": [0.5, 2]}}}
        installation = install(site, grace_s=60, rules=[rule])
        installation.start("rlalloc-agent")
        installation.start("rlallocd")
        filler = site.sbatch(
            "#!/bin/sh\nsleep 3600\n", options=["--gpus-per-node=6", "-c6", "--mem=1G", "--time=600"]
        )
        site.wait_for_states([filler], {"RUNNING"}, timeout_s=120)
        yield installation
        installation.stop_all()


@pytest.mark.parametrize("form", FORMS)
def test_a_script_that_follows_slurm_is_resized_and_sees_it(busy: Installation, form: str) -> None:
    script, options = FORMS[form]
    job_id = busy.submit(script, *options, "--mem=8G", "--time=60")
    decision = busy.decision(job_id)
    assert decision.reason == ""
    assert decision.bounds is not None
    assert decision.bounds.gpus.minimum_from == "consent", decision.bounds.script
    assert decision.allocation is not None
    assert decision.allocation.gpus == 2
    busy.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=120)
    wait_until(lambda: busy.output(job_id), what="the job's output", timeout_s=30)
    seen = dict(line.split("=", 1) for line in busy.output(job_id).splitlines() if "=" in line)
    size = decision.allocation
    right = {
        "SLURM_GPUS_ON_NODE": "2",
        "SLURM_GPUS": "2",
        "SLURM_GPUS_PER_NODE": "2",
        "SLURM_JOB_GPUS": 2,
        "CUDA_VISIBLE_DEVICES": 2,
        "RLALLOC_GPUS": "2",
        "RLALLOC_GPUS_PER_NODE": "2",
        "SLURM_NNODES": "1",
        "SLURM_JOB_NUM_NODES": "1",
        "RLALLOC_NODES": "1",
        "SLURM_NTASKS": str(size.tasks_per_node),
        "SLURM_NPROCS": str(size.tasks_per_node),
        "SLURM_NTASKS_PER_NODE": str(size.tasks_per_node),
        "SLURM_CPUS_PER_TASK": str(size.cpus_per_task),
        "SLURM_CPUS_ON_NODE": str(size.cpus_per_node),
        "RLALLOC_CPUS_PER_TASK": str(size.cpus_per_task),
        "SLURM_MEM_PER_NODE": str(size.mem_mib_per_node),
        "RLALLOC_MEM_MIB_PER_NODE": str(size.mem_mib_per_node),
    }
    right |= {"RLALLOC_DP": "2", "RLALLOC_TP": "1", "RLALLOC_PP": "1"}
    assert set(right) == set(VARIABLES)
    for name, value in right.items():
        found = len(seen[name].split(",")) if isinstance(value, int) and seen[name] != "unset" else seen[name]
        assert found == ("unset" if name in UNSET[form] else value), name
    assert busy.output(job_id).count("task of 2") == (2 if form == "a task per GPU" else 0)
    assert busy.explain(job_id)[0]["decision"]["bounds"]["script"]


def test_a_step_that_names_its_cpus_has_them(busy: Installation) -> None:
    """The last test of a site. With two of its GPUs, the job once had half of its CPUs, and its srun failed."""
    script = TORCHRUN.replace("\n: torchrun", "\nsrun --cpus-per-task=8 true || exit 1\n: torchrun")
    job_id = busy.submit(script, *FORMS["per node"][1], "--mem=8G", "--time=60")
    bounds = busy.decision(job_id).bounds
    assert bounds is not None
    assert bounds.gpu_counts == (4, 8)
    busy.site.run(["scancel", "--user=root"])
    busy.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=120)
