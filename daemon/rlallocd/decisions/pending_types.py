"""Types of GPU for pending jobs that are decided again: the nodes of each type, and what a job is there."""

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from rlalloc.config import Config
from rlalloc.job import Allocation
from rlalloc.view import ClusterView
from rlallocd.cluster.cluster_views import ClusterViews
from rlallocd.cluster.node_access import Access
from rlallocd.decisions.questions import Question, candidate_on_types
from rlallocd.decisions.type_choices import may_get_a_type
from rlallocd.knowledge.job_plans import gpu_memory_gib
from rlallocd.submissions.candidates import Candidate, job_view
from rlallocd.submissions.request_sizes import Skipped, fits_on


class OnType(NamedTuple):
    """A job on the nodes of one type, and these nodes."""

    candidate: Candidate
    access: Access


class PendingTypes:
    """The types of GPU that a site lets rlalloc choose, for the jobs of one pass."""

    def __init__(self, views: ClusterViews, config: Config) -> None:
        self._views = views
        self._config = config
        self._excluded: dict[tuple[str, Access, str, str], Mapping[str, str]] = {}

    def of(self, candidate: Candidate, access: Access) -> Mapping[str, OnType]:
        """A job that may use the nodes of ``access``, on those of each type; empty where none may be chosen."""
        found = {}
        for name, excluded in self._excluded_on_types(candidate, access).items():
            job = msgspec.structs.replace(candidate.job, excluded_nodes=excluded)
            with contextlib.suppress(Skipped):  # no usable node
                found[name] = OnType(msgspec.structs.replace(candidate, job=job), self._views.access_in_queue(job))
        return found

    def with_types(
        self, plain: Question, request: Allocation, on_types: Mapping[str, OnType], views: Mapping[str, ClusterView]
    ) -> Question:
        """The question about a job that asked for ``request``, with what it sees on the nodes of each type."""
        rule = self._config.rule(plain.candidate.tag.rule)
        if rule is None:
            return plain
        questions = {}
        for name, (candidate, access) in on_types.items():
            view = views[name]
            if not fits_on(request, view.shape) or request.gpus > view.totals[0]:
                continue
            with contextlib.suppress(Skipped):  # its directives do not go with these nodes
                questions[name] = Question(
                    candidate,
                    job_view(candidate, request, rule, view, self._views, self._config),
                    view,
                    plain.encoded,
                    access,
                    gpu_memory_gib(candidate.job.gpu_type, view, self._config),
                    self._config.scripts,
                )
        return msgspec.structs.replace(plain, on_types=questions, may_choose=frozenset(rule.choose_gpu_types))

    def _excluded_on_types(self, candidate: Candidate, access: Access) -> Mapping[str, str]:
        """The nodes that a job leaves out on each type; found once for all that may use the same nodes."""
        rule = self._config.rule(candidate.tag.rule)
        if rule is None or not rule.choose_gpu_types or not may_get_a_type(candidate, self._views.now_s):
            return {}
        key = rule.name, access, candidate.job.partition, candidate.job.excluded_nodes
        if key not in self._excluded:
            on_types = candidate_on_types(candidate, rule, self._views.whole(access), access, self._views)
            self._excluded[key] = {name: each.job.excluded_nodes for name, each in on_types.items()}
        return self._excluded[key]
