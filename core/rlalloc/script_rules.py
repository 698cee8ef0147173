"""The site's rules for reading scripts: which words show a size, a batch or a launcher."""

from collections.abc import Iterable

import msgspec

from rlalloc.script_words import WordTable


class ScriptRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The site's table (section ``scripts``), which etc/rlalloc.yaml explains.

    An entry is an option (``--name``, ``-tp``, ``srun -n``), a setting (``name``), a value, or a command.
    """

    counts: tuple[str, ...] = (
        "--nproc-per-node",
        "nproc_per_node",
        "--num-processes",
        "num_processes",
        "--num-gpus",
        "--num-gpus-per-node",
        "--n-gpus-per-node",
        "--gpus",
        "--gpus-per-node",
        "--gres",
        "srun -G",
        "--devices",
        "trainer.devices",
        "trainer.n_gpus_per_node",
        "--tensor-parallel-size",
        "tensor_parallel_size",
        "-tp",
        "--tp",
        "--tp-size",
        "--pipeline-parallel-size",
        "-pp",
        "--pp-size",
        "--data-parallel-size",
        "-dp",
        "--dp-size",
        "--num-shard",
        "--world-size",
        "WORLD_SIZE",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
    )
    tasks: tuple[str, ...] = (
        "--ntasks",
        "srun -n",
        "--ntasks-per-node",
        "--ntasks-per-gpu",
        "--gpus-per-task",
        "-np",
    )
    nodes: tuple[str, ...] = (
        "--nnodes",
        "--num-machines",
        "--num-nodes",
        "--nodes",
        "srun -N",
        "trainer.num_nodes",
        "trainer.nnodes",
    )
    follows: tuple[str, ...] = (
        "gpu",
        "auto",
        "all",
        "-1",
        "$SLURM_GPUS_ON_NODE",
        "$SLURM_GPUS",
        "$SLURM_GPUS_PER_NODE",
        "$SLURM_JOB_GPUS",
        "$RLALLOC_GPUS",
        "$RLALLOC_GPUS_PER_NODE",
        "$RLALLOC_DP",
        "$RLALLOC_TP",
        "$RLALLOC_PP",
        "$CUDA_VISIBLE_DEVICES",
        "nvidia-smi",
        "torch.cuda.device_count",
    )
    follows_nodes: tuple[str, ...] = ("$SLURM_NNODES", "$SLURM_JOB_NUM_NODES", "$RLALLOC_NODES")
    follows_tasks: tuple[str, ...] = ("$SLURM_NTASKS", "$SLURM_NPROCS", "$SLURM_NTASKS_PER_NODE")
    follows_cpus: tuple[str, ...] = ("$SLURM_CPUS_PER_TASK", "$SLURM_CPUS_ON_NODE", "$RLALLOC_CPUS_PER_TASK")
    finds_gpus: tuple[str, ...] = ("deepspeed",)
    elsewhere: tuple[str, ...] = ("--config-file", "--hostfile", "--include", "--exclude")
    starts_processes: tuple[str, ...] = (
        "torchrun",
        "torch.distributed.launch",
        "torch.distributed.run",
        "mpirun",
        "vllm serve",
    )
    whole_batch: tuple[str, ...] = (
        "--global-batch-size",
        "global_batch_size",
        "--train-batch-size",
        "train_batch_size",
        "model.global_batch_size",
    )
    gpu_batch: tuple[str, ...] = (
        "--per-device-train-batch-size",
        "per_device_train_batch_size",
        "--micro-batch-size",
        "micro_batch_size",
        "--train-micro-batch-size-per-gpu",
        "train_micro_batch_size_per_gpu",
        "model.micro_batch_size",
        "--batch-size",
        "batch_size",
    )
    accumulation: tuple[str, ...] = (
        "--gradient-accumulation-steps",
        "gradient_accumulation_steps",
    )
    parallel: tuple[str, ...] = (
        "--tensor-model-parallel-size",
        "model.tensor_model_parallel_size",
        "--pipeline-model-parallel-size",
        "model.pipeline_model_parallel_size",
        "--context-parallel-size",
    )
    shards: tuple[str, ...] = (
        "--fsdp",
        "--use-fsdp",
        "--use-torch-fsdp2",
        "--deepspeed",
        "--deepspeed-config",
        "--zero-stage",
        "--use-distributed-optimizer",
    )
    cpus: tuple[str, ...] = ("--cpus-per-task", "--cpus-per-gpu", "srun -c")
    memory: tuple[str, ...] = ("--mem", "--mem-per-gpu", "--mem-per-cpu")

    def table(self, more: Iterable[str] = ()) -> WordTable:
        """The words that the plugin collects: those of these rules and ``more``, each once."""
        kinds = (self.counts, self.tasks, self.nodes, self.elsewhere, self.whole_batch, self.gpu_batch)
        rest = (self.accumulation, self.parallel, self.shards, self.cpus, self.memory)
        words = [entry for kind in (*kinds, *rest) for entry in kind]
        launchers = [*self.finds_gpus, *self.starts_processes, "srun"]
        return WordTable(tuple(dict.fromkeys([*words, *more])), tuple(dict.fromkeys(launchers)))
