"""Asking slurmctld: each size is submitted for real, as the user, and what becomes of it is the answer.

Every kind and level has an account and a QOS of its own, so that all are asked at once.
"""

import contextlib
import os
from collections.abc import Iterator

import msgspec
import pytest

from rlalloc.job import Allocation
from rlallocd.limits import SiteView, obstacle
from rlallocd.slurm import Holder, JobRecord
from rlallocd.slurm.control import Control
from rlallocd.slurm.generations import capabilities_of
from rlallocd.slurm.json_reader import JsonReader
from rlallocd.slurm.limit_reader import LimitReader
from rlallocd.slurm.slurm_commands import Commands
from slurm_testbed import CommandFailedError, Site, wait_until

from .kinds import FILLER, KINDS, Kind, Level

USER, OTHER = "llm-alice", "llm-bob"
_SLEEP = "#!/bin/sh\nexec sleep 3600\n"
_STILL_WAITING = ("None", "Priority", "Resources", "Nodes required", "ReqNodeNotAvail")
"""Reasons to wait that have nothing to do with limits; squeue prints the text of some instead of their names."""


class Question(msgspec.Struct, frozen=True):
    """One kind at one level, and the names that belong to it alone."""

    kind: Kind
    level: Level
    number: int

    @property
    def account(self) -> str:
        return f"a{self.number}"

    @property
    def qos(self) -> str:
        return "normal" if self.kind.qos is None else f"q{self.number}"

    @property
    def partition(self) -> str:
        return "gpu" if self.kind.partition is None else f"p{self.number}"

    @property
    def partition_qos(self) -> str:
        return "" if self.kind.partition_qos is None else f"r{self.number}"

    @property
    def parent(self) -> str:
        return f"b{self.number}"

    @property
    def key(self) -> tuple[str, Level]:
        return self.kind.name, self.level


class Answer(msgspec.Struct, frozen=True):
    """``slurm`` is empty where the job ran as the size says, else what slurmctld said; ``ours`` likewise."""

    slurm: str
    ours: str


QUESTIONS = tuple(
    Question(kind, level, number)
    for number, (kind, level) in enumerate((kind, level) for kind in KINDS for level in kind.sizes)
)


def ask(site: Site) -> dict[tuple[str, Level], Answer]:
    """Set all limits, and ask slurmctld and rlalloc about every size."""
    _set_limits(site)
    fillers = [_submit(site, each, FILLER, each.kind.filled_by) for each in QUESTIONS if each.kind.filled_by]
    site.wait_for_states(fillers, {"RUNNING"}, timeout_s=180)
    ours = _ours(site)
    submitted: dict[tuple[str, Level], int | str] = {}
    for each in QUESTIONS:
        try:
            submitted[each.key] = _submit(site, each, each.kind.sizes[each.level], USER)
        except CommandFailedError as err:
            submitted[each.key] = str(err)
    slurm = _await_answers(site, submitted)
    return {key: Answer(slurm[key], ours[key]) for key in ours}


def _set_limits(site: Site) -> None:
    """In as few commands as can be: slurmdbd takes half a second for each on a busy machine."""
    every = ",".join(each.account for each in QUESTIONS)
    parents = [each for each in QUESTIONS if each.kind.parent]
    all_qos = [each.qos for each in QUESTIONS if each.kind.qos is not None]
    all_qos += [each.partition_qos for each in QUESTIONS if each.partition_qos]
    words = [
        f"add account {','.join(each.parent for each in parents)}",
        f"add account {','.join(each.account for each in QUESTIONS if not each.kind.parent)}",
        *(f"add account {each.account} Parent={each.parent}" for each in parents),
        f"add user {USER},{OTHER} Account={every}",
        f"add qos {','.join(all_qos)}",
        f"modify user {USER},{OTHER} where Account={every} set QOS=normal,{','.join(all_qos)}",
    ]
    for kind in KINDS:
        mine = [each for each in QUESTIONS if each.kind is kind]
        accounts = ",".join(each.account for each in mine)
        settings = (
            (kind.user, f"user {USER} where Account={accounts}"),
            (kind.account, f"account {accounts}"),
            (kind.parent, f"account {','.join(each.parent for each in mine)}"),
            (kind.qos, f"qos {','.join(each.qos for each in mine)}"),
            (kind.partition_qos, f"qos {','.join(each.partition_qos for each in mine)}"),
        )
        words += [f"modify {whose} set {setting}" for setting, whose in settings if setting]
    output = site.run(["sacctmgr", "--immediate"], input="\n".join([*words, "exit", ""]), timeout_s=300)
    assert "error" not in output.lower(), output
    for each in QUESTIONS:
        if each.kind.partition is not None:
            qos = [f"QOS={each.partition_qos}"] if each.partition_qos else []
            line = ["create", f"PartitionName={each.partition}", "Nodes=ALL", *qos, *each.kind.partition.split()]
            site.run(["scontrol", *line])


def _submit(site: Site, question: Question, size: Allocation, user: str) -> int:
    gpu = f"gpu:{question.kind.gpu_type}:" if question.kind.gpu_type else "gpu:"
    return site.sbatch(
        _SLEEP,
        user=user,
        options=[
            f"--account={question.account}",
            f"--qos={question.qos}",
            f"--partition={question.partition}",
            f"--nodes={size.nodes}",
            f"--ntasks={size.nodes * size.tasks_per_node}",
            f"--ntasks-per-node={size.tasks_per_node}",
            f"--cpus-per-task={size.cpus_per_task}",
            f"--mem={size.mem_mib_per_node}",
            f"--gres={gpu}{size.gpus_per_node}",
            f"--time={size.time_limit_s // 60}",
            "--output=/dev/null",
        ],
    )


def _ours(site: Site) -> dict[tuple[str, Level], str]:
    with site_commands(site) as commands:
        control = Control(commands)
        config = control.config()
        view = SiteView(
            now_s=0,
            nodes=JsonReader(commands, capabilities_of(config.slurm_version)).nodes(),
            partitions=control.partitions(),
            limits=LimitReader(commands).read({Holder(USER, "", "", "")}, enforced=config.limits_enforced),
        )
    return {
        each.key: obstacle(_job(each), each.kind.request, each.kind.sizes[each.level], view, wait_s=0)
        for each in QUESTIONS
    }


def _job(question: Question) -> JobRecord:
    """The record of a job as requested."""
    size = question.kind.request
    return JobRecord(
        job_id=1,
        name="llm",
        user=USER,
        account=question.account,
        partition=question.partition,
        state="PENDING",
        reason="BeginTime",
        submitted_s=1,
        begin_s=1,
        started_s=0,
        time_limit_s=size.time_limit_s,
        priority=1,
        admin_comment="",
        nodes=size.nodes,
        tasks=size.nodes * size.tasks_per_node,
        cpus=size.cpus,
        gpus=size.gpus,
        mem_mib=size.mem_mib,
        gpu_type=question.kind.gpu_type,
        is_batch=True,
        is_array=False,
        is_heterogeneous=False,
        is_exclusive=False,
        has_deadline=False,
        nodes_certain=True,
        required_nodes="",
        qos=question.qos,
    )


def _await_answers(site: Site, submitted: dict[tuple[str, Level], int | str]) -> dict[tuple[str, Level], str]:
    answers = {key: f"refused: {answer}" for key, answer in submitted.items() if isinstance(answer, str)}

    def settled() -> bool:
        lines = site.run(["squeue", "--noheader", "--states=all", "--format=%i|%T|%r"]).splitlines()
        found = {line.split("|")[0]: line.split("|")[1:] for line in lines}
        for key, job_id in submitted.items():
            state, reason = found.get(str(job_id), ("", ""))
            if state in ("RUNNING", "COMPLETING", "COMPLETED"):
                answers[key] = ""
            elif state == "PENDING" and not reason.startswith(_STILL_WAITING):
                answers[key] = f"waits for {reason}"
        return not set(submitted) - set(answers)

    wait_until(settled, what="slurmctld has answered all", timeout_s=300, interval_s=1)
    return answers


@contextlib.contextmanager
def site_commands(site: Site) -> Iterator[Commands]:
    """Slurm's commands, pointed to a site."""
    environment = site.environment()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", environment["SLURM_CONF"])
        patch.setenv("PATH", environment["PATH"] + os.pathsep + os.environ["PATH"])
        yield Commands(60)
