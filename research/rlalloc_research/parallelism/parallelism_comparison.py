"""The table of Dadizadeh Dargiry: the fixed policy, SARSA, Q-learning and SAC against the oracle's choices."""

import functools
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.progress import ProgressCallback
from rlalloc_research.parallelism.fixed_policy import FixedPlans
from rlalloc_research.parallelism.oracle import Oracle
from rlalloc_research.parallelism.parallelism_environment import DECISIONS, Step, begin, first_situations
from rlalloc_research.parallelism.performance_model import FloatArray
from rlalloc_research.parallelism.sac_learner import SacPlansSettings, learn_sac
from rlalloc_research.parallelism.tabular_learners import TableSettings, learn_table
from rlalloc_simulator.parallel import ParallelMap

Learner = Literal["sarsa", "q-learning", "sac"]
LEARNERS: Final[tuple[Learner, ...]] = ("sarsa", "q-learning", "sac")
EPISODES: Final = 40
JUDGED_BY: Final = 900_000
"""The seed of the episodes for judging; nothing learns on them."""
JOULES_A_KWH: Final = 3.6e6


Chooser = Callable[[FloatArray], NDArray[np.int64]]
"""From situations (n, 4) to the numbers of plans (n,)."""


class ComparisonSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``seeds`` runs of each learner; ``oracle_places`` of the oracle's grid on each axis.

    All learn from 30,000 episodes.
    """

    seeds: int = 10
    oracle_places: int = 7
    tables: TableSettings = TableSettings()
    sac: SacPlansSettings = SacPlansSettings()


class Figures(msgspec.Struct, frozen=True):
    """One policy, over the same episodes as all others.

    ``accuracy``, ``precision`` and ``f1`` (both averaged over the plans that the oracle takes, each counting alike)
    are of its choices where the oracle's own run leads; ``within`` is the part of these choices that cost less than
    1% of what the best is worth. ``reward`` is of an episode of 40 jobs; ``energy_kwh`` and ``latency_s`` (run time)
    of a job. Jobs that do not fit a GPU's memory are ``failed`` (a part of all) and in neither of the last two.
    """

    accuracy: float
    precision: float
    f1: float
    within: float
    reward: float
    energy_kwh: float
    latency_s: float
    failed: float


class Examination(msgspec.Struct, frozen=True):
    """The test: the oracle's situations (n, 4), its choices (n,), and the value of each plan (n, plans)."""

    situations: FloatArray
    best: NDArray[np.int64]
    worth: FloatArray


class Compared(msgspec.Struct, frozen=True):
    """A row: mean and standard deviation over seeds; the deviation is 0 without learning."""

    mean: Figures
    deviation: Figures


class Run(msgspec.Struct, frozen=True):
    """One learner with one seed."""

    learner: Learner
    seed: int
    settings: ComparisonSettings


def compare(
    settings: ComparisonSettings, parallel_map: ParallelMap, folder: Path, report: ProgressCallback
) -> dict[str, Compared]:
    """Return a row for the fixed policy, each learner and the oracle.

    Results are kept in ``folder`` and read from there the next time. Deterministic.
    """
    examination, oracle = examination_by(settings.oracle_places)
    rows = {"fixed": [examine(FixedPlans(examination.situations, examination.worth).choose, examination)]}
    runs = [Run(learner, seed, settings) for learner in LEARNERS for seed in range(settings.seeds)]
    folder.mkdir(parents=True, exist_ok=True)
    missing = [run for run in runs if not _kept(folder, run).exists()]
    report("learning", 1.0 - len(missing) / len(runs))
    for done, (run, figures) in enumerate(
        zip(missing, parallel_map(learn_and_examine, missing), strict=True), start=1
    ):
        _kept(folder, run).write_bytes(msgspec.json.encode(figures))
        report(f"{run.learner}, seed {run.seed}", 1.0 - (len(missing) - done) / len(runs))
    for run in runs:
        rows.setdefault(run.learner, []).append(msgspec.json.decode(_kept(folder, run).read_bytes(), type=Figures))
    return {name: _summary(row) for name, row in {**rows, "oracle": [oracle]}.items()}


def learn_and_examine(run: Run) -> Figures:
    """Return the figures of one learner with one seed."""
    examination, _ = examination_by(run.settings.oracle_places)
    if run.learner == "sac":
        return examine(learn_sac(run.settings.sac, run.seed).choose, examination)
    return examine(learn_table(run.learner, run.settings.tables, run.seed).choose, examination)


@functools.cache
def examination_by(places: int) -> tuple[Examination, Figures]:
    """Return the examination on the oracle's own way, and the oracle's figures, for a grid of so many places."""
    oracle = Oracle(places)
    _, situations = play(oracle.choose)
    examination = Examination(situations, oracle.choose(situations), oracle.values(situations))
    return examination, examine(oracle.choose, examination)


def examine(choose: Chooser, examination: Examination) -> Figures:
    """Return the figures of a policy. Deterministic."""
    chosen = choose(examination.situations)
    rows = np.arange(len(chosen))
    lost = 1.0 - examination.worth[rows, chosen] / examination.worth.max(axis=-1)
    precision, f1 = macro_scores(examination.best, chosen)
    played, _ = play(choose)
    fits = np.isfinite(played.run_s)
    return Figures(
        accuracy=float((chosen == examination.best).mean()),
        precision=precision,
        f1=f1,
        within=float((lost < 0.01).mean()),
        reward=float(played.reward.sum()) / EPISODES,
        energy_kwh=float(played.energy_j[fits].mean()) / JOULES_A_KWH,
        latency_s=float(played.run_s[fits].mean()),
        failed=float(1.0 - fits.mean()),
    )


def play(choose: Chooser) -> tuple[Step, FloatArray]:
    """Return what became of the jobs of 40 episodes (1,600,), and the situations met (1600, 4)."""
    generator = np.random.default_rng(JUDGED_BY)
    situations = first_situations(EPISODES, generator)
    steps, met = [], []
    for _ in range(DECISIONS):
        met.append(situations)
        steps.append(begin(situations, choose(situations), generator))
        situations = steps[-1].following
    return Step(*(np.concatenate(column) for column in zip(*steps, strict=True))), np.concatenate(met)


def macro_scores(truth: NDArray[np.int64], chosen: NDArray[np.int64]) -> tuple[float, float]:
    """Return precision and F1, each the mean over the plans in ``truth``; of a plan never chosen it is 0."""
    precisions, scores = [], []
    for plan in np.unique(truth):
        right = float(((truth == plan) & (chosen == plan)).sum())
        precisions.append(right / max(1.0, float((chosen == plan).sum())))
        scores.append(2.0 * right / float((truth == plan).sum() + (chosen == plan).sum()))
    return float(np.mean(precisions)), float(np.mean(scores))


def _kept(folder: Path, run: Run) -> Path:
    """Where a run is kept: by what it depends on, so that others' settings and the count of seeds may change."""
    learns_by = run.settings.sac if run.learner == "sac" else run.settings.tables
    settings = hashlib.sha256(msgspec.json.encode((run.settings.oracle_places, learns_by))).hexdigest()[:12]
    return folder / f"{run.learner}-{run.seed}-{settings}.json"


def _summary(rows: Sequence[Figures]) -> Compared:
    columns = np.array([msgspec.structs.astuple(row) for row in rows])
    return Compared(Figures(*columns.mean(axis=0).tolist()), Figures(*columns.std(axis=0).tolist()))
