"""Plays a plan on a site: each submission and each event at its time, then waits until nothing goes on any more."""

import heapq
import itertools
import time
from collections.abc import Callable, Mapping
from typing import Final

from rlalloc_twins.twin_plan import Inner, Plan, SiteEvent, Submission, UserEvent
from rlalloc_twins.twin_record import Happened
from rlalloc_twins.twin_script import SEEN, inner_script, script_of
from slurm_testbed import Site, TestbedError

Tell = Callable[[float], None]
"""Called with the part of the plan that has been played, 0 to 1."""

LOOK_EVERY_S: Final = 1.0
ASK_AGAIN_S: Final = 1.0
STILL_LOOKS: Final = 8
"""After so many looks in which nothing ran and the same jobs waited, these are stuck."""
END_EVERY_S: Final = 2.0
DRAINS_WITHIN_S: Final = 1200.0
GONE: Final = ("GONE",)
NEVER_STARTS: Final = "PENDING DependencyNeverSatisfied"
_WILL_PASS: Final = frozenset({"BeginTime", "None", "Cleaning"})


class PlanPlayer:
    """Plays one plan on one site. ``ids`` are Slurm's by key, ``refused`` what sbatch said where there is none."""

    def __init__(self, site: Site, plan: Plan, tell: Tell) -> None:
        self.ids: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self.happened: dict[str, dict[int, Happened]] = {}
        self.stuck: dict[int, str] = {}
        self.began_s = 0.0
        self._site = site
        self._plan = plan
        self._tell = tell
        self._actions: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._queue: dict[int, set[str]] = {}
        self._looked_s = 0.0

    def play(self) -> None:
        """Do everything that is planned. Raises TestbedError where the site does not come to rest."""
        for user in self._site.users:
            for folder in (self._site.home(user) / SEEN, self._site.home(user) / "inner"):
                folder.mkdir(exist_ok=True)
                folder.chmod(0o777)
        self.began_s = time.time()
        for event in self._plan.site_events:
            self._at(event.at_s, lambda event=event: self._site_event(event))  # type: ignore[misc]
        for job in self._plan.submissions:
            self._at(job.at_s, lambda job=job: self._submit(job))  # type: ignore[misc]
        while self._actions:
            at_s, _, action = heapq.heappop(self._actions)
            time.sleep(max(0.0, self.began_s + at_s - time.time()))
            action()
            self._tell(0.9 * len(self.ids) / len(self._plan.submissions))
        self._come_to_rest()

    def _at(self, at_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._actions, (at_s, next(self._order), action))

    def _now_s(self) -> float:
        return time.time() - self.began_s

    def _site_event(self, event: SiteEvent) -> None:
        self._site.run(["scontrol", *event.words])

    def _submit(self, job: Submission) -> None:
        options = [*job.options]
        if job.after is not None:
            key, kind = job.after
            if key not in self.ids:
                self.refused[job.key] = f"{key}, on which it depends, was refused"
                return
            options.insert(0, f"--dependency={kind}:{self.ids[key]}")
        if job.inner is not None:
            self._write_inner(job, job.inner)
        done = self._site.try_run(
            ["sbatch", "--parsable", "--output=/dev/null", f"--job-name={job.key}", *options],
            user=job.user,
            input=script_of(job),
            environment=job.environment,
        )
        if done.status != 0:
            self.refused[job.key] = done.error_output.strip()
            return
        self.ids[job.key] = int(done.output.split(";")[0])
        submitted_s = self._now_s()
        for number, event in enumerate(job.events):
            self._at(
                submitted_s + event.after_s,
                lambda number=number, event=event: self._user_event(job, number, event),  # type: ignore[misc]
            )

    def _write_inner(self, job: Submission, inner: Inner) -> None:
        path = self._site.home(job.user) / "inner" / f"{job.key}.sh"
        path.write_text(inner_script(f"{job.key}-inner", inner))
        path.chmod(0o644)

    def _user_event(self, job: Submission, number: int, event: UserEvent) -> None:
        job_id = self.ids[job.key]
        states = self._states(job_id)
        if event.once and states != GONE and not any(state.startswith(event.once) for state in states):
            if self._never_starts(job, states):  # what the user waits for will not come
                return
            self._at(self._now_s() + ASK_AGAIN_S, lambda: self._user_event(job, number, event))
            return
        done = self._site.try_run(_command(job_id, event), user=job.user)
        self.happened.setdefault(job.key, {})[number] = Happened(
            states, done.status, (done.output + done.error_output).strip(), time.time()
        )

    def _never_starts(self, job: Submission, states: tuple[str, ...]) -> bool:
        """Whether its dependency cannot be satisfied, or that of the job that it waits for, and so on."""
        if set(states) != {"PENDING Dependency"} or job.after is None:
            return set(states) == {NEVER_STARTS}
        (other,) = (each for each in self._plan.submissions if each.key == job.after[0])
        return self._never_starts(other, self._states(self.ids[other.key]))

    def _states(self, job_id: int) -> tuple[str, ...]:
        """States and reasons of a job and of its tasks, as in "PENDING BeginTime"; REQUEUED if it ran before.

        GONE stands for a job that has ended.
        """
        text = self._site.try_run(["scontrol", "show", "job", str(job_id), "--oneliner"]).output
        found = set()
        for line in text.splitlines():
            fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
            state = fields.get("JobState", "")
            if state in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"):
                again = state == "PENDING" and fields.get("Restarts", "0") != "0"
                found.add(f"{'REQUEUED' if again else state} {fields.get('Reason', '')}")
        return tuple(sorted(found)) or GONE

    def _come_to_rest(self) -> None:
        """Wait for the end of everything; cancel what waits for what will not come. Raises TestbedError."""
        deadline_s = time.time() + DRAINS_WITHIN_S
        before: Mapping[str, str] = {}
        still = 0
        while waiting := self._waiting():
            moves = any(not line.startswith("PENDING ") for line in waiting.values())
            passing = any(line.removeprefix("PENDING ") in _WILL_PASS for line in waiting.values())
            still = still + 1 if waiting == before and not moves and not passing else 0
            if still >= STILL_LOOKS:
                self.stuck |= {int(name.split("_")[0]): line[8:] for name, line in waiting.items()}
                self._site.run(["scancel", *{name.split("_")[0] for name in waiting}])
            if time.time() > deadline_s:
                raise TestbedError(f"jobs do not end: {dict(itertools.islice(waiting.items(), 10))}")
            before = waiting
            time.sleep(END_EVERY_S)

    def _waiting(self) -> dict[str, str]:
        """What is in the queue: its state and reason, by name."""
        text = self._site.run(["squeue", "--noheader", "--format=%i %T %r"])
        rows = (line.split(None, 1) for line in text.splitlines())
        return {name.split("+")[0]: what for name, what in rows}


def _command(job_id: int, event: UserEvent) -> list[str]:
    if event.doing == "update":
        return ["scontrol", "update", f"job={job_id}", *event.words]
    if event.doing == "cancel":
        return ["scancel", str(job_id)]
    return ["scontrol", event.doing, str(job_id)]
