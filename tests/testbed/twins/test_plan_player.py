"""The player of plans, on a site that is only a stand-in."""

from collections.abc import Sequence
from typing import cast

from rlalloc_twins.plan_player import PlanPlayer
from rlalloc_twins.twin_plan import Plan, Submission, UserEvent
from slurm_testbed import Site
from slurm_testbed.site_jobs import Completed


class StandIn:
    """A site with one job, whose dependency has failed; its queue is empty at the end."""

    users: tuple[str, ...] = ()

    def run(self, _command: Sequence[str], **_options: object) -> str:
        return ""

    def try_run(self, command: Sequence[str], **_options: object) -> Completed:
        said = {"sbatch": "7", "scontrol": "JobId=7 JobState=PENDING Reason=DependencyNeverSatisfied"}
        return Completed(tuple(command), 0, said[command[0]], "")


def test_an_event_that_will_not_come_does_not_keep_the_plan_from_ending() -> None:
    """The floor once went on for ever: a user waited for the start of a job whose dependency had failed."""
    event = UserEvent(doing="cancel", after_s=0.0, once="RUNNING")
    job = Submission(key="j", form="-N1", at_s=0.0, user="ann", options=(), run_s=1.0, gpus=1, events=(event,))
    player = PlanPlayer(cast(Site, StandIn()), Plan(seed=0, submissions=(job,)), lambda _done: None)
    player.play()
    assert player.ids == {"j": 7}
    assert player.happened == {}
