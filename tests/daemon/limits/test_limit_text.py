"""Reading what Slurm's commands print of limits, as 22.05 and 25.11 print it."""

import pytest

from rlallocd.slurm import GpuDefaults, UnexpectedAnswer
from rlallocd.slurm.limit_records import Pool
from rlallocd.slurm.limit_text import read_associations, read_preempts, read_qos, read_reservations
from rlallocd.slurm.partition_text import read_partitions

ASSOCIATION = (
    "ClusterName=c Account=llm UserName=alice(1001) Partition= Priority=0 ID=4 "
    "SharesRaw/Norm/Level/Factor=1/0.33/3/1.00 UsageRaw/Norm/Efctv=0.00/0.00/0.00 ParentAccount= Lft=3 "
    "DefAssoc=Yes GrpJobs=N(2) GrpJobsAccrue=N(0) "
    "GrpSubmitJobs=N(2) GrpWall=N(0.00) GrpTRES=cpu=N(8),mem=102400(64000),gres/gpu=6(3) "
    "GrpTRESMins=cpu=100000(7) GrpTRESRunMins=cpu=N(60) MaxJobs=5(2) MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=60 "
    "MaxTRESPJ=cpu=24,gres/gpu=4 MaxTRESPN=cpu=16 MaxTRESMinsPJ= MinPrioThresh="
)
ACCOUNT = ASSOCIATION.replace("UserName=alice(1001)", "UserName=").replace("ParentAccount=", "ParentAccount=root(1)")
QOS = (
    "QOS=high(2) UsageRaw=198.516858 GrpJobs=N(0) GrpJobsAccrue=N(0) GrpSubmitJobs=N(0) GrpWall=55(0.83) "
    "GrpTRES=cpu=N(0),node=2(0) GrpTRESMins=cpu=9999(3) GrpTRESRunMins=cpu=900(0) MaxWallPJ=90 MaxTRESPJ=cpu=30 "
    "MaxTRESPN= MaxTRESMinsPJ=cpu=1000 MinPrioThresh=  MinTRESPJ=gres/gpu=1 PreemptMode=OFF Priority=0 "
    "Account Limits= llm={MaxJobsPA=N(0) MaxSubmitJobsPA=N(0) MaxTRESPA=cpu=40(4),gres/gpu=N(1)} "
    "User Limits= 1001={MaxJobsPU=N(0) MaxSubmitJobsPU=N(0) MaxTRESPU=cpu=N(4),gres/gpu=6(1)}"
)
QOS_OF_25_11 = QOS.replace("1001={", "alice(1001)={").replace(
    "gres/gpu=6(1)}", "gres/gpu=6(1) MaxTRESRunMinsPU=cpu=50(20)}"
)
SACCTMGR = "normal||1.000000||||\nhigh|DenyOnLimit,OverPartQOS|0.500000|2.000000|gres/gpu=6|cpu=40|normal,scavenger\n"


def test_an_association_has_its_limits_and_their_use() -> None:
    (association,) = read_associations(f"Current Association Manager state\nAssociation Records\n{ASSOCIATION}\n")
    assert (association.account, association.user, association.user_id) == ("llm", "alice", 1001)
    assert association.parent == ""
    assert association.limits.group == Pool({"mem": 102400, "gres/gpu": 6}, {"cpu": 8, "mem": 64000, "gres/gpu": 3})
    assert association.limits.group_wall_min is None
    assert association.limits.max_wall_min == 60
    assert association.limits.max_tres == {"cpu": 24, "gres/gpu": 4}
    assert association.limits.max_tres_minutes == {}


def test_an_accounts_association_names_the_account_above() -> None:
    (account,) = read_associations(ACCOUNT)
    assert (account.account, account.user, account.parent) == ("llm", "", "root")


def test_names_may_have_blanks() -> None:
    """Sacctmgr makes such accounts and QOS."""
    mine, above = (text.replace("Account=llm", "Account=ml team", 1) for text in (ASSOCIATION, ACCOUNT))
    found = read_associations("\n".join([mine, above.replace("=root(1)", "=big lab(7)")]))
    assert [each.account for each in found] == ["ml team", "ml team"]
    assert [each.parent for each in found] == ["", "big lab"]
    text = QOS.replace("QOS=high", "QOS=night shift").replace(" llm={", " llm={MaxTRESPA=cpu=1} ml team={")
    qos = read_qos(text, SACCTMGR.replace("high|", "night shift|"))["night shift"]
    assert qos.per_account["ml team"].limits == {"cpu": 40}
    assert set(qos.per_account) == {"llm", "ml team"}
    assert set(qos.per_user) == {1001}


def test_a_qos_names_those_that_it_may_preempt() -> None:
    assert read_preempts(SACCTMGR) == {"normal": frozenset(), "high": frozenset({"normal", "scavenger"})}


@pytest.mark.parametrize("text", [QOS, QOS_OF_25_11])
def test_a_qos_has_its_flags_factors_and_owners(text: str) -> None:
    qos = read_qos(f"QOS Records\n{text}\n", SACCTMGR)["high"]
    assert qos.flags == {"DenyOnLimit", "OverPartQOS"}
    assert (qos.usage_factor, qos.limit_factor) == (0.5, 2.0)
    assert qos.min_tres == {"gres/gpu": 1}
    assert qos.limits.group_wall_min == 55
    assert qos.limits_users
    assert qos.limits_accounts
    assert qos.per_account["llm"].limits == {"cpu": 40}
    assert qos.per_user[1001] == Pool({"gres/gpu": 6}, {"cpu": 4, "gres/gpu": 1})
    assert qos.per_user_running_minutes[1001].limits == ({"cpu": 50} if text is QOS_OF_25_11 else {})


@pytest.mark.parametrize(
    "line",
    [
        ASSOCIATION.replace("gres/gpu=4", "gres/gpu=lots"),
        ASSOCIATION.replace("MaxTRESPN=cpu=16", ""),
        ASSOCIATION.replace("MaxWallPJ=60", "MaxWallPJ=soon"),
    ],
)
def test_a_limit_that_is_not_understood_is_not_taken_for_none(line: str) -> None:
    with pytest.raises(UnexpectedAnswer, match="cannot read a limit"):
        read_associations(line)


def test_a_qos_that_slurmdbd_does_not_tell_is_not_taken_for_one_without_flags() -> None:
    with pytest.raises(UnexpectedAnswer, match="high"):
        read_qos(QOS, "normal||1.000000||||\n")


def test_reservations() -> None:
    text = (
        "ReservationName=maint StartTime=2000 EndTime=3000 Duration=00:16:40 Nodes=n[1-2] NodeCnt=2 Flags=MAINT "
        "Licenses=(null)\n"
        "ReservationName=licenses StartTime=2000 EndTime=3000 Nodes=(null) Licenses=a:1\n"
    )
    maintenance, licenses = read_reservations(text, lambda expression: frozenset({expression}))
    assert (maintenance.name, maintenance.start_s) == ("maint", 2000)
    assert maintenance.nodes == {"n[1-2]"}
    assert (licenses.nodes, licenses.licenses, maintenance.licenses) == (frozenset(), {"a": 1}, {})
    assert read_reservations("No reservations in the system\n", frozenset) == ()


def test_partitions() -> None:
    text = (
        "PartitionName=gpu AllowGroups=ALL AllowAccounts=a,b DenyQos=low Default=YES QoS=N/A MaxNodes=UNLIMITED "
        "MaxTime=1-00:00:00 MinNodes=0 MaxCPUsPerNode=32 TotalCPUs=128 TotalNodes=2 MaxMemPerNode=UNLIMITED\n"
        "PartitionName=other QoS=q AllowAccounts=ALL AllowQos=ALL MaxNodes=4 MaxTime=UNLIMITED MaxMemPerCPU=4000 "
        "JobDefaults=DefCpuPerGPU=2,DefMemPerGPU=4000\n"
    )
    partitions = read_partitions(text)
    gpu, other = partitions["gpu"], partitions["other"]
    assert (gpu.max_time_s, gpu.max_nodes, gpu.max_cpus_per_node, gpu.qos) == (86400, None, 32, "")
    assert gpu.allow_accounts == frozenset({"a", "b"})
    assert gpu.allow_qos is None
    assert gpu.deny_qos == {"low"}
    assert (other.max_time_s, other.max_nodes, other.qos, other.max_mem_mib_per_cpu) == (None, 4, "q", 4000)
    assert (gpu.is_default, other.is_default) == (True, False)
    assert (gpu.gpu_defaults, other.gpu_defaults) == (GpuDefaults(), GpuDefaults(2, 4000))


@pytest.mark.parametrize(
    ("words", "whole"),
    [
        ("OverSubscribe=EXCLUSIVE", True),
        ("Exclusive=NODE OverSubscribe=NO", True),  # Slurm 26.05
        ("Exclusive=NO OverSubscribe=NO", False),
        ("ExclusiveUser=YES OverSubscribe=FORCE:2", False),
    ],
)
def test_a_partition_may_give_each_job_its_nodes_alone(words: str, whole: bool) -> None:
    assert read_partitions(f"PartitionName=gpu {words} State=UP")["gpu"].whole_nodes is whole


@pytest.mark.parametrize(
    ("words", "gives"), [("NONE", None), ("CR_CORE_MEMORY", False), ("CR_SOCKET", True), ("CR_SOCKET_MEMORY", True)]
)
def test_whether_a_partition_gives_whole_sockets(words: str, *, gives: bool | None) -> None:
    text = f"PartitionName=gpu SelectTypeParameters={words} State=UP"
    assert read_partitions(text)["gpu"].gives_sockets is gives
