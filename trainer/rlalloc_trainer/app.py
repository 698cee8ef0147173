"""Wiring of ``rlalloc train …``: configuration, store and policy directory around the domain."""

from pathlib import Path

import torch

from rlalloc.config import load_config
from rlalloc.errors import PolicyError
from rlalloc.logs import configure_logging
from rlalloc.policies import PolicyStore
from rlalloc.store import Store
from rlalloc_trainer.evaluation import processes
from rlalloc_trainer.front import Front, FrontSettings, draw_front, front
from rlalloc_trainer.intervals import Interval
from rlalloc_trainer.one_seed import PretrainSettings
from rlalloc_trainer.parallelism.comparison import Compared, ComparisonSettings, compare
from rlalloc_trainer.pretrain import TRAINING_FOLDER, pretrain
from rlalloc_trainer.progress import Report
from rlalloc_trainer.retrain import Retrained, retrain


def train_on_site(config_path: Path, report: Report) -> Retrained:
    """Retrain as the configuration says. Raises ConfigError, StoreError or PolicyError."""
    config = load_config(config_path)
    configure_logging(config.log_level, "rlalloc-train")
    torch.set_num_threads(1)  # the networks are small: threads would only wait for each other
    store = Store(config.store.url)
    try:
        policies = PolicyStore(config.policy.directory)
        return retrain(store, policies, config.trainer, report, config.objective, config.urgency)
    finally:
        store.close()


def train_from_nothing(
    directory: Path, seed: int, budget: float, workers: int, report: Report
) -> dict[str, Interval]:
    """Make a policy in ``directory``, or go on with it, and return how it compares.

    Raises PolicyError if the folder is in use for something else, or for a policy that is done.
    """
    if directory.exists() and any(entry.name != TRAINING_FOLDER for entry in directory.iterdir()):
        raise PolicyError(f"{directory} is not empty: name a new folder, or one with an unfinished training in it")
    torch.set_num_threads(1)
    settings = PretrainSettings(seed=seed).scaled(budget)
    return pretrain(settings, directory, report, workers)


def make_front(settings: FrontSettings, png: Path | None, workers: int, report: Report) -> Front:
    """Train and run what a front is made of, and draw it at ``png``. Raises PolicyError."""
    torch.set_num_threads(1)
    with processes(workers) as spread:
        found = front(settings, spread, report)
    if png is not None:
        try:
            draw_front(found, settings.term, png)
        except OSError as err:
            raise PolicyError(f"{png}: {err.strerror}; name a file in a folder that you may write to") from err
    return found


def record_demonstrations(
    path: Path, experts: tuple[str, ...], streams: int, jobs: int, report: Report
) -> tuple[int, float]:
    """Record what experts decide; return how many decisions and a stream's mean return. Raises PolicyError."""
    from rlalloc_trainer.imitation.demonstrations import Recorded, record, write_demonstrations
    from rlalloc_trainer.simulator.environment import ClusterEnvironment

    demonstrations = record(ClusterEnvironment(jobs=jobs), Recorded(experts=experts, streams=streams), report)
    write_demonstrations(demonstrations, path)
    transitions = demonstrations.transitions
    return len(transitions), float(transitions.reward.sum()) / streams


def compare_parallelism(seeds: int, folder: Path, workers: int, report: Report) -> dict[str, Compared]:
    """Return a row of the table for each policy that chooses GPU counts and parallelism."""
    torch.set_num_threads(1)
    with processes(workers) as spread:
        return compare(ComparisonSettings(seeds=seeds), spread, folder, report)
