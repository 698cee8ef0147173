"""What became of a simulated workload, as the terms of an objective and the metrics of plug-ins see it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlalloc.objective import DEFAULT_POWER, Consequences, Resources, Setting
from rlalloc.objective.consequences import FloatArray
from rlalloc.view import expected_run_time_s
from rlalloc_simulator.engine import SimulatedSite, Simulator, SubmittedJob
from rlalloc_simulator.engine.engine_records import OUT_OF_MEMORY, TIMEOUT, Numbers


@dataclass(frozen=True, eq=False)
class KnownBefore:
    """What is known about a workload's jobs before any decision: arrays (jobs,).

    serving           1 for jobs that answer requests, else 0
    reference_s       expected run time as submitted
    speed_requested   true speed as requested, in multiples of one GPU
    """

    serving: FloatArray
    reference_s: FloatArray
    speed_requested: FloatArray

    @classmethod
    def of(cls, jobs: Sequence[SubmittedJob]) -> "KnownBefore":
        """Look at a workload's jobs once."""
        return cls(
            np.array([job.job_class == "serve" for job in jobs], dtype=np.float64),
            np.array([expected_run_time_s(job, job.request) for job in jobs]),
            np.array([job.curve.at_size(job.request) for job in jobs]),
        )

    def rows(self, order: Numbers) -> "KnownBefore":
        """Return the same for the jobs in another order."""
        return KnownBefore(self.serving[order], self.reference_s[order], self.speed_requested[order])


def setting_of(site: SimulatedSite) -> Setting:
    """Return what is the same for all jobs of a simulated site; at least one of each resource."""
    shapes = [(kind.count, kind.shape) for kind in site.nodes]
    return Setting(
        Resources(
            gpus=max(1, sum(count * shape.gpus for count, shape in shapes)),
            cpus=max(1, sum(count * shape.cpus for count, shape in shapes)),
            mem_mib=max(1, sum(count * shape.mem_mib for count, shape in shapes)),
        ),
        DEFAULT_POWER,
    )


def consequences_of(simulator: Simulator, known: KnownBefore, first: int | None = None) -> Consequences:
    """What became of the (``first``) jobs of a simulation that has been run to its end.

    A job that never ended costs nothing in time. CPUs and memory are those of its last size during all of its
    runs, and what its user holds besides is counted from the job's first start to its end.
    """
    jobs, sizes = simulator.world.jobs[:first], simulator.world.sizes[:first]
    submit_s = jobs["submit_s"]
    end_s = np.where(np.isnan(jobs["finished_s"]), submit_s, jobs["finished_s"])
    start_s = np.where(np.isnan(jobs["first_start_s"]), end_s, jobs["first_start_s"])
    nodes, gpus = (sizes["nodes"] * each for each in (1.0, sizes["gpus_per_node"]))
    cpus, mem_mib = (sizes["nodes"] * sizes[f"{name}_per_node"] * 1.0 for name in ("cpus", "mem_mib"))
    run_s = np.where(gpus > 0, jobs["held_gpu_s"] / np.maximum(gpus, 1.0), end_s - start_s)
    units = np.maximum(gpus, nodes)
    killed = [(jobs["first_state"] == state) | (jobs["state"] == state) for state in (OUT_OF_MEMORY, TIMEOUT)]
    ran = jobs["speed"] > 0
    return Consequences(
        serving=known.serving[:first],
        jct_s=end_s - submit_s,
        wait_s=start_s - submit_s,
        others_s=np.zeros(len(jobs)),
        reference_s=known.reference_s[:first],
        run_time_s=run_s,
        slowdown=np.where(ran, known.speed_requested[:first] / np.where(ran, jobs["speed"], 1.0), 1.0),
        nodes=nodes,
        gpus=gpus,
        gpu_s=jobs["held_gpu_s"].copy(),
        cpu_s=cpus * run_s,
        mem_mib_s=mem_mib * run_s,
        gpu_s_used=np.minimum(jobs["useful_work_s"], jobs["held_gpu_s"]),
        cpu_s_used=np.minimum(cpus, jobs["cpus_per_gpu_needed"] * units) * run_s,
        mem_mib_s_used=np.minimum(mem_mib, jobs["mem_mib_per_gpu_needed"] * units) * run_s,
        user_gpus=_others_of_the_user(jobs["user"].astype(np.int64), start_s, end_s, gpus),
        energy_j=np.full(len(jobs), np.nan),
        out_of_memory=killed[0].astype(np.float64),
        timeout=killed[1].astype(np.float64),
    )


def _others_of_the_user(users: Numbers, start_s: FloatArray, end_s: FloatArray, gpus: FloatArray) -> FloatArray:
    """Mean of the GPUs of each job's user's other jobs between its start and its end, (jobs,).

    The users' times are put one after another on a single axis, so that one cumulative sum serves all of them.
    """
    if not len(users):
        return np.zeros(0)
    span_s = float(end_s.max() - start_s.min()) + 1.0
    offset_s = users * span_s - start_s.min()
    began_s, ended_s = start_s + offset_s, end_s + offset_s
    at_s = np.concatenate((began_s, ended_s))
    order = np.argsort(at_s, kind="stable")
    held = np.cumsum(np.concatenate((gpus, -gpus))[order])
    edges_s = at_s[order]
    held_s = np.concatenate(([0.0], np.cumsum(held[:-1] * np.diff(edges_s))))
    length_s = ended_s - began_s
    mine_s = np.interp(ended_s, edges_s, held_s) - np.interp(began_s, edges_s, held_s)
    mean = mine_s / np.maximum(length_s, 1e-9) - gpus
    return np.where(length_s > 0, np.maximum(mean, 0.0), 0.0)
