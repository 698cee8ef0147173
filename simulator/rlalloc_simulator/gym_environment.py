"""The simulator as a gymnasium environment, ``gymnasium.make("rlalloc/Cluster-v0")`` once this module is imported.

``gymnasium.make("rlalloc_simulator.gym_environment:rlalloc/Cluster-v0")`` imports it by itself.

An episode is one workload of jobs on one site; a step is the decision for one job. The observation is what a new
network reads (``rlalloc.policy.policy_inputs.DEFAULT_INPUTS``: features, and what heuristics answer), an action the
numbers of ``rlalloc.job.Shares``, of which urgency counts only where the site lets it (``Interception.urgency``). A
step's reward is minus the seconds that all jobs together have spent in the system since the step before, over the
number of jobs and their mean expected run time as requested: an episode's rewards add up to minus the mean JCT in
that unit.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlalloc.job import SHARES, JobView, Shares
from rlalloc.policy.policy_inputs import PolicyInputs
from rlalloc.view import ClusterView, expected_run_time_s
from rlalloc_simulator.engine import SimulatedSite, Simulator, SubmittedJob, table_of
from rlalloc_simulator.engine.batched_simulators import Question, ask, decide
from rlalloc_simulator.engine.policy_views import job_view
from rlalloc_simulator.training_workloads import training_workload

ENVIRONMENT: Final = "rlalloc/Cluster-v0"
Observation = NDArray[np.float32]
Action = NDArray[np.float32]
INPUTS: Final = PolicyInputs()
"""What an observation is made of."""
WorkloadOf = Callable[[int], tuple[SimulatedSite, Sequence[SubmittedJob]]]
"""From a seed to a site and its jobs, of which at least one has to be managed."""


class ClusterEnvironment(gymnasium.Env[Observation, Action]):
    """One simulated site. ``workload_of`` makes the workloads; each reset draws a new seed for it."""

    def __init__(self, workload_of: WorkloadOf | None = None, jobs: int = 100) -> None:
        """Without ``workload_of``, workloads are ``training_workload``'s, of about ``jobs`` jobs."""
        self.observation_space = gymnasium.spaces.Box(-5.0, 5.0, (len(INPUTS),), np.float32)
        self.action_space = gymnasium.spaces.Box(0.0, 1.0, (SHARES,), np.float32)
        self._workload_of = workload_of or (lambda seed: training_workload(seed, jobs))
        self._asked: deque[int] = deque()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a new workload, number ``options["workload"]`` if given. Raises ValueError if no job asks."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**31))
        number = int((options or {}).get("workload", drawn))
        site, self._jobs = self._workload_of(number)
        self._simulator = Simulator(site, table_of(self._jobs, site))
        self._unit_s = float(np.mean([expected_run_time_s(job, job.request) for job in self._jobs]))
        self._passed_s = 0.0
        self._asked.clear()
        if not self._go_on():
            raise ValueError(f"workload {number} has no job that asks: at least one has to be managed")
        return self._observed, self._info(workload=number)

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Decide the job that the last observation is of, and go on to the next."""
        shares = np.clip(np.asarray(action, dtype=np.float64), 0.0, 1.0)
        number = self._question.number
        decide(self._simulator, number, self._jobs[number], self._question.view, Shares(*shares.tolist()))
        goes_on = self._go_on()
        passed_s = self._job_seconds()
        reward = -(passed_s - self._passed_s) / (self._unit_s * len(self._jobs))
        self._passed_s = passed_s
        return self._observed, reward, not goes_on, False, self._info()

    @property
    def simulator(self) -> Simulator:
        """The simulator of the current episode."""
        return self._simulator

    @property
    def asked(self) -> tuple[JobView, ClusterView]:
        """The job of the last observation and its cluster: the input of a heuristic."""
        number = self._question.number
        return job_view(self._simulator, number, self._jobs[number]), self._question.view

    def _go_on(self) -> bool:
        """Go to the next job that needs a decision; False at the end, where the last observation stays."""
        while not self._asked:
            if self._simulator.finished:
                return False
            self._asked.extend(self._simulator.run().tolist())
        number = self._asked.popleft()
        self._question: Question = ask(self._simulator, 0, number, self._jobs[number])
        self._observed: Observation = INPUTS.row(self._question.encoded)
        return True

    def _job_seconds(self) -> float:
        """Seconds that all jobs together have spent in the system so far."""
        jobs, now_s = self._simulator.world.jobs, self._simulator.now_s
        until_s = np.where(np.isfinite(jobs["finished_s"]), jobs["finished_s"], now_s)
        return float(np.maximum(0.0, until_s - jobs["submit_s"]).sum())

    def _info(self, **more: int) -> dict[str, Any]:
        return {"time_s": self._simulator.now_s, "job": self._question.number, **more}


if ENVIRONMENT not in gymnasium.registry:
    gymnasium.register(ENVIRONMENT, entry_point=f"{__name__}:ClusterEnvironment")
