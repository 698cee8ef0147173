"""Wiring of the research commands: processes and files around the domain."""

from pathlib import Path

import torch

from rlalloc.errors import PolicyError
from rlalloc.progress import ProgressCallback
from rlalloc_research.parallelism.parallelism_comparison import Compared, ComparisonSettings, compare
from rlalloc_research.pareto_front import ParetoFront, ParetoFrontSettings, draw_pareto_front, pareto_front
from rlalloc_simulator.parallel import processes


def make_pareto_front(
    settings: ParetoFrontSettings, png: Path | None, workers: int, report: ProgressCallback
) -> ParetoFront:
    """Train and run the policies of a Pareto front, and draw it at ``png``. Raises PolicyError."""
    torch.set_num_threads(1)
    with processes(workers) as parallel_map:
        found = pareto_front(settings, parallel_map, report)
    if png is not None:
        try:
            draw_pareto_front(found, settings.term, png)
        except OSError as err:
            raise PolicyError(f"{png}: {err.strerror}; name a file in a folder that you may write to") from err
    return found


def compare_parallelism(seeds: int, folder: Path, workers: int, report: ProgressCallback) -> dict[str, Compared]:
    """Return a row of the table for each policy that chooses GPU counts and parallelism."""
    torch.set_num_threads(1)
    with processes(workers) as parallel_map:
        return compare(ComparisonSettings(seeds=seeds), parallel_map, folder, report)
