"""Why a job has no decision: what ``rlalloc explain`` says of a job that rlalloc left alone.

The submit plugin's own tests, in its order, on what Slurm tells of the job: the plugin keeps no record of jobs that
it passes untouched.
"""

import os
import pwd

from rlalloc.config import Config, Rule
from rlalloc.job import JobClass
from rlalloc.scripts.script_class import OFF, class_of, directive_words
from rlallocd.slurm import Commands, SlurmError, SubmittedJob, batch_script, submitted_job
from rlallocd.submissions.job_tag import Tag, read_tag
from rlallocd.submissions.request_sizes import FORMS_SKIPPED
from rlallocd.users.user_service import may_see_all

_IN_COMMENT = "rlalloc:"


def why_undecided(job_id: int, config: Config) -> str:
    """Why a job has no decision, for whoever asks."""
    commands = Commands(config.slurm.command_timeout_s)
    try:
        job = submitted_job(commands, job_id)
        if job is None and _sees_all():
            return "Slurm does not know it"
        if job is None or not _may_see(job.user):
            return "it is not yours, or Slurm does not know it"
        if not job.is_complete:
            return "slurmdbd does not know all of it yet: ask again in some seconds"
        script = None if read_tag(job.admin_comment) else batch_script(commands, job_id)
    except SlurmError as err:
        said = str(err).splitlines()[-1]
        return f"it is not yours, no rule covers it, or Slurm does not know it. Slurm does not say which: {said}"
    return reason_of(job, script, config)


def reason_of(job: SubmittedJob, script: bytes | None, config: Config) -> str:
    """Why there is no decision on a job; ``script`` None where Slurm has it no more. Pure."""
    tag = read_tag(job.admin_comment)
    if tag is not None:
        return _reason_of_tagged(job, tag, config)
    if job.is_interactive or job.gpus == 0:
        return FORMS_SKIPPED["interactive" if job.is_interactive else "no-gpus"]
    if script is None:
        return (
            "rlalloc.lua did not tag it. Slurm no longer has its script, which would show why; "
            "`rlalloc check SCRIPT` shows how rlalloc reads one"
        )
    if job.comment.startswith(_IN_COMMENT):
        script += f"\n#RLALLOC {job.comment.removeprefix(_IN_COMMENT)}\n".encode()
    return _reason_of_script(job, script, config)


def _reason_of_script(job: SubmittedJob, script: bytes, config: Config) -> str:
    if OFF in (directive_words(script) or ()):
        return "its script says #RLALLOC off"
    job_class = class_of(script, config.commands)
    if job_class is None:
        return "its script has no #RLALLOC line, and none of the commands that tell an LLM job (section commands)"
    rule = _first_rule(job, job_class, config)
    if rule is None:
        return f"no rule covers a {job_class} job of account {job.account or '-'} in partition {job.partition}"
    if config.mode_of(rule) == "off":
        return f"rule {rule.name} is in mode off"
    return (
        f"rule {rule.name} covers it now. When it was submitted, rlallocd did not run or had other rules, or "
        "rlalloc.lua failed; slurmctld's log names such failures"
    )


def _reason_of_tagged(job: SubmittedJob, tag: Tag, config: Config) -> str:
    if tag.skip:
        return f"{FORMS_SKIPPED.get(tag.skip, tag.skip)}; it runs as submitted"
    rule = config.rule(tag.rule)
    if rule is None or config.mode_of(rule) == "off":
        return f"rule {tag.rule} covered it at its submission, but now this rule is gone or in mode off"
    if not rule.covers(job.partition, job.account):
        now = f"account {job.account} in partition {job.partition}"
        return f"rule {tag.rule} covered it at its submission, but does not cover {now}"
    if job.state == "PENDING":
        return "rlalloc.lua tagged it, and rlallocd has not decided it yet; `rlalloc status` shows whether it runs"
    if not job.started_s:
        return f"it was {job.state} before it started, and before rlallocd looked at the queue again"
    waited_s = job.started_s - job.submitted_s
    return (
        f"it started {waited_s} s after its submission, before rlallocd had decided it, and runs as submitted; "
        "if that was long ago, its decision may have been deleted (store.keep_days)"
    )


def _first_rule(job: SubmittedJob, job_class: JobClass, config: Config) -> Rule | None:
    """The rule that rlalloc.lua takes."""
    return next(
        (rule for rule in config.rules if job_class in rule.classes and rule.covers(job.partition, job.account)), None
    )


def _may_see(user: str) -> bool:
    """Whether whoever asks may see a job of ``user``, as rlallocd would say it."""
    return _sees_all() or user == _own_name()


def _sees_all() -> bool:
    name = _own_name()
    return os.geteuid() == 0 or (name is not None and may_see_all(name))


def _own_name() -> str | None:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return None
