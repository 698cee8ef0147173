"""The site's rules for reading scripts: which words show a size, a batch or a launcher."""

import functools
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from rlalloc.scripts.script_words import SHORT_OF_COMMAND, WordTable, clean

_RELATIVE: Final = re.compile(r"[^/$_][^/]*/")
"""A path that does not begin at the root, in a variable, or in a home (``~`` is ``_`` in words)."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


class ScriptRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, cache_hash=True):
    """The site's table (section ``scripts``), which etc/rlalloc.yaml explains.

    An entry is an option (``--name``, ``-tp``, ``srun -n``), a setting (``name``), a value, or a command.
    """

    counts: tuple[str, ...] = (
        *_words("--nproc-per-node nproc_per_node NPROC_PER_NODE --num-processes num_processes --num-gpus num_gpus"),
        *_words("--num-gpus-per-node --n-gpus-per-node n_gpus_per_node --gpus --ngpus --gpus-per-node --gres"),
        "srun -G",
        *_words("--devices devices --num-devices --tensor-parallel-size tensor_parallel_size -tp --tp"),
        *_words("tp --num-shard --nproc --world-size WORLD_SIZE"),
        *_words("CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES"),
    )
    ranks: tuple[str, ...] = (
        *_words("--pipeline-parallel-size pipeline_parallel_size -pp --pp-size --data-parallel-size"),
        *_words("data_parallel_size -dp --dp-size --data-parallel-shard-degree --data-parallel-replicate-degree"),
        *_words("--dp-shard --dp-replicate --sharding-group-size --replica-group-size"),
        *_words("--parallelism-config-dp-replicate-size --parallelism-config-dp-shard-size --fsdp-size"),
        *_words("fsdp_size dp_shard dp_size --tp-size tp_size pp_size"),
        *_words("--zero-hpz-partition-size zero_hpz_partition_size mics_shard_size"),
        *_words("--dp-degree dp_degree --fsdp-degree fsdp_degree --pp pp --dp dp --hsdp-size hsdp_size"),
        *_words("--hsdp-degree hsdp_degree --ddp-size ddp_size --ddp-degree ddp_degree"),
    )
    slurm_tasks: tuple[str, ...] = (
        "--ntasks",
        "srun -n",
        *_words("--ntasks-per-node --tasks-per-node --ntasks-per-gpu --gpus-per-task"),
    )
    tasks: tuple[str, ...] = _words("-np --np --n")
    nodes: tuple[str, ...] = (
        *_words("--nnodes nnodes --num-machines num_machines --num-nodes num_nodes --nodes"),
        "srun -N",
    )
    fixed: tuple[str, ...] = _words("--rampup-batch-size --mesh-dim --mesh-shape --device-mesh")
    indices: tuple[str, ...] = _words("cuda NVIDIA_VISIBLE_DEVICES HABANA_VISIBLE_MODULES ZE_AFFINITY_MASK")
    follows: tuple[str, ...] = (
        *_words("gpu auto all -1 $SLURM_GPUS_ON_NODE $SLURM_GPUS $SLURM_GPUS_PER_NODE $SLURM_JOB_GPUS"),
        *_words("$RLALLOC_GPUS $RLALLOC_GPUS_PER_NODE $RLALLOC_DP $RLALLOC_TP $RLALLOC_PP"),
        *_words("$CUDA_VISIBLE_DEVICES nvidia-smi torch.cuda.device_count"),
    )
    follows_nodes: tuple[str, ...] = _words(
        "$SLURM_NNODES $SLURM_JOB_NUM_NODES $RLALLOC_NODES scontrol_show_hostname"
    )
    follows_tasks: tuple[str, ...] = _words("$SLURM_NTASKS $SLURM_NPROCS $SLURM_NTASKS_PER_NODE")
    follows_cpus: tuple[str, ...] = _words("$SLURM_CPUS_PER_TASK $SLURM_CPUS_ON_NODE $RLALLOC_CPUS_PER_TASK")
    follows_memory: tuple[str, ...] = _words("0 $SLURM_MEM_PER_NODE $RLALLOC_MEM_MIB_PER_NODE")
    finds_gpus: tuple[str, ...] = ("deepspeed", "composer")
    elsewhere: tuple[str, ...] = _words("--config-file --hostfile --include --exclude")
    starts_processes: tuple[str, ...] = (
        *_words("torchrun torch.distributed.launch torch.distributed.run"),
        "accelerate launch",
        "vllm serve",
    )
    starts_tasks: tuple[str, ...] = _words("mpirun mpiexec mpiexec.hydra orterun prterun horovodrun ibrun")
    whole_batch: tuple[str, ...] = (
        *_words("--global-batch-size global_batch_size --global-train-batch-size global_train_batch_size"),
        "data.train_batch_size",
    )
    deepspeed_batch: tuple[str, ...] = ("train_batch_size",)
    gpu_batch: tuple[str, ...] = (
        *_words("--per-device-train-batch-size per_device_train_batch_size --micro-batch-size micro_batch_size"),
        *_words("--train-micro-batch-size-per-gpu train_micro_batch_size_per_gpu --device-train-microbatch-size"),
        *_words("device_train_microbatch_size --per-gpu-train-batch-size --per-gpu-batch-size --batch-size-per-gpu"),
        *_words("--batch-per-gpu --local-batch-size --device-batch-size --batch-size-training --micro-bs --mbs"),
        *_words("--train-batch-size --batch-size batch_size --bs"),
    )
    accumulation: tuple[str, ...] = (
        *_words("--gradient-accumulation-steps gradient_accumulation_steps --grad-accum --grad-accum-steps"),
        *_words("--accumulate-grad-batches accumulate_grad_batches --accumulation-steps --accum-steps --accum"),
    )
    parallel: tuple[str, ...] = (
        *_words("--tensor-model-parallel-size tensor_model_parallel_size --tensor-parallel-degree"),
        *_words("--pipeline-model-parallel-size pipeline_model_parallel_size --pipeline-parallel-degree"),
        *_words("--context-parallel-size context_parallel_size --context-parallel-degree --cp-size cp_size --cp"),
        *_words("--sequence-parallel-size sequence_parallel_size --sp-size sp_size"),
        *_words("--parallelism-config-tp-size --parallelism-config-cp-size --model-parallel-size --mp-size"),
        *_words("--tp-degree --pp-degree --tensor-parallel"),
        *_words("--pipeline-parallel --pipe-parallel-size --ds-sequence-parallel-size --ulysses-degree"),
        *_words("--ring-attn-size --sp tp_degree pp_degree cp --cp-degree cp_degree sp --sp-degree sp_degree"),
        *_words("--mp mp mp_size --mp-degree mp_degree --ring ring --ring-size ring_size --ring-degree"),
        *_words("ring_degree --ulysses ulysses --ulysses-size ulysses_size ulysses_degree --ulysses-sp ulysses_sp"),
    )
    experts: tuple[str, ...] = (
        *_words("--expert-model-parallel-size expert_model_parallel_size --expert-parallel-size"),
        *_words("--expert-parallel-degree --moe-expert-parallel-size --ep-size ep_size --ep ep"),
        *_words("--ep-degree ep_degree"),
    )
    shards: tuple[str, ...] = (
        *_words("--fsdp --use-fsdp --enable-fsdp --use-torch-fsdp2 --use-megatron-fsdp --sharding-strategy"),
        *_words("--fsdp-sharding-strategy --data-parallel-sharding-strategy --strategy strategy --deepspeed"),
        *_words("--deepspeed-config --zero-stage zero_optimization --use-distributed-optimizer"),
        *_words("--data-parallel-shard-degree --sharding-group-size fsdp --fsdp-size fsdp_size --fsdp-degree"),
        *_words("fsdp_degree --hsdp hsdp --hsdp-size hsdp_size --hsdp-degree hsdp_degree --dp-shard dp_shard"),
        *_words("--parallelism-config-dp-shard-size"),
    )
    resumes: tuple[str, ...] = (
        *_words("--load --load-path --load-dir --load-checkpoint --resume --resume-from-checkpoint --auto-resume"),
        "resume_from_checkpoint",
    )
    configurations: tuple[str, ...] = (
        *_words("--config --config-file --config-name --config-path --cfg --yaml-cfg --deepspeed --deepspeed-config"),
        *_words("--deepspeed-config-file --ds-config --fsdp-config --env-file"),
    )
    shell_setup: tuple[str, ...] = (
        *_words("activate bin/activate conda.sh mamba.sh micromamba.sh conda mamba micromamba pixi pyenv"),
        *_words("__conda_setup __mamba_setup"),
        *_words("*bashrc .bash_profile .profile .bash_aliases .zshrc /etc/* /usr/* /opt/* /cvmfs/* etc/profile.d/*"),
        *_words("modules.sh *lmod.sh init/bash init/sh init/profile modulecmd LMOD_CMD spack spack/setup-env.sh"),
        *_words("setvars.sh mpivars.sh hpcx-init*.sh .cargo/env nvm.sh ssh-agent brew"),
    )
    cpus: tuple[str, ...] = (
        *_words("--cpus-per-task --cpus-per-gpu SRUN_CPUS_PER_TASK --physcpubind --cpunodebind --cpu-list"),
        *_words("map_cpu mask_cpu"),
        *("srun -c", "numactl -C", "numactl -N", "taskset -c"),
    )
    memory: tuple[str, ...] = ("--mem", "--mem-per-gpu", "--mem-per-cpu")
    workers: tuple[str, ...] = (
        *_words("--num-workers num_workers --dataloader-num-workers dataloader_num_workers --workers --num-proc"),
        *_words("num_proc --preprocessing-num-workers OMP_NUM_THREADS"),
    )

    def tasks_of_commands(self) -> tuple[str, ...]:
        """The option with which each command of ``starts_tasks`` states how many."""
        return tuple(f"{command} -n" for command in self.starts_tasks)

    def only_sets_up_the_shell(self, setup: str) -> bool:
        """Whether a file that is sourced, or a command that is evaluated, is in ``shell_setup``.

        In a folder of the project, given as a relative path, a file may have the name of a known one by chance: there
        only entries count that name a folder, too.
        """
        entries = self.shell_setup
        if _RELATIVE.match(setup):
            entries = tuple(entry for entry in entries if "/" in entry)
        return _any_of(entries).fullmatch(setup) is not None

    def table(self, more: Iterable[str] = ()) -> WordTable:
        """The words that the plugin collects: those of these rules and ``more``, each once."""
        sizes = (
            self.counts,
            self.ranks,
            self.slurm_tasks,
            self.tasks,
            self.nodes,
            self.fixed,
            self.indices,
            self.elsewhere,
        )
        parallel = (self.parallel, self.experts)
        batches = (self.whole_batch, self.deepspeed_batch, self.gpu_batch, self.accumulation)
        rest = (self.shards, self.resumes, self.configurations, self.cpus, self.memory, self.workers)
        words = [entry for kind in (*sizes, self.tasks_of_commands(), *parallel, *batches, *rest) for entry in kind]
        of_short_options = [match[1] for entry in words if (match := SHORT_OF_COMMAND.fullmatch(entry))]
        launchers = [*self.finds_gpus, *self.starts_processes, *self.starts_tasks, "srun", *of_short_options]
        return WordTable(tuple(dict.fromkeys([*words, *more])), tuple(dict.fromkeys(launchers)))


@functools.lru_cache(maxsize=16)
def _any_of(entries: tuple[str, ...]) -> re.Pattern[str]:
    """The pattern of these names, each alone or at the end of a path; ``*`` stands for any text."""
    names = (
        "".join(".*" if part == "*" else re.escape(clean(part)) for part in re.split(r"(\*)", entry))
        for entry in entries
    )
    return re.compile(rf"(?:.*/)?(?:{'|'.join(names)})")
