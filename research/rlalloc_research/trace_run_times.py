"""How well run times are predicted on published traces, as ``rlalloc history evaluate`` does on a site's log."""

from collections.abc import Sequence
from pathlib import Path

from rlalloc.past_job import PastJob, in_order_of_submission
from rlalloc.progress import ProgressCallback
from rlalloc.run_times.evaluation import BLOCKS, Evaluation, evaluate
from rlalloc.run_times.training import LearningSettings
from rlalloc_simulator.workloads.readers import FORMATS
from rlalloc_simulator.workloads.trace_job import TraceJob


def evaluate_trace(
    paths: Sequence[Path], trace_format: str, last: int, report: ProgressCallback, blocks: int = BLOCKS
) -> Evaluation:
    """Evaluate the last jobs of a trace that ran. Raises WorkloadError, HistoryError, or PolicyError.

    Traces that have no waits are read as if each job had begun when it was submitted.
    """
    jobs = in_order_of_submission(
        _past_job(job) for job in FORMATS[trace_format].read(paths) if job.ended_pending_s is None
    )
    return evaluate(jobs[-last:], LearningSettings(), report, blocks)


def _past_job(job: TraceJob) -> PastJob:
    return PastJob(
        job_id=job.key,
        user=job.user,
        account=job.account,
        partition=job.partition,
        qos=job.qos,
        name=job.name,
        submitted_s=job.submit_s,
        started_s=job.submit_s,
        ended_s=job.submit_s + job.elapsed_s,
        state=job.state,
        nodes=job.nodes or 1,
        cpus=round(job.cpus or job.tasks or 1),
        gpus=job.gpus,
        mem_mib=job.mem_mib or 0.0,
        limit_s=job.time_limit_s,
    )
