"""No policy can read how long a job will run or how it scales: what it sees is the same whatever the truth is.

Twins: a workload is run twice, and one job of the second is another truth behind the same script. It scales otherwise
and runs longer or shorter. Until that job ends, every question that a policy gets must be the same to the last bit,
also the one about that job, and what it sees of it in the queue and while it runs. A site's history is that of a run
as requested (``past_of_workload``), so it also counts when the job ends there.
"""

import gc
import types
from collections.abc import Iterable

import msgspec
import numpy as np
import pytest

from rlalloc.heuristics import Heuristic, Ordered, price_ef
from rlalloc.job import JobView, Shares
from rlalloc.speed import SpeedCurve
from rlalloc.urgency import UrgencyRules
from rlalloc.view import ClusterView
from rlalloc_simulator import past_of_workload
from rlalloc_simulator.comparison.runner import RunSettings, run_simulator
from rlalloc_simulator.engine import Simulator, SubmittedJob, table_of
from rlalloc_simulator.engine.engine_records import World
from rlalloc_simulator.knowledge import Knowledge, with_knowledge
from rlalloc_simulator.site_from_workload import site_of, submitted_from, with_late_decisions, with_urgency
from rlalloc_simulator.truths.people import Habits
from rlalloc_simulator.truths.sites import WeekWorkload, peopled
from rlalloc_simulator.workloads import ClusterDescription, NodeGroup
from rlalloc_simulator.workloads.generator import GeneratorSettings, generate
from rlalloc_simulator.workloads.workload_model import load_model

NODE = NodeGroup("n", 2, 8, 96, 768_000)
ANOTHER = SpeedCurve(gpus=(1, 2, 4096), speedup=(1.0, 1.01, 1.02), cpus_per_gpu_needed=0.3)
Question = tuple[float, bytes]


@pytest.fixture(scope="module")
def people() -> WeekWorkload:
    jobs = list(generate(load_model("philly"), GeneratorSettings(cluster=NODE, hours=96.0, load=8.0, seed=3)))
    everybody = Habits(resizable=1.0)
    return peopled(ClusterDescription(nodes=(NODE,)), NODE, jobs[-80:], jobs[:-80], everybody, 0)


class Spy:
    """A heuristic, and all that it was ever shown."""

    def __init__(self, *, follows: bool = False) -> None:
        self.policy: Heuristic = Ordered(price_ef)
        self.follows = follows
        self.questions: list[Question] = []
        self.leaks: set[type] = set()

    def __call__(self, job: JobView, view: ClusterView) -> Shares:
        arrays = (view.free, view.totals, view.releases, view.queued)
        words = msgspec.msgpack.encode((job, view.shape, view.behind, view.urgency_counts, view.gpu_types))
        self.questions.append((view.time_s, words + b"".join(array.tobytes() for array in arrays)))
        if self.follows:
            self.leaks |= {type(each) for each in reachable((job, view)) if isinstance(each, HIDDEN)}
        return self.policy(job, view)


HIDDEN = (SubmittedJob, SpeedCurve, Simulator, World)


def reachable(roots: Iterable[object]) -> Iterable[object]:
    """Yield all data that can be reached from ``roots`` by attributes, items and bases of arrays."""
    seen: set[int] = set()
    open_ = list(roots)
    while open_:
        each = open_.pop()
        if id(each) in seen or isinstance(each, (type, types.ModuleType, types.FunctionType)):
            continue
        seen.add(id(each))
        yield each
        open_ += gc.get_referents(each)
        if isinstance(each, np.ndarray) and each.base is not None:
            open_.append(each.base)


def watched(
    made: WeekWorkload,
    knowledge: Knowledge,
    *,
    hidden: int | None = None,
    work: float = 1.0,
    late_after_s: float | None = None,
    spy: Spy | None = None,
) -> tuple[Spy, list[float]]:
    """Run it; job ``hidden`` scales otherwise, with ``work`` times as much to do. Who watched, and when jobs end."""
    site = with_urgency(site_of(made.cluster, made.jobs), UrgencyRules(nice_band=1000))
    if late_after_s is not None:
        site = with_late_decisions(site, late_after_s)
    jobs = submitted_from(made.jobs, site)
    if hidden is not None:
        curve = msgspec.structs.replace(ANOTHER, cpus_per_gpu_needed=jobs[hidden].curve.cpus_per_gpu_needed / 2)
        jobs[hidden] = msgspec.structs.replace(jobs[hidden], curve=curve, work_s=work * jobs[hidden].work_s)
    known = with_knowledge(site, jobs, knowledge, made.past)
    simulator, spy = Simulator(site, table_of(known, site)), spy or Spy()
    run_simulator(simulator, known, spy, RunSettings())
    as_requested = past_of_workload.as_requested(site, jobs)
    ends_s = [float(np.nanmin([job["first_end_s"], job["finished_s"]])) for job in simulator.outcomes()]
    return spy, [min(end_s, past.ended_s) for end_s, past in zip(ends_s, as_requested, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("knowledge", "late_after_s"),
    # The model takes long to learn. It learns before the run, so one way to decide sizes is enough.
    [("limits", None), ("limits", 1.5), ("history", None), ("history", 1.5), ("model", 1.5)],
)
def test_questions_do_not_depend_on_what_is_hidden(
    people: WeekWorkload, knowledge: Knowledge, late_after_s: float | None
) -> None:
    compared = 0
    plain, ends_s = watched(people, knowledge, late_after_s=late_after_s)
    twins = ((20, 3.0), (40, 0.5), (60, 2.0), (5, 0.3))
    for hidden, work in twins[:2] if knowledge == "model" else twins:  # a model learns anew for each job that ends
        other, other_ends_s = watched(people, knowledge, hidden=hidden, work=work, late_after_s=late_after_s)
        until_s = min(ends_s[hidden], other_ends_s[hidden])
        before = [[question for question in spy.questions if question[0] < until_s] for spy in (plain, other)]
        assert before[0] == before[1]
        compared += sum(time_s >= people.jobs[hidden].submit_s for time_s, _ in before[0])
    assert compared > 20, "questions about the hidden jobs and after them"


def test_the_check_finds_what_is_told(people: WeekWorkload) -> None:
    """Told the true run times, a policy sees another question about the job that is another one."""
    plain, other = (watched(people, "truth", hidden=hidden, work=3.0)[0] for hidden in (None, 40))
    until_s = people.jobs[40].submit_s + 3600.0
    before = [[question for question in spy.questions if question[0] < until_s] for spy in (plain, other)]
    assert before[0] != before[1]


def test_nothing_that_a_policy_gets_leads_to_the_truth(people: WeekWorkload) -> None:
    """Neither the submitted job nor its curve nor the engine's memory hangs on what is handed over."""
    spy, _ = watched(people, "limits", spy=Spy(follows=True))
    assert spy.questions
    assert spy.leaks == set()
    job = submitted_from(people.jobs, site_of(people.cluster, people.jobs))[0]
    assert {type(each) for each in reachable((job,))} & set(HIDDEN) == {SubmittedJob, SpeedCurve}
