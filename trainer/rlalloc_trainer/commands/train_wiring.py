"""Wiring of ``rlalloc train …``: configuration, store and policy directory around the domain."""

import logging
from pathlib import Path

import torch

from rlalloc.config import load_config
from rlalloc.errors import PolicyError, StoreError
from rlalloc.policy.interrupted_promotion import mend_interrupted_promotion
from rlalloc.policy.policies import PolicyStore
from rlalloc.progress import ProgressCallback
from rlalloc.run_times.model_files import FOLDER as RUN_TIMES_FOLDER
from rlalloc.run_times.training import LearningSettings
from rlalloc.store import Store
from rlalloc.system.logs import configure_logging
from rlalloc_simulator.comparison.paired_statistics import Interval
from rlalloc_trainer.pipelines.pretrain import TRAINING_FOLDER, pretrain
from rlalloc_trainer.pipelines.pretrain_seed import PretrainSettings
from rlalloc_trainer.pipelines.retrain import Retrained, retrain
from rlalloc_trainer.pipelines.run_time_training import LearnedRunTimes, learn_run_times

_log = logging.getLogger(__name__)


def train_on_site(config_path: Path, report: ProgressCallback) -> Retrained:
    """Retrain as the configuration says. Raises ConfigError, StoreError or PolicyError."""
    config = load_config(config_path)
    configure_logging(config.log_level, "rlalloc-train")
    torch.set_num_threads(1)  # the networks are small: threads would only wait for each other
    store = Store(config.store.url, create=False, skip_unreadable=True)
    try:
        policies = PolicyStore(config.policy.directory)
        for done in mend_interrupted_promotion(policies, store, wait=True):
            _log.warning("an interrupted promotion: %s", done)
        return retrain(store, policies, config.trainer, report, config.objective, config.urgency)
    finally:
        store.close()


def learn_site_run_times(config_path: Path, report: ProgressCallback) -> LearnedRunTimes:
    """Learn run times from the site's past jobs. Raises ConfigError or StoreError.

    Where that fails, like jobs are asked instead: no reason to leave the policy untrained.
    """
    config = load_config(config_path)
    store = Store(config.store.url, create=False, skip_unreadable=True)
    try:
        return learn_run_times(
            store.history.past_jobs(), config.policy.directory / RUN_TIMES_FOLDER, report, LearningSettings()
        )
    except (PolicyError, StoreError) as err:
        return LearnedRunTimes(reason=f"run times: {err}", jobs=0)
    finally:
        store.close()


def train_from_nothing(
    directory: Path, seed: int, budget: float, workers: int, report: ProgressCallback
) -> dict[str, Interval]:
    """Make a policy in ``directory``, or go on with it, and return how it compares.

    Raises PolicyError if the folder is in use for something else, or for a policy that is done.
    """
    if directory.exists() and any(entry.name != TRAINING_FOLDER for entry in directory.iterdir()):
        raise PolicyError(f"{directory} is not empty: name a new folder, or one with an unfinished training in it")
    torch.set_num_threads(1)
    settings = PretrainSettings(seed=seed).scaled(budget)
    return pretrain(settings, directory, report, workers)


def record_demonstrations(
    path: Path, experts: tuple[str, ...], workloads: int, jobs: int, report: ProgressCallback
) -> tuple[int, float]:
    """Record what experts decide; return how many decisions and a workload's mean return. Raises PolicyError."""
    from rlalloc_simulator.gym_environment import ClusterEnvironment
    from rlalloc_trainer.imitation.demonstrations import Recorded, record, write_demonstrations

    demonstrations = record(ClusterEnvironment(jobs=jobs), Recorded(experts=experts, workloads=workloads), report)
    write_demonstrations(demonstrations, path)
    transitions = demonstrations.transitions
    return len(transitions), float(transitions.reward.sum()) / workloads
