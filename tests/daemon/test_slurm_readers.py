"""Reading Slurm, as far as it is a function of values; test_slurm_contract.py has recorded answers and real sites."""

import importlib.metadata
import importlib.util
import sys
import types

import pytest

from rlalloc.tres import gpu_type_of, gpus_of, gpus_of_request, memory_mib, parse_tres
from rlallocd.slurm import SlurmError, UnexpectedAnswer
from rlallocd.slurm.accounting import accounting, read_accounting
from rlallocd.slurm.connection import choose_reader
from rlallocd.slurm.generations import capabilities_of
from rlallocd.slurm.json_reader import JsonReader, job_record, node_record
from rlallocd.slurm.partition_text import read_partitions
from rlallocd.slurm.scheduling_rules import SchedulingRules, scheduling_rules
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_records import Reader
from rlallocd.slurm.squeue_reader import SqueueReader
from rlallocd.slurm.states import is_asleep, is_awaited, is_usable, job_state


@pytest.mark.parametrize("odd", ["²", "٣", "9" * 400, "9" * 5000, "-1", ""], ids=range(6))
def test_numbers_that_are_none_are_not_known(odd: str) -> None:
    row = ["7", "COMPLETED", "0:0", "100", odd, "110", "200", "cpu=4", "", odd, "", "c"]
    (record,) = read_accounting("\x1f".join(row))
    assert (record.eligible_s, record.consumed_energy_j, record.started_s) == (None, None, 110)
    assert read_partitions(f"PartitionName=gpu MaxNodes={odd} TotalNodes=2")["gpu"].max_nodes is None


class Prints(Commands):
    """Commands that all print the same."""

    def __init__(self, text: str) -> None:
        super().__init__(timeout_s=1)
        self._text = text

    def run(self, *words: str) -> str:
        return self._text


class TestStates:
    @pytest.mark.parametrize(
        ("words", "state"),
        [
            (["COMPLETED", "COMPLETING"], "COMPLETING"),
            (["RUNNING", "CONFIGURING", "POWER_UP_NODE"], "CONFIGURING"),
            (["PENDING", "REQUEUE_HOLD"], "REQUEUE_HOLD"),
            (["RUNNING", "STOPPED", "COMPLETING"], "COMPLETING"),
            (["PENDING"], "PENDING"),
            ([], "UNKNOWN"),
        ],
    )
    def test_a_flag_stands_before_the_base_state(self, words: list[str], state: str) -> None:
        """25.11 lists base state and flags; squeue, pyslurm and 22.05 show one word: Slurm's own order of them."""
        assert job_state(words) == state

    @pytest.mark.parametrize(
        "words",
        [
            *(["idle"], ["MIXED", "PLANNED"], ["IDLE", "POWERED_DOWN"], ["allocated"]),
            ["MIXED", "CLOUD", "NOT_RESPONDING", "POWERING_UP"],  # it boots
        ],
    )
    def test_nodes_that_take_jobs(self, words: list[str]) -> None:
        assert is_usable(words)

    @pytest.mark.parametrize(
        "words",
        [
            *(["idle", "DRAIN"], ["DOWN", "NOT_RESPONDING"], ["IDLE", "MAINT", "RESERVED"], ["idle", "MAINTENANCE"]),
            *(["IDLE", "INVALID_REG"], ["UNKNOWN"], ["FUTURE"], ["MIXED", "FAIL"]),
            *(["IDLE", "NOT_RESPONDING"], ["DOWN", "CLOUD", "NOT_RESPONDING", "POWERING_UP"]),
        ],
    )
    def test_nodes_that_do_not(self, words: list[str]) -> None:
        assert not is_usable(words)

    @pytest.mark.parametrize(
        ("words", "booted_s", "awaited"),
        [
            (["unknown"], 0, True),
            (["MIXED"], 0, True),  # with a job that slurmctld remembers
            (["IDLE", "COMPLETING"], 0, True),
            (["UNKNOWN", "NOT_RESPONDING"], 0, False),  # slurmctld has asked in vain
            (["UNKNOWN", "NOT_RESPONDING", "POWERING_UP"], 0, False),  # that takes minutes
            (["UNKNOWN", "DRAIN"], 0, False),
            (["MIXED", "DRAIN"], 0, False),
            (["IDLE", "CLOUD", "POWERED_DOWN"], 0, False),
            (["IDLE", "EXTERNAL"], 0, False),
            (["IDLE"], 1700000000, False),
            (["IDLE", "NOT_RESPONDING"], 0, False),
        ],
    )
    def test_nodes_that_have_not_reported_yet(self, words: list[str], booted_s: int, *, awaited: bool) -> None:
        assert is_awaited(words, booted_s) == awaited

    @pytest.mark.parametrize(
        ("words", "asleep"),
        [
            (["IDLE", "CLOUD", "POWERED_DOWN"], True),
            (["idle", "POWERING_UP"], True),
            (["IDLE", "REBOOT_ISSUED"], True),
            (["IDLE", "CLOUD"], False),
            (["MIXED", "PLANNED"], False),
        ],
    )
    def test_nodes_that_boot_before_a_job_starts(self, words: list[str], *, asleep: bool) -> None:
        assert is_asleep(words) == asleep


class TestSchedulingRules:
    @pytest.mark.parametrize(
        ("printed", "rules"),
        [
            ({}, SchedulingRules()),
            ({"SchedulerParameters": "(null)", "ResumeTimeout": "(null)", "PreemptMode": "OFF"}, SchedulingRules()),
            (
                {"SchedulerParameters": "bf_continue, bf_max_job_test=50,bf_window=2880", "ResumeTimeout": "300 sec"},
                SchedulingRules(bf_max_job_test=50, bf_window_s=172_800, resume_timeout_s=300),
            ),
            ({"SchedulerParameters": "max_job_bf=20,bf_window=long"}, SchedulingRules(bf_max_job_test=20)),
            (
                {"SchedulerParameters": "bf_max_job_user=2,bf_max_job_user_part=1,bf_max_job_part=9"},
                SchedulingRules(bf_max_job_user=2, bf_max_job_user_part=1, bf_max_job_part=9),
            ),
            (
                {"SchedulerParameters": "bf_max_job_assoc=4,bf_max_job_array_resv=5,bf_max_job_user=x"},
                SchedulingRules(bf_max_job_assoc=4, bf_max_job_array_resv=5),
            ),
            (
                {"PreemptType": "preempt/qos", "PreemptMode": "GANG,REQUEUE"},
                SchedulingRules(preempts_by="qos"),
            ),
            (
                {"PreemptType": "preempt/partition_prio", "PreemptMode": "CANCEL"},
                SchedulingRules(preempts_by="partition"),
            ),
            ({"PreemptType": "preempt/qos", "PreemptMode": "GANG,SUSPEND"}, SchedulingRules()),
            ({"SelectTypeParameters": "CR_SOCKET_MEMORY,CR_LLN"}, SchedulingRules(gives_sockets=True)),
            ({"SelectTypeParameters": "CR_SOCKET"}, SchedulingRules(gives_sockets=True)),
            ({"SelectTypeParameters": "CR_CORE_MEMORY"}, SchedulingRules()),
        ],
    )
    def test_what_is_printed_is_read_and_the_rest_is_as_usual(
        self, printed: dict[str, str], rules: SchedulingRules
    ) -> None:
        assert scheduling_rules(printed) == rules


class TestTres:
    def test_counts_and_memory(self) -> None:
        tres = parse_tres("cpu=32,mem=62.50G,node=1,billing=8,gres/gpu=4,gres/gpu:a100=4,license/x=N/A")
        assert tres == {
            "cpu": 32.0,
            "mem": 64_000.0,
            "node": 1.0,
            "billing": 8.0,
            "gres/gpu": 4.0,
            "gres/gpu:a100": 4.0,
        }
        assert gpus_of(tres) == 4

    @pytest.mark.parametrize(
        ("text", "mib"), [("mem=512M", 512), ("mem=1.95T", 2_044_723), ("mem=1048576K", 1024), ("mem=40960", 40_960)]
    )
    def test_memory_in_whole_mib(self, text: str, mib: int) -> None:
        assert parse_tres(text)["mem"] == mib

    def test_types_alone_are_added_up(self) -> None:
        assert gpus_of(parse_tres("gres/gpu:a100=4,gres/gpu:h100=2,gres/gpumem=80G")) == 6

    def test_nothing(self) -> None:
        assert parse_tres("") == {}
        assert gpus_of({}) == 0
        assert gpu_type_of("", "cpu=4") == ""
        assert gpus_of_request("cpu=4") == 0

    @pytest.mark.parametrize(
        ("request_text", "gpu_type", "count"),
        [
            ("gres:gpu:4", "", 4),
            ("gres/gpu:4", "", 4),
            ("gres:gpu:a100:4", "a100", 4),
            ("gres/gpu:a100:4", "a100", 4),
            ("cpu=4,gres/gpu:a100=2", "a100", 2),
            ("gres/gpu:1080:2", "1080", 2),
            ("gres/gpu:3g.20gb:1", "3g.20gb", 1),
            ("gres:gpu", "", 1),
            ("gres/gpu:a100", "a100", 1),
            ("gres/gpumem:40", "", 0),
            ("gres/gpu:a100:2,gres/gpu:h100:1", "a100", 3),
        ],
    )
    def test_requests(self, request_text: str, gpu_type: str, count: int) -> None:
        assert (gpu_type_of(request_text), gpus_of_request(request_text)) == (gpu_type, count)

    def test_the_first_type_named_counts(self) -> None:
        assert gpu_type_of("gres/gpu:8", "", "cpu=4,gres/gpu:a100=1") == "a100"

    @pytest.mark.parametrize(("text", "mib"), [("5120K", 5.0), ("1.50G", 1536.0), ("1048576", 1.0), ("", None)])
    def test_sizes_of_sacct(self, text: str, mib: float | None) -> None:
        """Sacct prints bytes where it prints no unit (--noconvert)."""
        assert memory_mib(text) == mib


def test_gpus_a_node_count_on_every_node() -> None:
    """22.05 leaves one node in tres_req_str of --ntasks=4 --ntasks-per-node=2 --gpus-per-node=2 (seen on 22.05.8)."""
    job = {
        "job_id": 1,
        "job_state": "PENDING",
        "node_count": 2,
        "tasks": 4,
        "tres_per_node": "gres:gpu:2",
        "tres_req_str": "cpu=4,mem=32000M,node=1,billing=4,gres/gpu=2",
    }
    assert job_record(job).gpus == 4


@pytest.mark.parametrize(("said", "nice"), [(None, 0), (0, 0), (20, 20), (-5, -5), (4294967291, -5)])
def test_a_nice_has_a_sign(said: int | None, nice: int) -> None:
    """22.05 leaves 0 out and prints a negative one without its sign."""
    assert job_record({"job_id": 7, "nice": said}).nice == nice


def test_a_limit_of_infinity_is_none_that_counts() -> None:
    unlimited: list[object] = [None, {"set": False, "infinite": True, "number": 0}]
    for value in unlimited:
        assert job_record({"job_id": 1, "job_state": "PENDING", "time_limit": value}).time_limit_s == 0


@pytest.mark.parametrize(
    "text", ["", "slurm_load_jobs error", '{"errors": []}', '{"jobs": [{}]}', '{"jobs": 3}', "[]"]
)
def test_json_that_cannot_be_read_is_an_unexpected_answer(text: str) -> None:
    with pytest.raises(UnexpectedAnswer):
        JsonReader(Prints(text), capabilities_of("25.11.7")).jobs()


class TestAccountingText:
    @staticmethod
    def row(job_id: str, state: str = "COMPLETED", **values: str) -> str:
        fields = {
            "exit_code": "0:0",
            "submit": "1000",
            "eligible": "1001",
            "start": "1002",
            "end": "1003",
            "alloc": "billing=8,cpu=8,gres/gpu=2,mem=40960M,node=1",
            "rss": "",
            "energy": "",
            "usage": "",
            **values,
        }
        return "\x1f".join((job_id, state, *fields.values()))

    @pytest.mark.parametrize(
        ("said", "state"),
        [
            *(("CANCELLED by 1000", "CANCELLED"), ("CANCELLED", "CANCELLED"), ("OUT_OF_MEMORY", "OUT_OF_MEMORY")),
            *(("NODE_FAIL", "NODE_FAIL"), ("REQUEUED", "REQUEUED"), ("", "UNKNOWN")),
        ],
    )
    def test_odd_states(self, said: str, state: str) -> None:
        (record,) = read_accounting(self.row("7", said))
        assert record.state == state

    def test_peak_and_energy_are_the_largest_of_the_steps(self) -> None:
        rows = [
            self.row("7", energy="0"),
            self.row("7.batch", rss="5242880K", energy="90"),
            self.row("7.extern", rss="", energy=""),
            self.row("7.0", rss="10485760K", energy="4000"),
            self.row("8"),
        ]
        first, second = read_accounting("\n".join(rows) + "\n")
        assert (first.max_rss_mib, first.consumed_energy_j) == (10_240, 4000)
        assert (second.max_rss_mib, second.consumed_energy_j) == (None, None)

    def test_cpu_time_is_of_all_steps_and_memory_of_the_largest(self) -> None:
        """As 22.05 prints it with --noconvert: memory in bytes, summed over a step's tasks."""
        rows = [
            self.row("7"),
            self.row("7.batch", usage="cpu=00:00:10,energy=0,fs/disk=32990,mem=12521472,pages=2,vmem=226529280"),
            self.row("7.0", usage="cpu=1-02:00:01,energy=0,mem=427819008,pages=0"),
            self.row("8"),
            self.row("8.batch"),
        ]
        first, second = read_accounting("\n".join(rows))
        assert (first.cpu_s_used, first.mem_mib_used) == (26 * 3600 + 11, 408)
        assert (second.cpu_s_used, second.mem_mib_used) == (None, None)

    def test_a_requeued_job_has_a_record_for_each_run(self) -> None:
        rows = [
            self.row("7", "REQUEUED"),
            self.row("7.batch", "CANCELLED", rss="1024K"),
            self.row("7", submit="2000"),
            self.row("7.batch", rss="2048K"),
        ]
        first, second = read_accounting("\n".join(rows))
        assert (first.submitted_s, first.max_rss_mib) == (1000, 1)
        assert (second.submitted_s, second.max_rss_mib) == (2000, 2)

    def test_a_job_that_never_started(self) -> None:
        (record,) = read_accounting(self.row("7", "CANCELLED by 0", start="None", end="Unknown", alloc=""))
        assert (record.started_s, record.ended_s, record.nodes, record.gpus, record.mem_mib) == (None, None, 0, 0, 0)

    def test_nothing(self) -> None:
        assert read_accounting("") == ()

    def test_a_comment_is_text_whatever_its_user_writes(self) -> None:
        """With delimiters of any kind, and lines that look like another job's."""
        delimiter = "\x1f0123456789abcdef"
        comment = "a\x1fb\x1e" + delimiter + "\n8\n" + self.row("9", "OUT_OF_MEMORY")
        row = self.row("7").replace("\x1f", delimiter) + delimiter + comment
        (record,) = read_accounting(row + "\n", delimiter)
        assert (record.job_id, record.comment) == (7, "a\x1fb\x1e" + delimiter)

    def test_no_user_can_know_the_delimiter(self) -> None:
        asked: list[str] = []

        class Noted(Commands):
            def run(self, *words: str) -> str:
                asked.extend(word for word in words if word.startswith("--delimiter="))
                return ""

        for _ in range(2):
            assert accounting(Noted(1), [7], since_s=0) == ()
        assert len(set(asked)) == 2


class TestChoiceOfReader:
    """The commands, unless pyslurm is asked for by name; and why is said."""

    @staticmethod
    def choose(backend: str, slurm_version: str) -> tuple[Reader, str]:
        return choose_reader(backend, Commands(1), slurm_version, capabilities_of(slurm_version))

    @staticmethod
    def install(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
        """Make importlib.metadata say that this version of pyslurm is installed, or none."""

        def says(name: str) -> str:
            assert name == "pyslurm"
            if version is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return version

        monkeypatch.setattr(importlib.metadata, "version", says)

    @pytest.mark.parametrize(
        ("installed", "slurm", "why"),
        [
            (None, "25.11.7", "pyslurm is not installed"),
            ("25.11.2", "22.05.8", "pyslurm 25.11.2 does not match slurmctld 22.05.8"),
            ("25.11.2", "25.05.1", "pyslurm 25.11.2 does not match slurmctld 25.05.1"),
            ("22.5.1", "22.08.2", "pyslurm 22.5.1 does not match slurmctld 22.08.2"),
        ],
    )
    def test_no_pyslurm_or_another_version(
        self, monkeypatch: pytest.MonkeyPatch, installed: str | None, slurm: str, why: str
    ) -> None:
        self.install(monkeypatch, installed)
        with pytest.raises(SlurmError, match=f"slurm.backend is pyslurm, but {why}; set it to auto or cli"):
            self.choose("pyslurm", slurm)

    @pytest.mark.parametrize(("installed", "slurm"), [("25.11.2", "25.11.7"), ("22.5.1", "22.05.8")])
    def test_a_match_that_cannot_be_imported(
        self, monkeypatch: pytest.MonkeyPatch, installed: str, slurm: str
    ) -> None:
        """Versions are compared as numbers: pyslurm 22.5 is Slurm 22.05."""
        if importlib.util.find_spec("pyslurm") is not None:
            pytest.skip("pyslurm is installed here, so it can be imported")
        self.install(monkeypatch, installed)
        with pytest.raises(SlurmError, match="cannot be imported"):
            self.choose("pyslurm", slurm)

    @pytest.mark.parametrize("backend", ["auto", "cli"])
    def test_the_commands_unless_pyslurm_is_named(self, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
        """They are faster, though pyslurm matches."""
        self.install(monkeypatch, "25.11.2")
        reader, said = self.choose(backend, "25.11.7")
        assert isinstance(reader, SqueueReader)
        assert said == f"slurm.backend is {backend}"


class TestRunningJobsOfPyslurm:
    """Without pyslurm, which is not to be had here: only which jobs its reader has read otherwise."""

    @pytest.mark.parametrize(
        ("state", "sharing", "complete"),
        [("RUNNING", "NO", False), ("RUNNING", "OK", True), ("PENDING", "NO", True), ("COMPLETED", "NO", False)],
    )
    def test_what_an_exclusive_job_has_is_read_by_the_commands(
        self, monkeypatch: pytest.MonkeyPatch, state: str, sharing: str, complete: bool
    ) -> None:
        """Pyslurm tells what it requested, and it has all of its nodes."""
        monkeypatch.setitem(sys.modules, "pyslurm", types.ModuleType("pyslurm"))
        monkeypatch.delitem(sys.modules, "rlallocd.slurm.pyslurm_process", raising=False)
        reader = importlib.import_module("rlallocd.slurm.pyslurm_process")
        monkeypatch.delitem(sys.modules, "rlallocd.slurm.pyslurm_process")
        job = _Job(id=7, state=state, resource_sharing=sharing, num_nodes=2, gres_per_node={})
        record, is_complete = reader._job(job)
        assert (record.is_exclusive, is_complete) == (sharing == "NO", complete)


class _Job(types.SimpleNamespace):
    """A pyslurm.Job of which all else is unset."""

    cpus = 4

    def __getattr__(self, name: str) -> None:
        return None


@pytest.mark.parametrize(("cpus", "of_core"), [(32, 1), (64, 2), (0, 1)])
def test_a_cpu_is_a_core_where_a_node_has_as_many(cpus: int, of_core: int) -> None:
    """With CPUs=32, Slurm schedules cores (slurm.conf(5), CPUs). Those kept for the system count, too."""
    node = {"name": "n1", "cpus": cpus, "effective_cpus": cpus // 2, "sockets": 2, "cores": 16, "threads": 2}
    assert node_record(node).cpus_per_core == of_core


@pytest.mark.parametrize("shown", ["hbm,80G+", ["hbm", "80G+"]])
def test_a_feature_may_have_a_plus_in_its_name(shown: object) -> None:
    assert node_record({"name": "n1", "active_features": shown}).features == {"hbm", "80G+"}


@pytest.mark.parametrize(
    ("shown", "cpus"),
    [({}, 16), ({"tres": "cpu=14,mem=62.50G"}, 14), ({"tres": "cpu=16", "effective_cpus": 14}, 14)],
)
def test_cores_that_a_node_keeps_for_itself_are_not_for_jobs(shown: dict[str, object], cpus: int) -> None:
    """CoreSpecCount: 22.05 tells in its TRES what is left for jobs."""
    assert node_record({"name": "n1", "cpus": 16, **shown}).cpus == cpus


@pytest.mark.parametrize(
    ("request_", "gpus"),
    [
        ({"tres_per_job": "gres:gpu:2"}, 2),
        ({"tres_per_task": "gres:gpu:1"}, 4),
        ({"tres_per_node": "gres:gpu:3"}, 3),
        ({}, 0),
    ],
)
def test_gpus_are_read_from_the_request_where_slurm_does_not_account_for_them(
    request_: dict[str, str], gpus: int
) -> None:
    """Without slurmdbd, AccountingStorageTRES cannot name them."""
    job = {"job_id": 7, "node_count": 1, "tasks": 4, "cpus": 4, "tres_req_str": "cpu=4,mem=1G,node=1", **request_}
    assert job_record(job).gpus == gpus


@pytest.mark.parametrize(("per_gpu", "per_cpu"), [("gres:gpu:4096", 0), ("", 4000)])
def test_memory_per_cpu_beside_memory_per_gpu_is_slurms_own(per_gpu: str, per_cpu: int) -> None:
    """22.05 sets DefMemPerCPU as it tries to start such a job, and clears it again: no change by anybody."""
    job = {"job_id": 7, "tres_req_str": "cpu=1,mem=16G,node=1,gres/gpu=4", "tres_per_node": "gres:gpu:4"}
    fields = job_record(job | {"memory_per_tres": per_gpu, "memory_per_cpu": 4000}).fields
    assert fields.mem_mib_per_cpu == per_cpu
