"""What the #SBATCH lines of a script ask for, as `rlalloc check` reads them."""

import pytest

from rlalloc.job import Allocation
from rlalloc_cli.sbatch_request import request_of, sbatch_lines


@pytest.mark.parametrize(
    ("lines", "size"),
    [
        ("", (1, 0, 1, 8, 64)),
        ("--gpus=0 -n 2", (1, 0, 2, 4, 64)),
        ("--gres=none -c 2", (1, 0, 1, 2, 64)),
        ("--nodes=2 --gpus-per-node=a100:4 --ntasks-per-node=4 --cpus-per-task=12 --mem=400G", (2, 4, 4, 12, 400)),
        ("-N2\n-n 8\n-c4\n--gres=gpu:4,nvme:1\n--mem-per-cpu=2G", (2, 4, 4, 4, 32)),
        ("--gpus=a100:8 --nodes 2 --cpus-per-gpu=6 --mem-per-gpu=50G", (2, 4, 1, 24, 200)),
        ("-G 2 # two", (1, 2, 1, 16, 128)),
        ("--gres=gpu:1g.10gb:2 -c 8 --mem=65536", (1, 2, 1, 8, 64)),
        ("--gpus-per-task=1 --ntasks-per-node=8", (1, 8, 8, 8, 512)),
        ("--nodes=2-4 --gpus-per-node=8 --mem=0 --exclusive", (2, 8, 1, 64, 512)),
        ("--gpus=8 --ntasks-per-gpu=1", (1, 8, 8, 8, 512)),
        ("-N 2 -n 8 --ntasks-per-gpu=2", (2, 2, 4, 4, 128)),
        ("--tres-per-task=gres/gpu:2 -n2", (1, 4, 2, 16, 256)),
        ("--tres-per-task=cpu=4,gres/gpu:a100=2 -N2 --ntasks-per-node=2 --mem-per-cpu=1G", (2, 4, 2, 4, 8)),
        ("--tres-per-task=gres:shard:3,cpu:2", (1, 3, 1, 2, 192)),
        ("--gpus-per-socket=2 --sockets-per-node=2", (1, 4, 1, 32, 256)),
        ("--gpus-per-socket=a100:2 -B 2:16:1 -c 4", (1, 4, 1, 4, 256)),
        ("--gpus-per-node=4 --tasks-per-node=4", (1, 4, 4, 8, 256)),
        ("--gpus-per-node=4 --ntasks-per-gpu=2 -N 2 --cpus-per-gpu=8", (2, 4, 8, 4, 256)),
        ("-n 16 --ntasks-per-node=8 --gpus-per-node=8", (2, 8, 8, 8, 512)),
        ("--gpus-per-node=2\n\n # a comment alone\n-c 3", (1, 2, 1, 3, 128)),
        ("--gpus-per-node=2 --mem=1.2.3G", (1, 2, 1, 16, 128)),
        ("--gres=gpu --cpus-per-task=x --mem=lots --comment='unclosed", (1, 1, 1, 8, 64)),
    ],
)
def test_sizes(lines: str, size: tuple[int, int, int, int, int]) -> None:
    """Nodes, GPUs and tasks of one, CPUs of a task, GiB of a node; 8 CPUs and 64 GiB a GPU where nothing is said.

    Without GPUs, it is the same as for one.
    """
    nodes, gpus, tasks, cpus, gib = size
    assert request_of(lines, 8, 65_536).size == Allocation(nodes, gpus, tasks, cpus, gib * 1024, 3600)


def test_what_the_lines_state_is_told_from_what_is_assumed() -> None:
    found = request_of("--gpus-per-node=4 --mem=100G", 8, 65_536)
    assert (found.states_cpus, found.states_memory) == (False, True)
    assert request_of("--cpus-per-gpu=4", 8, 65_536).states_cpus


def test_the_lines_are_those_of_sbatch() -> None:
    script = b"#!/bin/sh\n#SBATCH --nodes=2\n\n # SBATCH -N4\n#SBATCH\t-c 4\n##SBATCH -c 8\necho a\n#SBATCH -N8\n"
    assert sbatch_lines(script).split() == ["--nodes=2", "-c", "4"]
