"""Which jobs are ours to decide, from one snapshot. Pure functions."""

import functools
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from rlalloc.allocation import without_limit
from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for, parse_directives, task_per_gpu
from rlalloc.config import Config, Rule
from rlalloc.count_rules import (
    with_declared_least,
    with_few_switches,
    with_least_cpus,
    with_least_memory,
    with_near_gpus,
    with_whole_nodes,
)
from rlalloc.errors import DirectiveError
from rlalloc.job import Allocation, Bounds, JobClass, JobView, Mode
from rlalloc.llm.needed_bounds import facts_of_job, with_model_needs
from rlalloc.scripts.consent import NO_CONSENT, Consent, consent_of
from rlalloc.scripts.script_reading import Purposes, purposes_of
from rlalloc.usage.past_bounds import with_past_needs
from rlalloc.view import ClusterView
from rlallocd.cluster.cluster_views import ClusterViews, gpu_types_for
from rlallocd.cluster.waiting_jobs import waits
from rlallocd.knowledge.job_plans import gpu_memory_gib
from rlallocd.slurm import GpuDefaults, JobRecord, NodeNeeds, RequestFields
from rlallocd.submissions.job_tag import Tag, read_tag
from rlallocd.submissions.request_sizes import FORMS_SKIPPED, Skipped, check_memory_per_cpu, check_whole_nodes

WAITS_FOR_RESOURCES: Final = frozenset({"Resources", "Priority", "ReqNodeNotAvail"})
"""Reasons for which another size can help: not a hold, a dependency, a begin time or a limit."""
_HEADS_LOOKED_BEYOND: Final = 10
"""So many times ``redecision.head`` jobs beyond the head are searched for one that could start at once."""


class Candidate(msgspec.Struct, frozen=True):
    """A job with our tag and the mode in force for it now.

    An array is one job, under the id that sbatch printed; it is ``split`` once some of its tasks are in the queue as
    jobs of their own. ``begun`` says that the job was decided and let go before and waits for resources: an update
    does not move it. ``asked`` are the job's fields before our first update, None where there was none.
    """

    job: JobRecord
    tag: Tag
    mode: Mode
    split: bool = False
    begun: bool = False
    asked: RequestFields | None = None

    @property
    def asks_for_memory(self) -> bool:
        """Whether its user asked for an amount of memory: our own update names one in any case."""
        return (self.asked or self.job.fields).asks_for_memory

    @property
    def key(self) -> tuple[int, int]:
        """Job id and submit second: Slurm reuses job ids."""
        return self.job.job_id, self.job.submitted_s

    @property
    def deferred_by_us(self) -> bool:
        """Whether it still waits for the begin time that the plugin set for us."""
        return self.mode == "enforce" and not self.begun and self.tag.begin > 0 and self.job.begin_s == self.tag.begin

    @property
    def begin_s(self) -> int:
        """When it may begin: at its own begin time, which may lie before the end of our deferral, or at once (0)."""
        return self.tag.user_begin

    def cannot_start_yet(self, now_s: float) -> bool:
        """Whether it is held, or waits for another job or for its own begin time."""
        return self.job.held or self.job.reason == "Dependency" or self.begin_s > now_s


def find_candidates(
    jobs: Sequence[JobRecord], config: Config, decided: Collection[tuple[int, int]]
) -> tuple[Candidate, ...]:
    """Jobs that carry our tag, in modes shadow and enforce, without a decision so far.

    They are pending. A job in shadow mode, or one skipped at submission, may have started before we saw it, and
    counts nevertheless. A requeued job was decided before and keeps its size, as Slurm keeps it.
    """
    found: dict[int, Candidate] = {}
    for job in jobs:
        if job.restarts or job.base_id in found or (job.base_id, job.submitted_s) in decided:
            continue
        if (tag := read_tag(job.admin_comment)) is None:
            continue
        mode = _mode_now(job, tag, config)
        if mode != "off" and (job.pending or (job.running and (mode == "shadow" or tag.skip))):
            whole = msgspec.structs.replace(job, job_id=job.base_id)
            found[job.base_id] = Candidate(whole, tag, mode, split=job.is_split)
    return tuple(found.values())


def find_deferred(jobs: Sequence[JobRecord], now_s: float) -> tuple[JobRecord, ...]:
    """Pending jobs that still wait for the begin time that the plugin set for us, and for no later one of their own.

    One whose grace is over waits for nothing of ours. To let it go again would reset the age in its priority.
    """
    return tuple(
        job
        for job in jobs
        if job.pending
        and job.begin_s > now_s
        and (tag := read_tag(job.admin_comment)) is not None
        and job.begin_s == tag.begin > tag.user_begin
    )


def is_left_to_decide(job: JobRecord, config: Config, decided: Collection[tuple[int, int]]) -> bool:
    """Whether a deferred job is still to be decided: not so when it was, or when its mode is no longer enforce."""
    tag = read_tag(job.admin_comment)
    if tag is None or (job.base_id, job.submitted_s) in decided:
        return False
    return _mode_now(job, tag, config) == "enforce"


def find_redecision_candidates(
    jobs: Sequence[JobRecord],
    config: Config,
    now_s: float,
    reaches: Callable[[JobRecord], bool] = lambda _: True,
) -> tuple[Candidate, ...]:
    """Jobs with our tag, in mode enforce, that wait only for resources or for jobs of higher priority.

    Of each partition, those near the head of its queue, in the order of the queue. The jobs that Slurm does not reach
    are in nobody's way. Arrays, whose tasks split off as they start, and requeued jobs keep their sizes.
    """
    depth = config.redecision.head * (1 + _HEADS_LOOKED_BEYOND)
    waiting = [job for job in jobs if waits(job, now_s)]
    ours = {job.job_id: mine for job in waiting if (mine := _to_decide_again(job, config)) is not None}
    if not ours:
        return ()
    found = []
    seen: Counter[str] = Counter()
    for job in sorted(filter(reaches, waiting), key=lambda job: (-job.priority, job.job_id)):
        seen[job.partition] += 1
        if seen[job.partition] <= depth and job.job_id in ours:
            found.append(ours[job.job_id])
    return tuple(found)


def _to_decide_again(job: JobRecord, config: Config) -> Candidate | None:
    if job.reason not in WAITS_FOR_RESOURCES or job.array_job_id or job.restarts:
        return None
    tag = read_tag(job.admin_comment)
    if tag is None or tag.skip or _mode_now(job, tag, config) != "enforce":
        return None
    return Candidate(job, tag, "enforce", begun=True)


def job_view(
    candidate: Candidate,
    request: Allocation,
    rule: Rule,
    cluster: ClusterView,
    views: ClusterViews,
    config: Config,
) -> JobView:
    """What a policy sees of a candidate that asked for ``request``.

    Raises Skipped, with the reason, if the job is to run as submitted.
    """
    job = candidate.job
    _require_named(job, candidate.tag, views.gpu_defaults_for(job))
    as_asked = msgspec.structs.replace(job, fields=candidate.asked or job.fields)
    alone = views.has_its_nodes_alone(job)
    may_share, leaves_gpus = views.may_share_its_nodes(job), request.gpus_per_node < cluster.shape.gpus
    check_whole_nodes(as_asked, may_share=may_share, has_nodes_alone=alone, leaves_gpus=leaves_gpus)
    cpus_per_core = views.cpus_per_core(job)
    check_memory_per_cpu(as_asked, request, gives_sockets=views.gives_sockets(job), cpus_per_core=cpus_per_core)
    site, most = rule.bounds, int(cluster.totals[0])
    if not cluster.device.whole:
        # Slices and shards are of one node, and only their user knows what another number of them means.
        site, most = site.of_declared_counts, cluster.shape.gpus
    try:
        directives = _directives(candidate.tag.directives)
        consent = _consent(candidate.tag, request, directives, config)
        bounds = _bounds(without_limit(request), directives, site, cluster.shape, most, consent)
        bounds = with_past_needs(bounds, request, directives, consent, views.usage(job, request))
        terms = alone, candidate.asks_for_memory, job.needs
        bounds = _workable(bounds, without_limit(request), cluster.shape, *terms)
    except DirectiveError as err:
        raise Skipped(str(err), "directive") from err
    if parts := views.pools.told_of_sockets(job):
        bounds = msgspec.structs.replace(bounds, sockets="; ".join(filter(None, (parts, bounds.sockets))))
    job_class = directives.job_class or candidate.tag.job_class
    return JobView(
        job_class=job_class,
        request=request,
        bounds=_with_model_needs(bounds, candidate, job_class, request, cluster, config, rule),
        waited_s=max(0.0, cluster.time_s - job.submitted_s),
        user_running_gpus=views.user_running_gpus(job.user),
        run_time=views.run_times.as_requested(job),
        speed=views.speeds.of(job.user, job.name, request, gpu_types_for(job, cluster)).belief,
    )


def _require_named(job: JobRecord, tag: Tag, defaults: Sequence[GpuDefaults]) -> None:
    """Raise Skipped if Slurm has ``defaults`` for each GPU for something that a job's user did not name.

    A job with --cpus-per-gpu counts as one that left its CPUs to them: its record has one CPU per task (seen on
    22.05).
    """
    of = {
        "cpus": ("DefCpuPerGPU", [each.cpus for each in defaults]),
        "mem": ("DefMemPerGPU", [each.mem_mib for each in defaults]),
    }
    left = [of[name] for name in sorted(tag.left_to_defaults) if any(of[name][1])]
    if not left:
        return
    if job.fields.cpus_per_gpu and [name for name, _ in left] == ["DefCpuPerGPU"]:
        raise Skipped(f"{FORMS_SKIPPED['cpus-per-gpu']}; it runs as submitted", "cpus-per-gpu")
    values = ", ".join(f"{name}={' or '.join(str(each) for each in dict.fromkeys(counts))}" for name, counts in left)
    raise Skipped(f"{FORMS_SKIPPED['gpu-defaults']}: {values}; it runs as submitted", "gpu-defaults")


_directives: Final = functools.lru_cache(maxsize=4096)(parse_directives)
_consent_of: Final = functools.lru_cache(maxsize=4096)(consent_of)
"""Kept: most jobs of a site say the same, and many ask for the same."""


@functools.lru_cache(maxsize=4096)
def _bounds(
    request: Allocation, directives: Directives, site: SiteBounds, shape: NodeShape, most: int, consent: Consent
) -> Bounds:
    """What rule and script allow; kept, too. Raises DirectiveError."""
    bounds = bounds_for(request, directives, site, shape, most, consent)
    return with_declared_least(bounds, request, directives, shape)


@functools.lru_cache(maxsize=4096)
def _workable(
    bounds: Bounds,
    request: Allocation,
    shape: NodeShape,
    has_its_nodes_alone: bool,  # noqa: FBT001 (lru_cache hashes it like the others)
    asks_for_memory: bool,  # noqa: FBT001
    needs: NodeNeeds,
) -> Bounds:
    """The bounds without the counts that the rest of the request leaves out; kept, too. Raises DirectiveError."""
    if has_its_nodes_alone:
        bounds = with_whole_nodes(bounds, request, shape)
    elif asks_for_memory:
        bounds = with_least_memory(bounds, request, shape)
    bounds = with_least_cpus(bounds, request, shape)
    if needs.few_switches:
        bounds = with_few_switches(bounds, request, shape)
    if needs.near_gpus:  # after all that may raise its minimum of CPUs
        bounds = with_near_gpus(bounds, request, shape)
    return bounds


def _consent(tag: Tag, request: Allocation, directives: Directives, config: Config) -> Consent:
    """What the job's script shows, where the plugin read it by the table of now."""
    if not tag.table:
        return NO_CONSENT
    if tag.table != config.word_table.stamp:
        sign = "rlalloc.lua read the script with another table of words (section scripts) than rlallocd"
        return Consent(sign=sign, cpus_fixed=True, memory_fixed=True)
    return _consent_of(
        tag.words,
        config.scripts,
        job_class=directives.job_class or tag.job_class,
        declared=tag.declares_class,
        task_per_gpu=task_per_gpu(request, directives),
    )


def _with_model_needs(
    bounds: Bounds,
    candidate: Candidate,
    job_class: JobClass,
    request: Allocation,
    cluster: ClusterView,
    config: Config,
    rule: Rule,
) -> Bounds:
    """Narrow a job's bounds to what its LLM needs, as far as its script's words and the type of its GPUs tell."""
    words = candidate.tag.words
    if not words or len(bounds.gpu_counts) == 1:
        return bounds
    memory_gib = gpu_memory_gib(candidate.job.gpu_type, cluster, config)
    may_be_unknown = rule.bounds.moldable.fit_may_be_unknown
    asked = without_limit(request)
    purposes = purposes_of(words, config.scripts, job_class=job_class, declared=candidate.tag.declares_class)
    return _narrowed(bounds, asked, words, purposes, memory_gib, cluster.shape.gpus, may_be_unknown)


@functools.lru_cache(maxsize=8192)
def _narrowed(
    bounds: Bounds,
    request: Allocation,
    words: tuple[str, ...],
    purposes: Purposes,
    memory_gib: float | None,
    gpus_per_node: int,
    fit_may_be_unknown: bool,  # noqa: FBT001 (lru_cache hashes it like the others)
) -> Bounds:
    """Kept: each pass asks for it again, and with a plan and many counts it takes some milliseconds.

    ``request`` has no time limit: jobs that differ in that alone share one computation.
    """
    programs = facts_of_job(words, purposes)
    return with_model_needs(
        bounds, request, programs, memory_gib, gpus_per_node, fit_may_be_unknown=fit_may_be_unknown
    )


def _mode_now(job: JobRecord, tag: Tag, config: Config) -> Mode:
    """The mode at submission, capped by the present configuration.

    It is off where the rule is gone, or does not cover the job any more: others may have moved it to another
    partition or account.
    """
    rule = config.rule(tag.rule)
    if rule is None or config.mode_of(rule) == "off" or not rule.covers(job.partition, job.account):
        return "off"
    return "enforce" if tag.mode == "enforce" and config.mode_of(rule) == "enforce" else "shadow"
