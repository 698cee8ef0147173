"""Run times of published traces."""

from pathlib import Path

import pytest

from rlalloc.progress import silent
from rlalloc.run_times.evaluation import PREDICTOR
from rlalloc_research.trace_run_times import evaluate_trace
from tests.core.run_times.synthetic_site import synthetic_jobs

pytestmark = pytest.mark.research


def test_a_trace_without_users_and_limits_is_evaluated(tmp_path: Path) -> None:
    """Philly's columns: the number of GPUs and the virtual cluster are all that is known."""
    lines = ["timestamp,duration,num_gpus,gpu_time,cluster"]
    for job in synthetic_jobs(500):
        minute = int((job.submitted_s - 1.7e9) // 60)
        day, rest = divmod(minute, 1440)
        stamp = f"2017-10-{day + 1:02} {rest // 60:02}:{rest % 60:02}:00"
        lines.append(f"{stamp},{max(job.run_s, 1.0):.0f},{job.gpus},1,{job.user}")
    path = tmp_path / "philly.csv"
    path.write_text("\n".join(lines) + "\n")
    result = evaluate_trace([path], "philly-csv", 400, silent, blocks=2)
    assert (result.skipped, result.jobs) == (80, 320)
    assert result.predictors[PREDICTOR].rank_correlation > 0.2  # a constant has 0
