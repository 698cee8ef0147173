"""What a script's words allow, and the bounds that follow."""

import pytest

from rlalloc.bounds import MoldableBounds, NodeShape, SiteBounds, bounds_for, parse_directives
from rlalloc.consent import Consent, consent_of, kind_of
from rlalloc.job import Allocation, Bounds
from rlalloc.script_rules import ScriptRules

RULES = ScriptRules()
SHAPE = NodeShape(gpus=8, cpus=64, mem_mib=512_000)
FOLLOWS = "nproc-per-node=$SLURM_GPUS_ON_NODE"


def request(gpus: int = 8, nodes: int = 1, tasks: int = 1) -> Allocation:
    return Allocation(nodes, gpus, tasks, 64 // tasks, 400_000, 3600)


def consent(*words: str, serve: bool = False, task_per_gpu: bool = False) -> Consent:
    return consent_of(words, RULES, job_class="serve" if serve else "train", task_per_gpu=task_per_gpu)


SHIPPED = SiteBounds(moldable=MoldableBounds(gpus_factor=(0.5, 2)))


def bounds(*words: str, ask: str = "", site: SiteBounds | None = None, size: Allocation | None = None) -> Bounds:
    directives = parse_directives(ask)
    return bounds_for(size or request(), directives, site or SHIPPED, SHAPE, None, consent(*words))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("$SLURM_GPUS_ON_NODE", "follows"),
        ("${SLURM_GPUS_ON_NODE}", "follows"),
        ("${SLURM_GPUS_ON_NODE:-8}", "follows"),
        ("$((SLURM_NNODES*SLURM_GPUS_ON_NODE))", "follows"),
        ("$((SLURM_NNODES*8))", "number"),
        ("$SLURM_NNODES", "unknown"),
        ("$(nvidia-smi_-L___wc_-l)", "follows"),
        ("$(cat_gpus)", "unknown"),
        ("gpu", "follows"),
        ("gpu:8", "number"),
        ("a100:$SLURM_GPUS_ON_NODE", "follows"),
        ("0,1,2,3", "number"),
        ("-1", "follows"),
        ("-2", "number"),
        ("8", "number"),
        ("$1", "unknown"),
        ("$GPUS", "unknown"),
        ("$GPUS$SLURM_GPUS_ON_NODE", "unknown"),
        ("", "unknown"),
        ("_", "unknown"),
    ],
)
def test_values(value: str, kind: str) -> None:
    assert kind_of(value, RULES.follows, RULES.follows_nodes) == kind


def test_a_script_that_follows_slurm_gets_the_sites_range() -> None:
    """Without a #RLALLOC line; and the bounds name the sign."""
    found = bounds(FOLLOWS, "torchrun")
    assert found.gpu_counts == (4, 8)
    assert (found.gpus.minimum_from, found.gpus.maximum_from) == ("consent", "consent")
    assert found.script.endswith(FOLLOWS)


@pytest.mark.parametrize("words", [("nproc-per-node=8", FOLLOWS), ("nproc-per-node=$N",), ("torchrun",), ()])
def test_without_consent_the_count_stays(words: tuple[str, ...]) -> None:
    assert bounds(*words).gpu_counts == (8,)


def test_a_rule_that_does_not_mention_consent_keeps_the_count() -> None:
    """So that a site which upgrades is not surprised."""
    assert bounds(FOLLOWS, "torchrun", site=SiteBounds()).gpu_counts == (8,)


def test_the_user_and_the_rules_own_range_win() -> None:
    assert bounds("nproc-per-node=8", ask="gpus=1-2").gpu_counts == (1, 2)
    assert bounds(FOLLOWS, ask="gpus=8").gpu_counts == (8,)
    assert bounds("nproc-per-node=8", site=SiteBounds(gpus_factor=(0.5, 1))).gpu_counts == (4, 8)
    assert bounds(FOLLOWS, site=SiteBounds(moldable=MoldableBounds(gpus_factor=None))).gpu_counts == (8,)


def test_a_launcher_on_one_node_stays_there() -> None:
    """A torchrun without --nnodes; with it, the nodes may change."""
    wide = SiteBounds(moldable=MoldableBounds(gpus_factor=(0.25, 4)))
    assert bounds(FOLLOWS, site=wide).gpu_counts == (2, 4, 8)
    assert bounds(FOLLOWS, site=wide, size=request(nodes=2)).gpu_counts == (16,)
    many = bounds(FOLLOWS, "nnodes=$SLURM_NNODES", site=wide, size=request(nodes=2))
    assert many.gpu_counts == (4, 8, 16, 24, 32, 40, 48, 56, 64)
    assert bounds(FOLLOWS, "nnodes=2", site=wide, size=request(nodes=2)).gpu_counts == (16,)


def test_counts_that_do_not_divide_the_global_batch_are_left_out() -> None:
    """24 sequences in micro-batches of 3 go on 8, 4, 2 or 1 GPUs, and not on 16."""
    wide = SiteBounds(moldable=MoldableBounds(gpus_factor=(0.125, 4)))
    batch = (FOLLOWS, "nnodes=$SLURM_NNODES", "global-batch-size=24", "micro-batch-size=3")
    assert bounds(*batch, site=wide).gpu_counts == (1, 2, 4, 8)
    fixed = (*batch, "gradient-accumulation-steps=1")
    assert bounds(*fixed, site=wide).gpu_counts == (8,)
    parallel = (FOLLOWS, "global-batch-size=64", "tensor-model-parallel-size=2", "pipeline-model-parallel-size=2")
    assert bounds(*parallel, site=wide).gpu_counts == (4, 8)


def test_batches_per_gpu_alone_keep_the_count_unless_the_site_says_so() -> None:
    words = (FOLLOWS, "per-device-train-batch-size=4")
    assert bounds(*words).gpu_counts == (8,)
    assert "global batch follows" in bounds(*words).script
    assert bounds(
        *words, site=SiteBounds(moldable=MoldableBounds(gpus_factor=(0.5, 2), batch_may_change=True))
    ).gpu_counts == (4, 8)
    assert bounds(*words, ask="gpus=4-8").gpu_counts == (4, 8)


def test_a_model_spread_over_gpus_does_not_get_fewer() -> None:
    """Fewer may not hold it: FSDP, DeepSpeed, and a server's tensor parallelism."""
    wide = SiteBounds(moldable=MoldableBounds(gpus_factor=(0.5, 2)))
    four = request(gpus=4)
    assert bounds(FOLLOWS, "fsdp=full_shard", site=wide, size=four).gpu_counts == (4, 8)
    assert consent("tensor-parallel-size=$SLURM_GPUS_ON_NODE", serve=True).shards


@pytest.mark.parametrize("serve", [False, True])
def test_tasks_tell_of_gpus_only_where_each_has_its_own(*, serve: bool) -> None:
    assert consent("srun", "srun-n=$SLURM_NTASKS", task_per_gpu=True, serve=serve).moldable
    assert not consent("srun", "srun-n=$SLURM_NTASKS", serve=serve).moldable
    assert not consent("nproc-per-node=$SLURM_NTASKS", serve=serve).moldable
    assert consent("nproc-per-node=$SLURM_NTASKS", task_per_gpu=True, serve=serve).moldable


def test_cpus_and_memory_that_the_script_fixes_are_not_trimmed() -> None:
    """Or else its own srun would fail."""
    floors = SiteBounds(min_cpus_per_gpu=2, min_mem_mib_per_gpu=1024)
    assert bounds(FOLLOWS, site=floors).cpus_per_gpu.minimum == 2
    fixed = bounds(FOLLOWS, "cpus-per-task=64", "mem=400G", site=floors)
    assert fixed.cpus_per_gpu.minimum == 8
    assert fixed.mem_mib_per_gpu.minimum == 50_000
    assert bounds(FOLLOWS, "srun-c=$SLURM_CPUS_PER_TASK", "mem=0", site=floors).cpus_per_gpu.minimum == 2


def test_words_that_were_not_all_read_allow_nothing() -> None:
    found = consent_of(None, RULES, job_class="train", task_per_gpu=True)
    assert not found.moldable
    assert found.cpus_fixed
    assert found.memory_fixed


@pytest.mark.parametrize("word", ["deepspeed", "deepspeed=/images/x.sif", "deepspeed=&&"])
def test_the_name_of_an_environment_is_no_launcher(word: str) -> None:
    """``conda activate deepspeed``, ``apptainer exec deepspeed /images/x.sif``."""
    assert not consent(word).moldable
    assert consent("deepspeed=train.py").moldable
