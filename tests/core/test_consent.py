"""What a script's words allow, and the bounds that follow."""

from fractions import Fraction

import msgspec
import pytest

from rlalloc.bounds import MoldableBounds, NodeShape, SiteBounds, bounds_for, parse_directives
from rlalloc.job import Allocation, Bounds, Range
from rlalloc.scripts.consent import Consent, consent_of
from rlalloc.scripts.script_rules import ScriptRules
from rlalloc.scripts.script_sizes import formula_value, kind_of

RULES = ScriptRules()
SHAPE = NodeShape(gpus=8, cpus=64, mem_mib=512_000)
FOLLOWS = "nproc-per-node=$SLURM_GPUS_ON_NODE"
NODES = "nnodes=$SLURM_NNODES"
BATCH = ("global-batch-size=256", "micro-batch-size=1")
"""A script that states both may change its count; it accumulates what is left."""


def request(gpus: int = 8, nodes: int = 1, tasks: int = 1) -> Allocation:
    return Allocation(nodes, gpus, tasks, 64 // tasks, 400_000, 3600)


def consent(*words: str, serve: bool = False, task_per_gpu: bool = False) -> Consent:
    return consent_of(words, RULES, job_class="serve" if serve else "train", task_per_gpu=task_per_gpu)


SHIPPED = SiteBounds(moldable=MoldableBounds(gpus_factor=(0.5, 2)))
WIDE = SiteBounds(moldable=MoldableBounds(gpus_factor=(0.125, 4)))
ANY_BATCH = SiteBounds(moldable=MoldableBounds(gpus_factor=(0.5, 2), batch_may_change=True))


def bounds(*words: str, ask: str = "", site: SiteBounds = SHIPPED, size: Allocation | None = None) -> Bounds:
    return bounds_for(size or request(), parse_directives(ask), site, SHAPE, None, consent(*words))


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
        ("$(nvidia-smi_-L_2_/dev/null___wc_-l)", "follows"),
        ("$(nvidia-smi_-L___head_-4___wc_-l)", "unknown"),
        ("$(nvidia-smi_-L___tail___wc_-l)", "unknown"),
        ("$(echo_$CUDA_VISIBLE_DEVICES___tr__,____n____wc_-l)", "follows"),
        ("$(echo_$CUDA_VISIBLE_DEVICES___cut_-d,_-f1)", "unknown"),
        ("$(python3_-c__import_torch__print(torch.cuda.device_count())", "follows"),
        ("$(cat_gpus)", "unknown"),
        ("gpu", "follows"),
        ("gpu:8", "number"),
        ("a100:$SLURM_GPUS_ON_NODE", "follows"),
        ("0,1,2,3", "number"),
        ("-1", "follows"),
        ("-2", "number"),
        ("8", "number"),
        ("${NUM_GPUS:-8}", "number"),
        ("${1:-8}", "unknown"),
        ("$1", "unknown"),
        ("$GPUS", "unknown"),
        ("$GPUS$SLURM_GPUS_ON_NODE", "unknown"),
        ("${SLURM_GPUS_ON_NODE%1}", "unknown"),
        ("${SLURM_GPUS_ON_NODE:-8}${SLURM_GPUS_ON_NODE%1}", "unknown"),
        ("${SLURM_GPUS_ON_NODE:-8}0${SLURM_GPUS_ON_NODE}", "unknown"),
        ("${SLURM_GPUS_ON_NODE:-${SLURM_GPUS_ON_NODE:-4}}", "follows"),
        ("${SLURM_GPUS_ON_NODE_1}", "unknown"),  # as the plugin writes it
        ("${SLURM_GPUS_ON_NODE/8/4}", "unknown"),
        ("${SLURM_GPUS_ON_NODE:_4}", "unknown"),  # :+4
        ("${SLURM_GPUS_ON_NODE:0:1}", "unknown"),
        ("${_SLURM_GPUS_ON_NODE}", "unknown"),  # its length
        ("${SLURM_GPUS_ON_NODE}0", "unknown"),
        ("1$SLURM_GPUS_ON_NODE", "unknown"),
        ("$SLURM_GPUS_ON_NODE-1", "unknown"),
        ("${SLURM_GPUS_PER_NODE:-${SLURM_GPUS_ON_NODE:-8}}", "follows"),
        ("${SLURM_GPUS_PER_NODE:-${SLURM_GPUS_ON_NODE:-8}}0", "unknown"),
        ("_$SLURM_GPUS_ON_NODE", "follows"),  # of \$SLURM_GPUS_ON_NODE in quotes
        ("$(expr_$SLURM_GPUS_ON_NODE_-_$K)", "unknown"),
        ("", "unknown"),
        ("_", "unknown"),
    ],
)
def test_values(value: str, kind: str) -> None:
    assert kind_of(value, RULES.follows, RULES.follows_nodes) == kind


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("$(scontrol_show_hostnames_$SLURM_JOB_NODELIST___wc_-l)", "follows"),
        ("$(/usr/bin/scontrol_show_hostname___wc_-l)", "follows"),
        ("$(_scontrol_show_hostnames__${SLURM_NODELIST}____sort_-u___wc_-w_)", "follows"),
        ("$(scontrol_show_hostnames_$SLURM_JOB_NODELIST_2_/dev/null___uniq___wc_--lines)", "follows"),
        ("$(scontrol_show_hostnames_$PREFERRED___wc_-l)", "unknown"),
        ("$(scontrol_show_hostnames_$SLURM_JOB_NODELIST_HET_GROUP_1___wc_-l)", "unknown"),
        ("$(scontrol_show_hostnames_${SLURM_JOB_NODELIST__,*}___wc_-l)", "unknown"),
        ("$(scontrol_show_hostnames_${SLURM_JOB_NODELIST:-$OTHER}___wc_-l)", "unknown"),
        ("$(scontrol_show_hostnames_$SLURM_JOB_NODELIST___grep_gpu___wc_-l)", "unknown"),
        ("$(scontrol_show_hostnames_$SLURM_JOB_NODELIST___awk__/gpu/____wc_-l)", "unknown"),
        ("$(scontrol_show_hostnames_$SLURM_JOB_NODELIST___uniq_-d___wc_-l)", "unknown"),
        ("$(scontrol_show_hostnames_$SLURM_JOB_NODELIST_", "unknown"),  # quotes inside of quotes
        ("$(scontrol_show_hostnames___grep_-c_gpu)", "unknown"),
        ("$(scontrol_show_hostnames_$SLURM_JOB_NODELIST___grep_-v_$MASTER___wc_-l)", "unknown"),
        ("$(scontrol_show_hostnames___grep_-cv_$MASTER)", "unknown"),
        ("$(scontrol_show_hostnames___egrep_-c_$MASTER_-v)", "unknown"),
        ("$(scontrol_show_hostnames___grep_--invert-match_$MASTER___wc_-l)", "unknown"),
        ("$(scontrol_show_partition_gpu___grep_-o_TotalNodes)", "unknown"),
        ("$(scontrol_show_nodes___wc_-l)", "unknown"),
    ],
)
def test_counts_of_nodes(value: str, kind: str) -> None:
    """Of scontrol, the list of the job's nodes as a whole; once, most parts of it counted, and any other list."""
    assert kind_of(value, RULES.follows_nodes) == kind


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("$((64/SLURM_GPUS_ON_NODE))", 16),
        ("$((64/(4*SLURM_GPUS_ON_NODE))", 4),  # the plugin reads to the first pair of brackets
        ("$((SLURM_NNODES*SLURM_GPUS_ON_NODE))", 8),
        ("$((64/3))", None),  # the shell would round
        ("$((4/SLURM_GPUS))", None),
        ("$((64/SLURM_NTASKS))", None),  # tasks are no GPUs here
        ("$((64/N))", None),
        ("$((2-2))", None),
        ("$((SLURM_GPUS_ON_NODE_4_4:8))", None),
        ("$((__import__(os).x))", None),
        ("$((" + "(" * 300, None),
        ("$((9**9**9**9))", None),
    ],
)
def test_formulas(formula: str, value: int | None) -> None:
    found = formula_value(formula, request(4, nodes=2), task_per_gpu=False)
    assert found == (None if value is None else Fraction(value))


def test_a_script_that_follows_slurm_and_states_its_batch_gets_the_sites_range() -> None:
    """Without a #RLALLOC line; and the bounds name the sign."""
    found = bounds(FOLLOWS, "torchrun", *BATCH)
    assert found.gpu_counts == (4, 8)
    assert (found.gpus.minimum_from, found.gpus.maximum_from) == ("consent", "consent")
    assert found.script.endswith(FOLLOWS)


@pytest.mark.parametrize(
    "words",
    [("nproc-per-node=8", FOLLOWS), ("nproc-per-node=$N",), ("nproc-per-node", FOLLOWS), ("torchrun",), ()],
)
def test_without_consent_the_count_stays(words: tuple[str, ...]) -> None:
    assert bounds(*words, *BATCH).gpu_counts == (8,)


@pytest.mark.parametrize(
    ("word", "sign"),
    [
        ("devices=4", "states a count"),  # --trainer.devices=4
        ("tensor-model-parallel-size=${1:-8}", "parallel size that cannot be read"),
        ("expert-model-parallel-size=$EP", "parallel size that cannot be read"),
        ("global-batch-size=$GBS", "its global batch cannot be read"),
        ("data-parallel-shard-degree=2", "states a count"),
        ("sharding-group-size=4", "states a count"),
        ("mesh-dim=1,8,1", "right for one GPU count only"),
        ("states.vllm-tensor-parallel-size=2", "states a count: vllm-tensor-parallel-size=2"),
        ("states.gpu-ids=0,1", "states a count"),
        ("states.gpu=$i", "count that cannot be read: gpu=$i"),
        ("cuda=1", "names one of its GPUs"),
        ("cuda=$i", "names one of its GPUs"),
        ("NVIDIA-VISIBLE-DEVICES=$GPUS", "names one of its GPUs"),
        ("NVIDIA-VISIBLE-DEVICES=GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "names one of its GPUs"),
        ("NVIDIA-VISIBLE-DEVICES=GPU-aa,GPU-bb", "names one of its GPUs"),
        ("NVIDIA-VISIBLE-DEVICES=MIG-aa", "names one of its GPUs"),
        ("NVIDIA-VISIBLE-DEVICES=0:0,0:1", "names one of its GPUs"),  # MIG instances
        ("NVIDIA-VISIBLE-DEVICES=1:0", "names one of its GPUs"),
        ("NVIDIA-VISIBLE-DEVICES=0,1:0", "names one of its GPUs"),
        ("ZE-AFFINITY-MASK=0.0,0.1", "names one of its GPUs"),
        ("file=eval.sh", "runs another script"),
        ("arguments", "passes on its arguments"),
        ("rampup-batch-size=16", "right for one GPU count only"),
        ("compares=SLURM_GPUS_ON_NODE", "compares or changes a size"),
        ("compares=$(nvidia-smi_-L___wc_-l)__-ne_8_", "compares or changes a size"),
        ("compares=_", "compares or changes a size"),
        ("config=7b", "names a configuration"),
        ("file=7b.yaml", "names a configuration"),
        ("deepspeed-config=ds_config.json", "names a configuration"),
        ("file=ds_config.json", "names a configuration"),
    ],
)
def test_what_makes_a_script_rigid(word: str, sign: str) -> None:
    found = bounds(
        FOLLOWS, *(each for each in BATCH if word.split("=", maxsplit=1)[0] not in each), word, site=ANY_BATCH
    )
    assert found.gpu_counts == (8,)
    assert sign in found.script


@pytest.mark.parametrize(
    "word",
    [
        "compares=SLURM_PROCID",
        "states.gpu=0",
        "states.replicas=1",
        "states.gpu-batches=0.5",
        "states.xla-gpu-bytes=1073741824",
        "states.gpus=$SLURM_GPUS_ON_NODE",
        "cuda=0",
        "cuda=12.1",
        "cuda=$LOCAL_RANK",
        "NVIDIA-VISIBLE-DEVICES=$CUDA_VISIBLE_DEVICES",
        "NVIDIA-VISIBLE-DEVICES=${SLURM_JOB_GPUS}",
        "writes=eval.sh",
        "compares=1",
        "data-parallel-replicate-degree=1",
        "pipeline-parallel-size=1",
        "tp-size=1",
        "file=train.json",
        "file=environment.yml",
        "resume",
        "num-nodes=1",
    ],
)
def test_what_does_not_make_a_script_rigid(word: str) -> None:
    assert bounds(FOLLOWS, *BATCH, word).gpu_counts == (4, 8)


def test_a_configuration_that_the_script_writes_was_read() -> None:
    """DeepSpeed's, with its global batch; not where the product with the accumulation is right for one count only."""
    words = ("deepspeed=train.py", "deepspeed-config=ds.json", "writes=ds.json", "zero-optimization={")
    batch = ("train-batch-size=64", "train-micro-batch-size-per-gpu=4")
    assert consent(*words, *batch).moldable
    assert bounds(*words, *batch, size=request(4)).gpu_counts == (4, 8)
    fixed = (*batch, "gradient-accumulation-steps=4")
    assert bounds(*words, *fixed, size=request(4)).gpu_counts == (4,)
    assert not consent(*(word for word in words if "writes" not in word), *batch).moldable


def test_a_batch_named_train_shows_that_a_script_trains() -> None:
    """Whatever its class: its global batch may not change."""
    words = ("devices=$SLURM_GPUS_ON_NODE", "per-device-train-batch-size=8")
    for word in words[1], "train-batch-size=8":
        assert "batches per GPU only" in consent(words[0], word, serve=True).batch_sign
    assert not consent(words[0], "batch-size=8", serve=True).batch_sign


def test_a_batch_of_that_name_elsewhere_is_that_of_one_gpu() -> None:
    """As in diffusers: --train_batch_size=16."""
    assert "batches per GPU only" in bounds("num-processes=$SLURM_GPUS_ON_NODE", "train-batch-size=16").script


def test_a_rule_that_does_not_mention_consent_keeps_the_count() -> None:
    """So that a site which upgrades is not surprised."""
    assert bounds(FOLLOWS, *BATCH, "torchrun", site=SiteBounds()).gpu_counts == (8,)


def test_the_user_and_the_rules_own_range_win() -> None:
    assert bounds("nproc-per-node=8", ask="gpus=1-2").gpu_counts == (1, 2)
    assert bounds(FOLLOWS, *BATCH, ask="gpus=8").gpu_counts == (8,)
    assert bounds("nproc-per-node=8", site=SiteBounds(gpus_factor=(0.5, 1))).gpu_counts == (4, 8)
    none = SiteBounds(moldable=MoldableBounds(gpus_factor=None))
    assert bounds(FOLLOWS, *BATCH, site=none).gpu_counts == (8,)


def test_a_launcher_on_one_node_stays_there() -> None:
    """A torchrun without --nnodes; with it, the nodes may change."""
    wide = SiteBounds(moldable=MoldableBounds(gpus_factor=(0.25, 4)))
    assert bounds(FOLLOWS, *BATCH, site=wide).gpu_counts == (2, 4, 8)
    stays = bounds(FOLLOWS, *BATCH, site=wide, size=request(nodes=2))
    assert stays.gpu_counts == (16,)
    assert stays.script.endswith("stays on one node")
    many = bounds(FOLLOWS, NODES, *BATCH, site=wide, size=request(nodes=2))
    assert many.gpu_counts == (4, 8, 16, 32, 64)
    assert bounds(FOLLOWS, *BATCH, "nnodes=2", site=wide, size=request(nodes=2)).gpu_counts == (16,)


@pytest.mark.parametrize(
    ("word", "one_node"),
    [
        ("nproc-per-node=$SLURM_GPUS", True),
        ("NPROC-PER-NODE=$RLALLOC_GPUS", True),
        ("num-gpus=${SLURM_GPUS}", True),
        ("num-processes=$SLURM_GPUS_ON_NODE", True),
        ("num-processes=$(nvidia-smi_-L___wc_-l)", True),
        ("WORLD-SIZE=$SLURM_GPUS_PER_NODE", True),
        ("nproc-per-node=$((SLURM_GPUS/SLURM_NNODES))", False),
        ("num-processes=$SLURM_GPUS", False),
        ("num-processes=$((SLURM_NNODES*SLURM_GPUS_ON_NODE))", False),
        ("WORLD-SIZE=$RLALLOC_DP", False),
        ("tensor-parallel-size=$SLURM_GPUS", False),
    ],
)
def test_the_gpus_of_the_job_and_those_of_a_node_are_the_same_on_one_node_only(word: str, one_node: bool) -> None:
    """With ``--nproc-per-node=$SLURM_GPUS``, each of two nodes would start the processes of both."""
    read = consent(word, NODES, *BATCH)
    assert read.moldable
    assert read.one_node == one_node


@pytest.mark.parametrize("word", ["nproc-per-node=$SLURM_NTASKS", "num-processes=$SLURM_NTASKS_PER_NODE"])
def test_so_are_the_tasks_of_the_job_and_those_of_a_node(word: str) -> None:
    assert consent(word, NODES, *BATCH, task_per_gpu=True).one_node


def test_an_elastic_launch_stays_within_its_nodes() -> None:
    """Torchrun --nnodes=1:4."""
    wide = SiteBounds(moldable=MoldableBounds(gpus_factor=(0.25, 4)))
    assert bounds(FOLLOWS, *BATCH, "nnodes=2:4", site=wide, size=request(nodes=2)).gpu_counts == (16, 32)


def test_counts_that_do_not_divide_the_global_batch_are_left_out() -> None:
    """24 sequences in micro-batches of 3 go on 8, 4, 2 or 1 GPUs, and not on 16."""
    batch = (FOLLOWS, NODES, "global-batch-size=24", "micro-batch-size=3")
    assert bounds(*batch, site=WIDE).gpu_counts == (1, 2, 4, 8)
    fixed = (*batch, "gradient-accumulation-steps=1")
    assert bounds(*fixed, site=WIDE).gpu_counts == (8,)
    parallel = ("tensor-model-parallel-size=2", "pipeline-model-parallel-size=2")
    assert bounds(FOLLOWS, "global-batch-size=64", "micro-batch-size=1", *parallel, site=WIDE).gpu_counts == (4, 8)


def test_where_the_batch_of_one_gpu_is_not_stated_only_divisors_are_left() -> None:
    """480 sequences on 8 GPUs work; whether on 16 depends on the micro-batch, which nobody told."""
    for more in ((), ("micro-batch-size=$MBS",), ("micro-batch-size=2", "batch-size=4")):
        assert bounds(FOLLOWS, NODES, "global-batch-size=480", *more, site=WIDE).gpu_counts == (1, 2, 4, 8)


def test_expert_parallelism_divides_the_ranks_and_not_the_batch() -> None:
    """Megatron-LM: 16 GPUs with 8 ranks of experts can be 8, 16, 24, 32; 16 micro-batches a step do not go on 24."""
    words = (FOLLOWS, NODES, "expert-model-parallel-size=8", "global-batch-size=16", "micro-batch-size=1")
    wide = SiteBounds(moldable=MoldableBounds(gpus_factor=(0.25, 2)))
    assert bounds(*words, site=wide, size=request(nodes=2)).gpu_counts == (8, 16)


@pytest.mark.parametrize("word", ["cp-size=4", "sp-size=4", "ep-size=4"])
def test_an_option_and_a_setting_of_one_name_are_one_word(word: str) -> None:
    """``--cp-size 4`` and ``cp_size=4``: a size in multiples, which no list makes a number of ranks as well."""
    assert bounds(FOLLOWS, *BATCH, word, site=WIDE).gpu_counts == (4, 8)


def test_of_several_sizes_for_one_name_all_count() -> None:
    """Two launches, or an actor and its rollout."""
    words = (FOLLOWS, *BATCH, "tensor-model-parallel-size=2", "tensor-model-parallel-size=8")
    assert bounds(*words, site=WIDE).gpu_counts == (8,)
    assert bounds(FOLLOWS, "global-batch-size=64", "global-batch-size=12", site=WIDE).gpu_counts == (1, 2, 4, 8)


def test_batches_that_follow_or_that_nobody_states_keep_the_count_unless_the_site_says_so() -> None:
    for words, sign in (
        ((FOLLOWS, "per-device-train-batch-size=4"), "its global batch follows"),
        ((FOLLOWS, "bs=32", "accum=4"), "its global batch follows"),
        ((FOLLOWS,), "it states no global batch"),
    ):
        assert bounds(*words).gpu_counts == (8,)
        assert sign in bounds(*words).script
        assert bounds(*words, site=ANY_BATCH).gpu_counts == (4, 8)
        assert sign not in bounds(*words, site=ANY_BATCH).script
        assert bounds(*words, ask="gpus=4-8").gpu_counts == (4, 8)


def test_batches_that_are_computed_from_the_gpus_stay() -> None:
    """16 / GPUs steps of accumulation: 1, 2, 4, 8 and 16 GPUs, and no other count."""
    words = (FOLLOWS, NODES, "gradient-accumulation-steps=$((16/SLURM_GPUS_ON_NODE))", "bs=4")
    assert bounds(*words, site=WIDE).gpu_counts == (1, 2, 4, 8)
    assert bounds(*words, site=WIDE, size=request(6)).gpu_counts == (6,)  # 16 / 6 is no whole number
    unread = (FOLLOWS, "gradient-accumulation-steps=$((16/SLURM_GPUS_ON_NODE))", "bs=$BS")
    assert bounds(*unread, site=WIDE).gpu_counts == (8,)


def test_a_server_has_no_batch_unless_the_script_trains_as_well() -> None:
    follows = "tensor-parallel-size=$SLURM_GPUS_ON_NODE"
    assert consent(follows, serve=True).batch_sign == ""
    assert consent(follows, FOLLOWS, "torchrun=--", serve=True).batch_sign == "it states no global batch"


def test_a_model_spread_over_gpus_does_not_get_fewer() -> None:
    """Fewer may not hold it: FSDP, DeepSpeed, and a server's tensor parallelism."""
    four = request(gpus=4)
    for word in ("fsdp=full_shard", "enable-fsdp", "strategy=fsdp", "use-distributed-optimizer"):
        assert bounds(FOLLOWS, *BATCH, word, size=four).gpu_counts == (4, 8)
    assert bounds(FOLLOWS, *BATCH, "strategy=ddp", size=four).gpu_counts == (2, 4, 8)
    assert consent("tensor-parallel-size=$SLURM_GPUS_ON_NODE", serve=True).shards


def test_a_model_spread_over_gpus_that_is_resumed_keeps_its_count() -> None:
    """Its checkpoint may be right for as many ranks only."""
    assert bounds(FOLLOWS, *BATCH, "fsdp=full_shard", "load=/ckpt").gpu_counts == (8,)
    assert bounds(FOLLOWS, *BATCH, "load=/ckpt").gpu_counts == (4, 8)


@pytest.mark.parametrize("serve", [False, True])
def test_tasks_tell_of_gpus_only_where_each_has_its_own(*, serve: bool) -> None:
    assert consent("srun", "srun-n=$SLURM_NTASKS", task_per_gpu=True, serve=serve).moldable
    assert not consent("srun", "srun-n=$SLURM_NTASKS", serve=serve).moldable
    assert not consent("nproc-per-node=$SLURM_NTASKS", serve=serve).moldable
    assert consent("nproc-per-node=$SLURM_NTASKS", task_per_gpu=True, serve=serve).moldable
    assert not consent("mpirun", "np=$SLURM_NTASKS", task_per_gpu=True, serve=serve).one_node


def test_a_command_that_starts_tasks_has_to_show_its_own() -> None:
    """Those of an srun beside it say nothing of `mpirun -H host:4`."""
    for tasks in ("mpirun-n", "np", "n"):
        assert consent("mpirun", f"{tasks}=$SLURM_NTASKS", task_per_gpu=True).moldable
    of_one_list = msgspec.structs.replace(RULES, tasks=(*RULES.slurm_tasks, *RULES.tasks))  # an older configuration's
    for tasks in ("srun-n", "ntasks", "ntasks-per-node"):
        words = ("mpirun", "srun", f"{tasks}=$SLURM_NTASKS")
        for rules in (RULES, of_one_list):
            assert not consent_of(words, rules, job_class="train", task_per_gpu=True).moldable


@pytest.mark.parametrize(
    "setup",
    [
        *("sources=_/venvs/llm/bin/activate", "sources=activate", "sources=$/etc/profile.d/conda.sh", "evals=conda"),
        *("sources=_/.bashrc", "sources=/etc/bashrc", "sources=/usr/share/Modules/init/bash", "evals=ssh-agent"),
        *("sources=/opt/intel/oneapi/setvars.sh", "evals=_/bin/micromamba", "evals=__conda_setup"),
        *("sources=.venv/bin/activate", "sources=../conda/etc/profile.d/conda.sh", "sources=$CONDA/conda.sh"),
        "evals=HOME/bin/micromamba",
    ],
)
def test_what_only_sets_up_the_shell_states_no_size(setup: str) -> None:
    assert consent(FOLLOWS, *BATCH, setup).moldable


@pytest.mark.parametrize(
    "setup",
    [
        *("sources=.env", "sources=env.sh", "sources=$SETUP", "sources=_", "sources=", "sources=scripts/my-activate"),
        *("sources=./activate", "sources=scripts/activate", "sources=../conda.sh", "sources=conf/modules.sh"),
        *("sources=activate/sizes", "sources=home/etc/sizes", "evals=cat", "evals=/usr/bin/python", "evals=CMD"),
    ],
)
def test_any_other_file_or_command_may_set_a_size(setup: str) -> None:
    """A sourced .env once stated sizes, and the job was resized."""
    found = consent(FOLLOWS, *BATCH, setup)
    assert not found.moldable
    assert "may set a size" in found.sign


def test_a_variable_whose_name_is_computed_may_be_a_size() -> None:
    """A loop that exported the names in a file once stated sizes, and the job was resized."""
    found = consent(FOLLOWS, *BATCH, "assigns=export")
    assert not found.moldable
    assert found.sign == "export sets a variable whose name the script computes"


def test_a_program_may_compute_the_name_too() -> None:
    found = consent(FOLLOWS, *BATCH, "compares=os.environ")
    assert not found.moldable
    assert found.sign == "the script compares or changes a size: os.environ"


def test_cpus_and_memory_that_the_script_fixes_are_not_trimmed() -> None:
    """Or else its own srun would fail."""
    floors = SiteBounds(min_cpus_per_gpu=2, min_mem_mib_per_gpu=1024)
    assert bounds(FOLLOWS, site=floors).cpus_per_gpu.minimum == 2
    fixed = bounds(FOLLOWS, "cpus-per-task=64", "mem=400G", site=floors)
    assert fixed.cpus_per_gpu.minimum == 8
    assert fixed.mem_mib_per_gpu.minimum == 50_000
    assert bounds(FOLLOWS, "srun-c=$SLURM_CPUS_PER_TASK", "mem=0", site=floors).cpus_per_gpu.minimum == 2


def test_memory_from_slurm_is_that_of_the_new_size() -> None:
    """But a resized job has no SLURM_MEM_PER_GPU, and only some of its memory is a number."""
    floors = SiteBounds(min_mem_mib_per_gpu=1024)
    for word in ("mem=$SLURM_MEM_PER_NODE", "mem=${SLURM_MEM_PER_NODE:-400G}", "mem=$RLALLOC_MEM_MIB_PER_NODE"):
        assert bounds(FOLLOWS, word, site=floors).mem_mib_per_gpu.minimum == 1024
    for word in ("mem-per-gpu=$SLURM_MEM_PER_GPU", "mem=$((SLURM_MEM_PER_NODE-1000))", "mem=$SLURM_CPUS_ON_NODE"):
        assert bounds(FOLLOWS, word, site=floors).mem_mib_per_gpu.minimum == 50_000


@pytest.mark.parametrize(
    "word",
    ["SRUN-CPUS-PER-TASK=64", "cpus-per-task=64", "mem=400G", "mask-cpu=fe,fe00", "cpunodebind=0", "numactl-C=0-63"],
)
def test_steps_that_name_their_cpus_or_memory_keep_the_gpus_of_a_node(word: str) -> None:
    """With fewer GPUs, its CPUs or memory once were fewer than its srun asked for, and the job failed."""
    batch = (FOLLOWS, "nnodes=$SLURM_NNODES", *BATCH, word)
    assert bounds(*batch).gpu_counts == (8, 16)
    assert bounds(*batch, size=request(nodes=2)).gpu_counts == (8, 16, 32)


def test_steps_keep_their_cpus_and_memory_under_a_rules_own_range() -> None:
    """The rule declares all its jobs moldable, but at fewer GPUs on a node the script's own srun cannot run."""
    own = SiteBounds(gpus_factor=(0.25, 2))
    for word in ("srun-c=64", "mem=400G"):
        kept = bounds(word, site=own)
        assert kept.gpu_counts == (8, 16)
        assert kept.gpus == Range(8, 16, "site", "site")
        assert kept.script.endswith("no fewer GPUs per node")
        assert bounds(word, site=own, size=request(nodes=2)).gpu_counts == (8, 16, 24, 32)
        assert bounds(word, site=own, ask="gpus=2-8").gpu_counts == (2, 4, 8)  # its user knows the script
    follows = bounds("srun-c=$SLURM_CPUS_PER_TASK", site=own)
    assert follows.gpu_counts == (2, 4, 8, 16)
    assert "no fewer GPUs" not in follows.script


@pytest.mark.parametrize("word", ["num-workers=16", "num-proc=48", "OMP-NUM-THREADS=8"])
def test_a_floor_of_the_site_does_not_take_cpus_from_stated_workers(word: str) -> None:
    floors = SiteBounds(min_cpus_per_gpu=2, min_mem_mib_per_gpu=1024)
    found = bounds(FOLLOWS, word, site=floors)
    assert found.cpus_per_gpu.minimum == 8
    assert found.mem_mib_per_gpu.minimum == 1024


def test_the_shipped_rule_takes_no_cpus_and_no_memory_by_itself() -> None:
    """Of a job of which no similar job is known: it may have a phase that needs them all."""
    found = bounds("nproc-per-node=1", size=request(1))
    assert found.cpus_per_gpu.minimum == found.cpus_per_gpu.maximum == 64
    assert found.mem_mib_per_gpu.minimum == found.mem_mib_per_gpu.maximum


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
    assert consent("deepspeed=--").moldable  # deepspeed --master_port 29501 train.py
