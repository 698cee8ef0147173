"""A job that names no type of GPU on a site that lets rlalloc choose one: from its nodes to update and read-back."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pytest

from rlalloc.config import Config, parse_config
from rlalloc.errors import ConfigError
from rlalloc.job import Allocation, ChosenType, JobView, Shares
from rlalloc.messages import Decided, PolicyAnswer
from rlalloc.objective import DEFAULT_WEIGHTS, Weights
from rlalloc.observation import EncodedQuestion, encode
from rlalloc.store import Decision, JobHistory
from rlalloc.view import ClusterView
from rlallocd.cluster.node_access import Access
from rlallocd.decisions import questions
from rlallocd.decisions.agent_client import AgentClient, AgentUnavailable
from rlallocd.decisions.decisions import Snapshot, decide
from rlallocd.decisions.pending_types import OnType, PendingTypes
from rlallocd.decisions.redecision import redecide
from rlallocd.decisions.type_choices import may_get_a_type, on_each_type
from rlallocd.slurm import JobRecord, NodeRecord, PartitionRecord
from rlallocd.slurm.limit_records import SiteLimits
from rlallocd.slurm.scheduling_rules import SchedulingRules
from rlallocd.submissions.candidates import Candidate
from rlallocd.submissions.job_tag import read_tag
from rlallocd.submissions.request_sizes import differences
from rlallocd.transactions.changes_of_others import verify_kept_as_started
from rlallocd.transactions.journal_entries import entry_of, restorations_for, update_for, verify
from rlallocd.transactions.verification import changed_meanwhile
from tests.agent.running_server import Server

from .slurm_in_memory import NODE, gpus
from .test_redecision_rules import EIGHT, decision_for, pending_job
from .test_request_sizes_and_tags import TAG

NOW_S = 10_000.0
FOUR = msgspec.structs.replace(EIGHT, gpus_per_node=4, cpus_per_task=16, mem_mib_per_node=40_000)
TAG_OF_NOW = TAG.replace("begin=2000", "begin=10060").replace("ask=gpus=1-8", "ask=")
RULES = "mode: enforce\nnodes: {{task_prolog: trusted}}\nrules: [{{name: llm, choose_gpu_types: [{types}]}}]"
ANY, ALLOWED = (parse_config(RULES.format(types=types), "test") for types in ("", "a100"))


def node(name: str, gpu_type: str, free: int = 8, **changes: object) -> NodeRecord:
    return msgspec.structs.replace(NODE, name=name, devices=gpus(gpu_type, 8, 8 - free), **changes)


NODES = (node("a1", "a100"), node("v1", "v100"), node("v2", "v100"), node("v3", "v100", usable=False))


def new_job(job_id: int = 7, /, **changes: object) -> JobRecord:
    """A job of four GPUs of any type that waits for rlalloc."""
    usual = {"reason": "BeginTime", "begin_s": 10_060, "gpu_type": "", "admin_comment": TAG_OF_NOW}
    return pending_job(job_id, FOUR, **(usual | changes))


def candidate(job: JobRecord) -> Candidate:
    tag = read_tag(job.admin_comment)
    assert tag is not None
    return Candidate(job, tag, "enforce")


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentClient]:
    with Server(tmp_path_factory.mktemp("agent")) as server:
        client = AgentClient(server.endpoint, 60.0)
        yield client
        client.close()


def decided(
    agent: AgentClient, config: Config, *jobs: JobRecord, nodes: tuple[NodeRecord, ...] = NODES
) -> list[Decision]:
    snapshot = Snapshot(NOW_S, jobs, nodes, {}, None)
    pairs = decide([candidate(job) for job in jobs], snapshot, config, agent)
    assert [each.job for each, _ in pairs] == list(jobs)  # as their users submitted them
    return [decision for _, decision in pairs]


def test_on_the_nodes_of_a_type_all_others_are_left_out() -> None:
    there = on_each_type(candidate(new_job()), ("a100", "v100"), NODES)
    assert {name: each.job.excluded_nodes for name, each in there.items()} == {"a100": "v1,v2,v3", "v100": "a1"}
    own = on_each_type(candidate(new_job(excluded_nodes="x1,v2")), ("v100",), NODES)
    assert own["v100"].job.excluded_nodes == "a1,v2,x1"
    assert not on_each_type(candidate(new_job(excluded_nodes="v[1-")), ("v100",), NODES)
    many = tuple(node(f"r{number * number}", "v100") for number in range(2000))
    assert not on_each_type(candidate(new_job()), ("a100",), (*NODES, *many))  # too long a list


@pytest.mark.parametrize(
    ("changes", "may"),
    [
        ({}, True),
        ({"gpu_type": "v100"}, False),
        ({"is_shard": True}, False),
        ({"required_nodes": "v1"}, False),
        ({"is_array": True}, False),
        ({"reason": "Dependency"}, False),
        ({"reason": "JobHeldUser"}, False),
        ({"admin_comment": TAG.replace("user_begin=0", "user_begin=20000")}, False),
        ({"admin_comment": TAG.replace("user_begin=0", "user_begin=2000")}, True),
    ],
)
def test_a_job_may_get_a_type_where_it_names_neither_that_nor_nodes(changes: dict[str, object], *, may: bool) -> None:
    assert may_get_a_type(candidate(new_job(**changes)), NOW_S) is may


def test_a_type_that_pays_is_chosen_where_the_site_allows_it(agent: AgentClient) -> None:
    (chosen,) = decided(agent, ALLOWED, new_job())
    assert chosen.allocation is not None
    assert chosen.allocation.gpu_type is not None
    assert chosen.allocation.gpu_type.name == "a100"
    assert chosen.allocation.gpu_type.excluded_nodes == "v1,v2,v3"
    assert chosen.allocation.gpus == 4
    assert chosen.log_probability is None
    assert "4 a100 GPUs" in chosen.allocation.describe()
    (kept,) = decided(agent, ANY, new_job())
    assert kept.allocation is not None
    assert kept.allocation.gpu_type is None


class SmallestAgent:
    """Answers one GPU on nodes of several types, and four on those of one type."""

    def __init__(self, *, fails_at: int = 0) -> None:
        self.asked: list[int] = []
        self.fails_at = fails_at

    def decide(self, questions: Sequence[EncodedQuestion], *, sample: bool) -> Decided:
        """Answer all of them; ``sample`` makes no difference."""
        del sample
        self.asked.append(len(questions))
        if len(self.asked) == self.fails_at:
            raise AgentUnavailable("it was stopped")
        shares = Shares(0.0 if len(self.asked) == 1 else 2 / 3, 1.0, 1.0)
        return Decided(request_id="1", policy_version="v1", answers=(PolicyAnswer(shares, 0.0),) * len(questions))


@pytest.mark.parametrize(("fails_at", "expected"), [(0, (4, "a100")), (2, (1, "a100"))])
def test_another_policy_than_known_gain_answers_for_the_nodes_of_each_type(
    fails_at: int, expected: tuple[int, str]
) -> None:
    """Without the second answer, the job gets one GPU of the type: the count answered for all nodes."""
    agent = SmallestAgent(fails_at=fails_at)
    job = new_job(admin_comment=TAG_OF_NOW.replace("ask=", "ask=gpus=1-8"))
    partitions = {"gpu": PartitionRecord(name="gpu", max_time_s=None, max_nodes=None)}
    nodes = (*NODES, *(node(f"w{number}", "v100") for number in range(20)))
    snapshot = Snapshot(NOW_S, (job,), nodes, partitions, SiteLimits(enforced=False))
    ((_, decision),) = decide([candidate(job)], snapshot, ALLOWED, agent)  # type: ignore[arg-type]
    assert agent.asked == [1, 1]
    size = decision.allocation
    assert size is not None, decision.reason
    assert (size.gpus, size.gpu_type.name if size.gpu_type else "") == expected


def test_one_odd_job_does_not_keep_the_others_from_being_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(job: JobView, view: ClusterView, objective: Weights = DEFAULT_WEIGHTS) -> EncodedQuestion:
        if len(view.gpu_types) == 1 and job.waited_s < 9000.0:
            raise ValueError("odd")
        return encode(job, view, objective)

    monkeypatch.setattr(questions, "encode", odd)
    jobs = [new_job(7), new_job(8, submitted_s=9000)]
    agent = SmallestAgent()
    decisions = decided(agent, ALLOWED, *jobs)  # type: ignore[arg-type]
    assert agent.asked == [2, 1]
    assert len(decisions) == 2


def test_jobs_of_one_cycle_share_the_gpus_of_a_type(agent: AgentClient) -> None:
    sizes = [each.allocation for each in decided(agent, ALLOWED, *(new_job(number) for number in (1, 2, 3)))]
    assert [size is not None and size.gpu_type is not None for size in sizes] == [True, True, False]


def test_jobs_that_wait_for_any_type_keep_nobody_from_one(agent: AgentClient) -> None:
    """One that was submitted just before and has not started yet, for example."""
    other = pending_job(1, FOUR, gpu_type="", reason="Priority")
    snapshot = Snapshot(NOW_S, (other, new_job()), NODES, {}, None)
    ((_, decision),) = decide([candidate(new_job())], snapshot, ALLOWED, agent)
    assert decision.allocation is not None
    assert decision.allocation.gpu_type is not None
    assert decision.queued == 1


def test_no_type_is_chosen_where_a_job_waits_for_it_or_slurm_may_mix_types(agent: AgentClient) -> None:
    waiting = pending_job(1, EIGHT, gpu_type="a100", admin_comment="", begin_s=0, reason="Resources")
    snapshot = Snapshot(NOW_S, (waiting, new_job()), NODES, {}, None)
    ((_, decision),) = decide([candidate(new_job())], snapshot, ALLOWED, agent)
    assert decision.allocation is not None
    assert decision.allocation.gpu_type is None
    both = msgspec.structs.replace(NODE, name="b1", devices=(*gpus("a100", 4), *gpus("v100", 4)))
    (mixed,) = decided(agent, ALLOWED, new_job(), nodes=(*NODES, both))
    assert mixed.skip_code == "mixed-devices"


def running(job_id: int, name: str, held: int) -> JobRecord:
    """A job that holds GPUs of a node for eight hours."""
    usual = {
        "state": "RUNNING",
        "reason": "None",
        "admin_comment": "",
        "held_nodes": name,
        "gpu_type": "",
        "started_s": int(NOW_S),
    }
    return pending_job(job_id, msgspec.structs.replace(EIGHT, gpus_per_node=held, time_limit_s=8 * 3600), **usual)


@pytest.mark.parametrize(
    ("config", "free_a100", "names"),
    [(ALLOWED, 4, ["a100"]), (ALLOWED, 1, [None]), (ANY, 4, [None])],
    ids=["it starts there", "it would not start there", "the site does not allow it"],
)
def test_a_job_that_waits_gets_a_type_with_a_size_that_starts_now(
    agent: AgentClient, config: Config, free_a100: int, names: list[str | None]
) -> None:
    """Eight GPUs are free nowhere; rlalloc's smaller size would start on v100 or a100, with another job behind."""
    waiting = [
        pending_job(job_id, reason="Resources", gpu_type=gpu_type) for job_id, gpu_type in ((7, ""), (8, "v100"))
    ]
    held = (running(1, "a1", 8 - free_a100), running(2, "v1", 4), running(3, "v2", 8))
    nodes = (node("a1", "a100", free_a100), node("v1", "v100", 4), node("v2", "v100", 0))
    partitions = {"gpu": PartitionRecord(name="gpu", max_time_s=None, max_nodes=None)}
    snapshot = Snapshot(NOW_S, (*held, *waiting), nodes, partitions, SiteLimits(enforced=False))
    history = JobHistory(decisions=(decision_for(waiting[0]),), applications=())
    pending = candidate(waiting[0])
    decided = redecide([pending], {pending.key: history}, {}, snapshot, config, agent)
    sizes = [decision.allocation for _, decision in decided if decision.allocation is not None]
    assert [size.gpu_type and size.gpu_type.name for size in sizes] == names
    assert all(size.gpus <= 4 for size in sizes)
    for size in sizes:
        if size.gpu_type is not None:
            assert size.gpu_type.excluded_nodes == "v1,v2"
            assert snapshot.granted == {7: size}


def test_types_are_looked_up_only_for_jobs_that_could_start_now(
    agent: AgentClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[int] = []
    of = PendingTypes.of

    def noted(self: PendingTypes, its: Candidate, access: Access) -> Mapping[str, OnType]:
        looked_up.append(its.job.job_id)
        return of(self, its, access)

    monkeypatch.setattr(PendingTypes, "of", noted)
    jobs = [pending_job(7, reason="Resources", gpu_type=""), pending_job(8, reason="Resources", gpu_type="")]
    jobs[0] = msgspec.structs.replace(jobs[0], features="full")
    nodes = (node("a1", "a100", 4), node("v1", "v100", 0, features=frozenset({"full"})))
    snapshot = Snapshot(NOW_S, (running(1, "a1", 4), *jobs), nodes, {}, SiteLimits(enforced=False))
    pending = [candidate(job) for job in jobs]
    histories = {each.key: JobHistory(decisions=(decision_for(each.job),), applications=()) for each in pending}
    redecide(pending, histories, {}, snapshot, ALLOWED, agent)
    assert looked_up == [8]


def test_the_nodes_of_a_type_are_those_of_all_partitions_that_a_waiting_job_names() -> None:
    """Two jobs have the same nodes in view, and one of them may also start in a partition without usable nodes."""
    nodes = (node("a1", "a100"), node("v1", "v100"), node("v2", "v100", partitions=("old",), usable=False))
    names = ("gpu", "gpu,old")
    jobs = tuple(
        pending_job(7 + place, reason="Resources", gpu_type="", partition=name) for place, name in enumerate(names)
    )
    partitions = {name: PartitionRecord(name=name, max_time_s=None, max_nodes=None) for name in ("gpu", "old")}
    views = Snapshot(NOW_S, jobs, nodes, partitions, SiteLimits(enforced=False)).views(ALLOWED)
    types = PendingTypes(views, ALLOWED)
    accesses = [views.access_in_queue(job) for job in jobs]
    assert accesses[0] == accesses[1]
    found = [types.of(candidate(job), access)["a100"] for job, access in zip(jobs, accesses, strict=True)]
    assert [each.candidate.job.excluded_nodes for each in found] == ["v1", "v1,v2"]


def test_a_job_that_may_preempt_others_keeps_any_type(agent: AgentClient) -> None:
    """As submitted, it would start on idle GPUs; on one type, Slurm might end others' jobs for it."""
    limits = SiteLimits(enforced=False, preempts={"high": frozenset({"scavenger"})})
    scheduling = SchedulingRules(preempts_by="qos")
    found = []
    for qos in ("high", "normal"):
        job = new_job(qos=qos)
        snapshot = Snapshot(NOW_S, (job,), NODES, {}, limits, scheduling=scheduling)
        ((_, decision),) = decide([candidate(job)], snapshot, ALLOWED, agent)
        assert decision.allocation is not None
        found.append(decision.allocation.gpu_type is not None)
    assert found == [False, True]


def test_only_types_of_known_speed_may_be_chosen() -> None:
    with pytest.raises(
        ConfigError, match=r"rules\[0\].choose_gpu_types: found 'mi300x'.*k80, p100, v100, a100, h100"
    ):
        parse_config(RULES.format(types="a100, mi300x"), "test")


def test_a_type_of_stated_speed_is_chosen(agent: AgentClient) -> None:
    nodes = (node("m1", "mi300x"), node("a1", "a100"), node("a2", "a100"))
    (chosen,) = decided(
        agent, parse_config(RULES.format(types="mi300x") + "\ngpu_speed: {mi300x: 4}", "test"), new_job(), nodes=nodes
    )
    assert chosen.allocation is not None
    assert chosen.allocation.gpu_type is not None
    assert chosen.allocation.gpu_type.name == "mi300x"
    assert 1.0 < chosen.allocation.gpu_type.least_speed_up < chosen.allocation.gpu_type.speed_up < 4.0


CHOSEN = msgspec.structs.replace(FOUR, gpu_type=ChosenType("a100", "v[1-3],x1", "x1", 2.0, 1.2))


def applied_to(job: JobRecord, excluded_nodes: str) -> JobRecord:
    """How a job reads back once the absolute message of FOUR was carried out, with these nodes left out."""
    return msgspec.structs.replace(job, excluded_nodes=excluded_nodes)


def decision_with(size: Allocation, request: Allocation = FOUR) -> tuple[Candidate, Decision]:
    mine = candidate(new_job(excluded_nodes="x1"))
    decision = Decision(
        id="d", job_id=7, submitted_s=1000, decided_s=NOW_S, user="alice", account="llm", partition="gpu",
        job_name="a", job_class="train", rule="llm", mode="enforce", reason="", request=request, allocation=size,
    )  # fmt: skip
    return mine, decision


def test_an_update_leaves_out_the_other_nodes_and_a_restoration_only_those_of_the_user() -> None:
    entry = entry_of(*decision_with(CHOSEN))
    submitted = new_job(excluded_nodes="x1")
    plan = dict(update_for(entry, submitted, None).fields)
    assert plan["ExcNodeList"] == "v[1-3],x1"
    assert plan["TresPerNode"] == "gres:gpu:4"
    (back,) = restorations_for(entry, submitted)
    assert dict(back.fields)["ExcNodeList"] == "x1"
    (unread,) = restorations_for(msgspec.structs.replace(entry, record="{}"), submitted)
    assert dict(unread.fields)["ExcNodeList"] == "x1"
    (plain,) = restorations_for(msgspec.structs.replace(entry, intended=EIGHT), submitted)
    assert "ExcNodeList" not in dict(plain.fields)


@pytest.mark.parametrize(
    ("excluded", "verdict"),
    [("v[1-3],x1", "as decided"), ("x1,v1,v2,v3", "as decided"), ("x1", "as submitted"), ("", "neither")],
)
def test_the_nodes_that_are_left_out_are_read_back(excluded: str, verdict: str) -> None:
    """The size is the same in all cases: FOUR is what the job asked for."""
    entry = entry_of(*decision_with(CHOSEN))
    finding = verify(applied_to(new_job(), excluded), entry)
    assert finding.verdict == verdict
    assert ("leaves out the nodes" in finding.text) == (verdict != "as decided")


@pytest.mark.parametrize(("excluded", "verdict"), [("v[1-3],x1", "as decided"), ("x1", "as submitted")])
def test_a_job_that_starts_while_its_type_is_taken_back_has_its_request(excluded: str, verdict: str) -> None:
    entry = msgspec.structs.replace(entry_of(*decision_with(CHOSEN)), state="restoring")
    started = msgspec.structs.replace(applied_to(new_job(), excluded), state="RUNNING")
    assert verify_kept_as_started(started, entry).verdict == verdict


def test_a_user_who_leaves_out_other_nodes_meanwhile_is_noticed() -> None:
    assert changed_meanwhile(new_job(), new_job(excluded_nodes="v1")) == "excluded nodes none → v1"
    assert changed_meanwhile(new_job(excluded_nodes="v[1-2]"), new_job(excluded_nodes="v1,v2")) == ""


def test_sizes_without_a_type_are_written_as_before() -> None:
    assert b"gpu_type" not in msgspec.json.encode(FOUR)
    assert msgspec.json.decode(msgspec.json.encode(CHOSEN), type=Allocation) == CHOSEN
    assert differences(new_job(), CHOSEN) == differences(new_job(), FOUR)
