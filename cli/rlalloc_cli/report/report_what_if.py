"""``rlalloc report --what-if``: what enforcing would have changed in the span, on the site's own jobs."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from rlalloc.history.pseudonyms import real_user
from rlalloc.store.submissions import submission_of
from rlalloc_cli.report.report_sources import Report, WrongQuestion
from rlalloc_cli.terminal import complain

if TYPE_CHECKING:
    from rlalloc.past_job import PastJob
    from rlalloc.store import Experience
    from rlalloc_simulator.comparison.paired_statistics import Interval
    from rlalloc_trainer.pipelines.what_if import WhatIf

_MOST_JOBS: Final = 20_000
"""Decided jobs that are read: the last ones of the span."""
_WORKERS: Final = 2
RATIOS: Final = {
    "jct": "mean JCT",
    "p95": "95th percentile of JCT",
    "wait": "mean wait",
    "gpu_hours": "GPU-hours held",
}
"""Figures of ``WhatIf`` that are ratios over as requested, and their names."""


def simulate_what_if(report: Report) -> "WhatIf":
    """Simulate the span under the policy in use and as requested; takes minutes, and says so.

    Raises WrongQuestion, StoreError, PolicyError or PluginError.
    """
    if report.store is None:
        raise WrongQuestion("--what-if reads the jobs of all users: ask an administrator")
    from rlalloc.policy.policies import PolicyStore
    from rlalloc_simulator.parallel import processes
    from rlalloc_trainer.pipelines.retrain import load_in_use
    from rlalloc_trainer.pipelines.site_experience import usable
    from rlalloc_trainer.pipelines.what_if import what_if

    store, config, span = report.store, report.config, report.span
    found = usable(store.experience_between(span.since_s, span.until_s, limit=_MOST_JOBS), store.feature_names())
    others = not_among(found, store.history.past_jobs(span.since_s, span.until_s))
    policies = PolicyStore(config.policy.directory)
    learned = load_in_use(policies, policies.current())
    complain(f"simulating {len(found)} decided jobs of this span; this takes minutes")
    with processes(_WORKERS) as parallel_map:
        return what_if(
            found, others, learned, parallel_map, urgency=config.urgency, objective=config.objective.weights
        )


def not_among(found: Iterable["Experience"], past_jobs: Iterable["PastJob"]) -> Iterator["PastJob"]:
    """The jobs that are no run of a decided one."""
    users: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for one in found:
        users[str(one.decision.job_id)][int(one.decision.submitted_s)] = one.decision.user
    for job in past_jobs:
        if submission_of(int(job.submitted_s), real_user(job.user), users.get(job.job_id, {})) is None:
            yield job


def what_if_lines(found: "WhatIf") -> Iterator[str]:
    """For the terminal."""
    from textwrap import wrap

    yield "What if policy " + found.policy + " had been enforced"
    yield from wrap(found.recommendation, 80)
    if found.jct is None:
        return
    yield ""
    for name, title in RATIOS.items():
        yield f"{title:24} {over_requested(getattr(found, name))}"
    yield f"{'killed for their size':24} {(found.killed or 0.0) * 100:.2f}% of the jobs"
    if found.worst_user is not None:
        yield f"{'worst user, mean JCT':24} {found.worst_user:.2f} of as requested"
    yield from wrap(
        f"{found.confidence:.0%} intervals over {found.workloads} simulated workloads, drawn from {found.jobs} jobs "
        f"that rlalloc decided and {found.others} others in partition {found.partition}. {found.moldable} of the "
        "decided jobs may change their size.",
        80,
    )
    yield "assumed:"
    for assumption in found.assumptions:
        yield from wrap(assumption, 80, initial_indent="- ", subsequent_indent="  ")


def over_requested(ratio: "Interval") -> str:
    """A ratio over as requested as a change in percent, with its interval."""
    change, low, high = ((value - 1.0) * 100 for value in (ratio.estimate, ratio.low, ratio.high))
    return f"{change:+.1f}% [{low:+.1f}, {high:+.1f}]"
