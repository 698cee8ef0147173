"""The player of plans, on a site that is only a stand-in."""

from collections.abc import Sequence
from typing import cast

import msgspec

from rlalloc_twins.plan_player import PlanPlayer
from rlalloc_twins.twin_plan import Plan, Submission, UserEvent
from slurm_testbed import Site
from slurm_testbed.site_jobs import Completed


class StandIn:
    """A site with a job whose dependency has failed, and one that waits for it; its queue is empty at the end."""

    users: tuple[str, ...] = ()
    submitted = 0

    def run(self, _command: Sequence[str], **_options: object) -> str:
        return ""

    def try_run(self, command: Sequence[str], **_options: object) -> Completed:
        if command[0] == "sbatch":
            self.submitted += 1
            return Completed(tuple(command), 0, str(6 + self.submitted), "")
        reason = "DependencyNeverSatisfied" if "7" in command else "Dependency"
        return Completed(tuple(command), 0, f"JobId=1 JobState=PENDING Reason={reason}", "")


def test_an_event_that_will_not_come_does_not_keep_the_plan_from_ending() -> None:
    """The floor once went on for ever: a user waited for the start of a job whose dependency had failed."""
    event = UserEvent(doing="cancel", after_s=0.0, once="RUNNING")
    job = Submission(key="j", form="-N1", at_s=0.0, user="ann", options=(), run_s=1.0, gpus=1, events=(event,))
    behind = msgspec.structs.replace(job, key="k", after=("j", "afterany"))
    player = PlanPlayer(cast(Site, StandIn()), Plan(seed=0, submissions=(job, behind)), lambda _done: None)
    player.play()
    assert player.ids == {"j": 7, "k": 8}
    assert player.happened == {}
