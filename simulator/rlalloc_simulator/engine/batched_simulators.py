"""Questions of simulated sites and their answers: one at a time, or of many simulators in one batch."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlalloc.allocation import allocation_for
from rlalloc.job import Allocation, JobView, Shares
from rlalloc.observation import EncodedBatch, EncodedQuestion, encode
from rlalloc.urgency import UrgencyRules, nice_for
from rlalloc.view import ClusterView, expected_run_time_s
from rlalloc_simulator.engine.job_table import SubmittedJob, slowdown_of, table_of
from rlalloc_simulator.engine.policy_views import cluster_view, job_view
from rlalloc_simulator.engine.simulator import Simulator
from rlalloc_simulator.engine.site_parameters import SimulatedSite


class Question(NamedTuple):
    """One job of one simulator that waits for a decision, as ``rlalloc.observation`` encodes it."""

    simulator: int
    number: int
    view: ClusterView
    encoded: EncodedQuestion


class BatchedSimulators:
    """Simulators that run together: each until it asks, then one batch of questions, then one batch of answers."""

    def __init__(self, workloads: Sequence[tuple[SimulatedSite, Sequence[SubmittedJob]]]) -> None:
        self.jobs = [jobs for _, jobs in workloads]
        self.simulators = [Simulator(site, table_of(jobs, site)) for site, jobs in workloads]

    def questions(self) -> Iterator[list[Question]]:
        """Yield batches until every simulator has finished; each has to be answered before the next is taken."""
        while True:
            batch = [
                self._question(place, int(number))
                for place, simulator in enumerate(self.simulators)
                if not simulator.finished
                for number in simulator.run()
            ]
            if batch:
                yield batch
            elif all(simulator.finished for simulator in self.simulators):
                return

    def answer(self, questions: Sequence[Question], shares: NDArray[np.float64]) -> None:
        """Give each asked job what its row of ``shares`` (questions, SHARES) means within its bounds."""
        for question, row in zip(questions, shares, strict=True):
            job = self.jobs[question.simulator][question.number]
            decide(self.simulators[question.simulator], question.number, job, question.view, Shares(*row.tolist()))

    def _question(self, place: int, number: int) -> Question:
        simulator = self.simulators[place]
        return ask(simulator, place, number, self.jobs[place][number])


def ask(simulator: Simulator, place: int, number: int, job: SubmittedJob) -> Question:
    """Return the question about one job of the simulator at ``place``."""
    view = cluster_view(simulator, number)
    return Question(place, number, view, encode(job_view(simulator, number, job), view))


def decide(simulator: Simulator, number: int, job: SubmittedJob, view: ClusterView, shares: Shares) -> bool:
    """Give a job what ``shares`` mean. False where no nodes could ever hold that: the job stays as it is."""
    allocation, nice = answer_of(simulator.site.interception.urgency, job, view, shares)
    try:
        simulator.resize({number: allocation}, nice={number: nice})
    except ValueError:
        simulator.leave([number])
        return False
    return True


def answer_of(
    rules: UrgencyRules, job: SubmittedJob | JobView, view: ClusterView, shares: Shares
) -> tuple[Allocation, tuple[int, float]]:
    """Return what ``shares`` mean, by the same functions as in the daemon.

    The allocation; what is added to nice, and the seconds of waiting in which that decays to 0.
    """
    allocation = allocation_for(shares, job.request, job.bounds, view.shape, slowdown_of(job))
    patience_s = rules.patience_s(expected_run_time_s(job, allocation))
    return allocation, (nice_for(shares.urgency, rules), patience_s)


def stacked(questions: Sequence[Question]) -> EncodedBatch:
    """Return one or more questions side by side, as policies take them."""
    return EncodedBatch.of([question.encoded for question in questions])
