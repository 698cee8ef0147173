"""Wiring of ``rlalloc train …``: configuration, store and policy directory around the domain."""

from pathlib import Path

import torch

from rlalloc.config import load_config
from rlalloc.errors import PolicyError
from rlalloc.logs import configure_logging
from rlalloc.policies import PolicyStore
from rlalloc.store import Store
from rlalloc_trainer.evaluation import Interval, processes
from rlalloc_trainer.parallelism.comparison import Compared, ComparisonSettings, compare
from rlalloc_trainer.pretrain import PretrainSettings, pretrain
from rlalloc_trainer.progress import Report
from rlalloc_trainer.retrain import Retrained, retrain
from rlalloc_trainer.tuning import Tuned, TuningSettings, tune


def train_on_site(config_path: Path, report: Report) -> Retrained:
    """Retrain as the configuration says. Raises ConfigError, StoreError or PolicyError."""
    config = load_config(config_path)
    configure_logging(config.log_level, "rlalloc-train")
    torch.set_num_threads(1)  # the networks are small: threads would only wait for each other
    store = Store(config.store.url)
    try:
        return retrain(store, PolicyStore(config.policy.directory), config.trainer, report)
    finally:
        store.close()


def train_from_nothing(directory: Path, seed: int, budget: float, report: Report) -> dict[str, Interval]:
    """Make a policy in ``directory`` and return how it compares. Raises PolicyError if the folder is in use."""
    if directory.exists() and any(directory.iterdir()):
        raise PolicyError(f"{directory} is not empty: name a new folder")
    torch.set_num_threads(1)
    settings = PretrainSettings(seed=seed).scaled(budget)
    return pretrain(settings, directory, report)


def tune_heuristics(seed: int, rounds: int, report: Report) -> Tuned:
    """Tune the constants of price-EF."""
    return tune(TuningSettings(seed=seed, rounds=rounds), report)


def compare_parallelism(seeds: int, folder: Path, workers: int, report: Report) -> dict[str, Compared]:
    """Return a row of the table for each policy that chooses GPU counts and parallelism."""
    with processes(workers) as spread:
        return compare(ComparisonSettings(seeds=seeds), spread, folder, report)
