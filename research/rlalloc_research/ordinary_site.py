"""What the shipped rules gain on an ordinary site: scripts without a ``#RLALLOC`` line, of which few consent.

The jobs are those of the modest site (``rlalloc_trainer.evaluation.scenarios``): people over-ask. Each family of jobs
gets one of the scripts in a folder, drawn with equal chance, and its bounds are what the daemon's own code makes of
that script under the rules of a configuration. CPUs and memory may be cut to what like jobs used where the script
leaves them free, if there is a past.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np

from rlalloc.bounds import NodeShape, SiteBounds, bounds_for, task_per_gpu
from rlalloc.config import Config
from rlalloc.errors import RlallocError
from rlalloc.job import Bounds, JobClass
from rlalloc.llm.needed_bounds import facts_of_job, with_model_needs
from rlalloc.past_job import PastJob
from rlalloc.progress import ProgressCallback
from rlalloc.scripts.consent import Consent, consent_of
from rlalloc.scripts.script_class import class_of, directive_words
from rlalloc.scripts.script_reading import purposes_of
from rlalloc.scripts.script_words import read_long_script
from rlalloc.usage.past_bounds import with_past_needs
from rlalloc_simulator.comparison.compared_policy import REFERENCE, HeuristicPolicy
from rlalloc_simulator.comparison.paired_statistics import Interval, paired_ratio
from rlalloc_simulator.comparison.runner import RunSettings, run_policy
from rlalloc_simulator.comparison.workload_result import WorkloadResult
from rlalloc_simulator.comparison.worst_users import worst_user
from rlalloc_simulator.engine import SubmittedJob
from rlalloc_simulator.past_of_workload import estimates_from_past, needs_from_past, remembered
from rlalloc_simulator.site_from_workload import Workload, site_of, submitted_from, with_usual_scheduler
from rlalloc_trainer.evaluation.scenario_runs import LATE_AFTER_S
from rlalloc_trainer.evaluation.scenario_weeks import at_load, with_calm_ends
from rlalloc_trainer.evaluation.scenarios import LOADS, MODEST_SITE, TEST_SEEDS, GeneratedWeeks, scenarios

GPU_GIB: Final = 80.0
"""Of the site's GPUs, as in a DGX A100."""


SHIPPED: Final = "as shipped"


class Script(NamedTuple):
    """A script of the site: what it trains, and its words as the daemon reads them."""

    job_class: JobClass
    words: tuple[str, ...] | None


class Row(msgspec.Struct, frozen=True):
    """Figures of one rule and one knowledge over all workloads, beside as requested.

    ``may_resize`` and ``may_shrink`` are parts of the jobs: those whose GPUs may change, and may become fewer.
    ``killed`` counts kills for rlalloc's sizes; ``worst`` is the worst user's mean JCT over that as requested.
    """

    rule: str
    knowledge: str
    jobs: int
    may_resize: float
    may_shrink: float
    jct: Interval
    killed: int
    worst: float


def scripts_in(folder: Path, config: Config) -> list[Script]:
    """Read the folder's ``*.sh`` that train and have no ``#RLALLOC`` line. Raises RlallocError if there is none."""
    found = []
    for path in sorted(folder.glob("*.sh")):
        text = path.read_bytes()
        job_class = class_of(text, config.commands)
        if job_class in ("train", "finetune") and directive_words(text) is None:
            found.append(Script(job_class, read_long_script(text, config.word_table).words))
    if not found:
        raise RlallocError(f"{folder}: no script of a training; name a folder of *.sh")
    return found


def rules_of(config: Config) -> dict[str, SiteBounds]:
    """The bounds of the first rule as they are, and with what its administrator may allow in addition."""
    bounds = config.rules[0].bounds
    batches = msgspec.structs.replace(bounds.moldable, batch_may_change=True)
    both = msgspec.structs.replace(batches, fit_may_be_unknown=True)
    return {
        SHIPPED: bounds,
        "batch_may_change": msgspec.structs.replace(bounds, moldable=batches),
        "batch_may_change, fit_may_be_unknown": msgspec.structs.replace(bounds, moldable=both),
    }


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """How much is run: so many test workloads, each ``replicates`` times with moved submissions.

    ``wider``: also under rules that allow more than the configuration's.
    """

    workloads: int = 8
    replicates: int = 3
    wider: bool = False


def compare(config: Config, scripts: Sequence[Script], extent: Extent, report: ProgressCallback) -> Iterator[Row]:
    """Compare known-gain with as requested on the first day and with a past.

    The first row is as requested with other moved submissions: what differs there is chance.
    """
    rules = rules_of(config) if extent.wider else {SHIPPED: config.rules[0].bounds}
    sites = {seed: _ordinary(seed, scripts) for seed in TEST_SEEDS[: extent.workloads]}
    runs = _Runs((2 + 2 * len(rules)) * len(sites), extent.replicates, report)
    requested = {seed: site.workload.jobs for seed, site in sites.items()}
    references = {seed: runs.run(REFERENCE, site.workload) for seed, site in sites.items()}
    again = {seed: runs.run(REFERENCE, site.workload, first=extent.replicates) for seed, site in sites.items()}
    yield _row("as requested, again", "", requested, again, references)
    for (name, bounds), knowledge in itertools.product(rules.items(), ("limits", "history")):
        jobs = {seed: site.under(bounds, config, with_past=knowledge == "history") for seed, site in sites.items()}
        results = {
            seed: runs.run("known-gain", Workload(site.workload.site, jobs[seed])) for seed, site in sites.items()
        }
        yield _row(name, knowledge, jobs, results, references)


class _Runs:
    """Runs one after the other, and says how many are done."""

    def __init__(self, count: int, replicates: int, report: ProgressCallback) -> None:
        self._count, self._report, self._done = count, report, 0
        self._settings = RunSettings(knowledge=None, late_after_s=LATE_AFTER_S, replicates=replicates)

    def run(self, policy: str, workload: Workload, first: int = 0) -> WorkloadResult:
        """Run a policy, as replicates from number ``first`` on."""
        settings = msgspec.structs.replace(self._settings, first=first)
        result = run_policy(HeuristicPolicy(policy), workload, settings)
        self._done += 1
        self._report(f"run {self._done} of {self._count}", self._done / self._count)
        return result


class _Ordinary(NamedTuple):
    """A workload whose jobs stay as requested, each job's script, and the past."""

    workload: Workload
    scripts: tuple[Script, ...]
    past: tuple[PastJob, ...]

    def under(self, rule: SiteBounds, config: Config, *, with_past: bool) -> tuple[SubmittedJob, ...]:
        """The jobs with the bounds that the daemon makes; ``with_past``: with what is known of like jobs."""
        site, jobs = self.workload
        (kind,) = site.nodes
        each_judged = [
            judged(job, script, rule, config, kind.shape, kind.count)
            for job, script in zip(jobs, self.scripts, strict=True)
        ]
        bounded = [
            msgspec.structs.replace(job, bounds=bounds) for job, (bounds, _) in zip(jobs, each_judged, strict=True)
        ]
        if not with_past:
            return tuple(bounded)
        known = remembered(site, bounded, self.past)
        told = zip(bounded, each_judged, estimates_from_past(known), needs_from_past(known), strict=True)
        return tuple(
            msgspec.structs.replace(
                job,
                run_time=estimate,
                bounds=with_past_needs(job.bounds, job.request, job.directives, consent, needs),
            )
            for job, (_, consent), estimate, needs in told
        )


def _ordinary(seed: int, scripts: Sequence[Script]) -> _Ordinary:
    """The modest site's workload of a seed, where nobody declares anything and each family has a script."""
    modest = next(each for each in scenarios("test", quick=True) if each.name == MODEST_SITE)
    assert isinstance(modest, GeneratedWeeks)
    habits = msgspec.structs.replace(modest.habits, resizable=0.0, declared=0.0)
    drawn = msgspec.structs.replace(modest, habits=habits).workload(seed)
    drawn = with_calm_ends(at_load(drawn, LOADS[0]), LOADS[0])
    site = with_usual_scheduler(site_of(drawn.cluster, drawn.jobs), drawn.jobs)
    generator = np.random.default_rng((seed, 71))
    names = sorted({job.name for job in drawn.jobs})
    chosen = generator.integers(len(scripts), size=len(names)).tolist()
    script_of = {name: scripts[place] for name, place in zip(names, chosen, strict=True)}
    jobs = tuple(
        msgspec.structs.replace(job, job_class=script_of[job.name].job_class)
        for job in submitted_from(drawn.jobs, site)
    )
    return _Ordinary(Workload(site, jobs), tuple(script_of[job.name] for job in jobs), drawn.past)


def judged(
    job: SubmittedJob, script: Script, rule: SiteBounds, config: Config, shape: NodeShape, nodes: int
) -> tuple[Bounds, Consent]:
    """A job's bounds and consent, as ``rlallocd.submissions.candidates`` makes them."""
    each = task_per_gpu(job.request, job.directives)
    consent = consent_of(script.words, config.scripts, job_class=script.job_class, task_per_gpu=each)
    bounds = bounds_for(job.request, job.directives, rule, shape, nodes * shape.gpus, consent)
    if script.words:
        purposes = purposes_of(script.words, config.scripts, job_class=script.job_class, declared=False)
        programs = facts_of_job(script.words, purposes)
        unknown = rule.moldable.fit_may_be_unknown
        bounds = with_model_needs(bounds, job.request, programs, GPU_GIB, shape.gpus, fit_may_be_unknown=unknown)
    return bounds, consent


def _row(
    rule: str,
    knowledge: str,
    jobs_of: Mapping[int, Sequence[SubmittedJob]],
    results: Mapping[int, WorkloadResult],
    references: Mapping[int, WorkloadResult],
) -> Row:
    jobs = list(itertools.chain.from_iterable(jobs_of.values()))
    worst = worst_user((seed, results[seed], references[seed]) for seed in results)
    return Row(
        rule=rule,
        knowledge=knowledge,
        jobs=len(jobs),
        may_resize=sum(len(job.bounds.gpu_counts) > 1 for job in jobs) / len(jobs),
        may_shrink=sum(min(job.bounds.gpu_counts) < job.request.gpus for job in jobs) / len(jobs),
        jct=paired_ratio([results[seed].jct_s for seed in results], [references[seed].jct_s for seed in results]),
        killed=sum(result.killed_by_policy for result in results.values()),
        worst=float("nan") if worst is None else worst.ratio,
    )
