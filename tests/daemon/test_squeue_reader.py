"""Columns of squeue say what its JSON says; what they leave open is asked for. On real sites: test_slurm_contract."""

import itertools
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlallocd.slurm import UpdateRefused
from rlallocd.slurm.generations import capabilities_of
from rlallocd.slurm.json_reader import JsonReader, job_record
from rlallocd.slurm.pace import JobsPerCommand
from rlallocd.slurm.request_details import RequestDetails, request_details
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import UnknownJob
from rlallocd.slurm.squeue_columns import COLUMNS, Marks, record_of
from rlallocd.slurm.squeue_reader import SqueueReader

MIB = 1024
SLURM_22_05 = capabilities_of("22.05.8")
SLURM_24_11 = capabilities_of("24.11.5")


class PrintsColumns(Commands):
    """A squeue that prints jobs in the columns that it is asked for, and JSON where it is asked for that."""

    def __init__(
        self, *jobs: dict[str, str], json: str = '{"jobs": []}', text: str = "", alone: str | None = None
    ) -> None:
        super().__init__(timeout_s=1)
        self.text = text
        self.alone = text if alone is None else alone
        self.jobs = jobs
        self.json = json
        self.asked: list[str] = []

    def run(self, *words: str) -> str:
        if any(word.startswith("--json") for word in words):
            self.asked.append("json")
            return self.json
        if words[0] == "scontrol":
            self.asked.append(" ".join(words[-2:]))
            return self.text
        user = next((word.removeprefix("--user=") for word in words if word.startswith("--user=")), "")
        self.asked.append(f"columns of {user}" if user else "columns")
        if not self.jobs and self.text:
            return self.text
        columns = words[-1].removeprefix("--Format=").split(",")
        marks = [column.split(":")[1] for column in columns]
        shown = [job for job in self.jobs if not user or job["user_name"] == user]
        return "".join("".join(map("".join, zip(job.values(), marks, strict=True))) + "\n" for job in shown)

    def converse(self, *words: str, lines: Sequence[str]) -> str:
        self.asked += lines
        return self.alone


SHOWN = (
    "JobId=7 JobName=llm UserId=llm-alice(1001) Reason=Resources NodeList=(null) NumNodes=2-4 NumCPUs=4 NumTasks=1 "
    "CPUs/Task=4 TRES=cpu=4,mem=8G,node=1 MinCPUsNode=4 MinMemoryCPU=8G MinTmpDiskNode=0 Comment=NumNodes=1-7 \n"
)


SHOWN_DETAILS = RequestDetails(max_nodes=4, mem_per_cpu=True, is_scrontab=False)


def columns_of_a_job(**changes: str) -> dict[str, str]:
    """What squeue 22.05 prints of a pending job of one node and one GPU."""
    return dict.fromkeys(COLUMNS, "N/A") | {
        "job_id": "7",
        "user_name": "llm-alice",
        "name": "llm",
        "job_state": "PENDING",
        "state_reason": "Resources",
        "submit_time": "1000",
        "time_limit": "1-02:03:00",
        "priority": "12",
        "admin_comment": "(null)",
        "node_count": "1",
        "tasks": "1",
        "max_nodes": "1",
        "cpus": "4",
        "tres_req_str": "cpu=4,mem=8G,node=1,billing=4,gres/gpu=1",
        "tres_per_node": "gres:gpu:1",
        "batch_flag": "1",
        "minimum_memory": "8192M",
        "array_job_id": "7",
        "shared": "OK",
        **changes,
    }


MOMENTS = {
    "job_state": st.sampled_from(["PENDING", "RUNNING", "COMPLETING", ""]),
    "state_reason": st.sampled_from(["None", "Resources", "Nodes required for job are DOWN, DRAINED", "QOSMax:x"]),
    "eligible_time": st.sampled_from(["0", "1000", "N/A"]),
    "start_time": st.sampled_from(["2000", "N/A"]),
    "time_limit": st.sampled_from(["30:00", "1-02:03:00", "UNLIMITED"]),
    "priority": st.sampled_from(["12", "4294967294"]),
    "admin_comment": st.sampled_from(["(null)", "ours"]),
    "nice": st.sampled_from(["0", "-5", "4294967290"]),
    "restart_cnt": st.sampled_from(["0", "1"]),
    "nodes": st.sampled_from(["", "n1"]),
}
"""What may change while a job waits, and when it starts."""


class TestColumnsOfSqueue:
    def test_a_job(self) -> None:
        (job,) = SqueueReader(squeue := PrintsColumns(columns_of_a_job()), JsonReader(squeue, SLURM_22_05)).jobs()
        assert (job.job_id, job.gpus, job.cpus, job.mem_mib, job.time_limit_s) == (7, 1, 4, 8 * MIB, 93_780)
        assert (job.admin_comment, job.is_array, job.is_batch, job.is_exclusive) == ("", False, True, False)
        assert squeue.asked == ["columns"]

    @pytest.mark.parametrize("nice", [-5, 0, 70])
    def test_a_nice_has_a_sign(self, nice: int) -> None:
        squeue = PrintsColumns(columns_of_a_job(nice=str(nice)))
        (job,) = SqueueReader(squeue, JsonReader(squeue, SLURM_22_05)).jobs()
        assert job.nice == nice

    @pytest.mark.parametrize("name", ["N/A", "two\nlines", "|0|", " 8 |x|PENDING", "käse"])
    def test_no_name_of_a_job_can_break_the_columns(self, name: str) -> None:
        squeue = PrintsColumns(columns_of_a_job(name=name), columns_of_a_job(job_id="8", array_job_id="8"))
        first, second = SqueueReader(squeue, JsonReader(squeue, SLURM_22_05)).jobs()
        assert (first.name, first.job_id, second.job_id) == (name, 7, 8)

    def test_columns_are_marked_anew_in_each_call(self) -> None:
        """Else a user who has seen squeue's command line could write the mark into a job's name."""
        asked = []

        class Listens(PrintsColumns):
            def run(self, *words: str) -> str:
                asked.append(words[-1])
                return super().run(*words)

        reader = SqueueReader(squeue := Listens(columns_of_a_job()), JsonReader(squeue, SLURM_22_05))
        reader.jobs()
        reader.jobs()
        assert asked[0] != asked[1]

    @pytest.mark.parametrize(
        ("said", "reason"),
        [
            ("RaisedSignal:9(Killed)", "RaisedSignal"),
            ("ReqNodeNotAvail, UnavailableNodes:n4", "ReqNodeNotAvail"),
            ("None", "None"),
        ],
    )
    def test_what_is_added_to_a_reason_is_left_out(self, said: str, reason: str) -> None:
        (job,) = SqueueReader(
            squeue := PrintsColumns(columns_of_a_job(state_reason=said)),
            JsonReader(squeue, SLURM_22_05),
        ).jobs()
        assert job.reason == reason

    def test_what_columns_leave_open_is_asked_for_once_of_jobs_that_may_be_ours(self) -> None:
        """Until a part of the request changes: priority and estimates do all the time."""
        ours = columns_of_a_job(admin_comment="ours", node_count="2", max_nodes="2")
        squeue = PrintsColumns(columns_of_a_job(job_id="8"), ours, text=SHOWN)
        reader = SqueueReader(squeue, JsonReader(squeue, SLURM_22_05))
        for priority in ("12", "12", "13"):
            squeue.jobs = (columns_of_a_job(job_id="8"), {**ours, "priority": priority})
            _, job = reader.jobs()
            assert (job.fields.max_nodes, job.fields.mem_mib_per_cpu, job.fields.mem_mib_per_node) == (4, 8192, 0)
        assert squeue.asked == ["columns", "show job", "columns", "columns"]
        squeue.jobs = ({**ours, "cpus": "8"},)
        reader.jobs()
        assert squeue.asked[4:] == ["columns", "show job"]

    def test_and_again_whenever_a_job_is_read_back(self) -> None:
        ours = columns_of_a_job(admin_comment="ours")
        squeue = PrintsColumns(ours, text=SHOWN)
        reader = SqueueReader(squeue, JsonReader(squeue, SLURM_22_05))
        assert reader.jobs()[0].fields.max_nodes == 4
        squeue.text = SHOWN.replace("2-4", "2-2")
        assert reader.read_back([7])[7].fields.max_nodes == 2
        assert reader.jobs()[0].fields.max_nodes == 2
        assert squeue.asked == ["columns", "show job", "columns", "show job", "columns"]

    @given(st.lists(st.fixed_dictionaries(MOMENTS), min_size=1, max_size=4))
    def test_a_row_with_the_same_request_is_read_as_if_it_were_new(self, moments: list[dict[str, str]]) -> None:
        squeue = PrintsColumns(columns_of_a_job(admin_comment="ours"), text=SHOWN)
        reader = SqueueReader(squeue, JsonReader(squeue, SLURM_22_05))
        reader.jobs()
        for changes in moments:
            squeue.jobs = (columns_of_a_job(**changes),)
            marks = Marks(SLURM_22_05)
            (key,) = marks.keys(squeue.run(marks.option))
            assert reader.jobs() == (record_of(marks.row(key), SHOWN_DETAILS, SLURM_22_05),)
        assert squeue.asked.count("show job") == 1

    @pytest.mark.parametrize(
        "name", ["x NumNodes=1-99 MinMemoryNode=1", "two\nlines", "JobId=7 JobName=llm NumNodes=1-9"]
    )
    def test_no_name_of_a_job_can_forge_what_is_shown(self, name: str) -> None:
        squeue = PrintsColumns(text=SHOWN.replace("JobName=llm", f"JobName={name}"))
        assert request_details(squeue, {7: name}, 1, JobsPerCommand()) == {7: SHOWN_DETAILS}

    def test_nor_what_is_shown_of_another_job(self) -> None:
        forged = "x\nJobId=7 JobName=llm  NumNodes=1-99 NumCPUs=4 MinMemoryNode=1 "
        squeue = PrintsColumns(text=SHOWN.replace("JobId=7 JobName=llm", f"JobId=6 JobName={forged}") + SHOWN)
        assert request_details(squeue, {6: forged, 7: "llm"}, 2, JobsPerCommand()) == {6: SHOWN_DETAILS, 7: None}

    @pytest.mark.parametrize(("shown", "few"), [(" Switches=1@00:05:00 ", True), ("", False)])
    def test_few_switches_are_a_need(self, shown: str, few: bool) -> None:
        """As in the JSON, from 23.02 on."""
        squeue = PrintsColumns(text=SHOWN.replace(" \n", f" {shown}\n"))
        shown_details = request_details(squeue, {7: "llm"}, 1, JobsPerCommand())[7]
        assert shown_details is not None
        assert shown_details.needs.few_switches == few
        assert job_record({"job_id": 7, "required_switches": int(few)}).needs.few_switches == few

    @pytest.mark.parametrize(("shown", "has"), [(" BurstBuffer=capacity=1G ", True), ("", False)])
    def test_a_burst_buffer_is_seen(self, shown: str, has: bool) -> None:
        """Also after a comment that has a line end."""
        for before in ("", "Comment=one\ntwo "):
            squeue = PrintsColumns(text=SHOWN.replace(" \n", f" {before}{shown}\n"))
            details = request_details(squeue, {7: "llm"}, 1, JobsPerCommand())[7]
            assert details is not None
            assert details.needs.burst_buffer == has
        assert job_record({"job_id": 7, "burst_buffer": shown}).needs.burst_buffer == has

    def test_of_a_job_that_is_not_shown_only_the_totals_count(self) -> None:
        """Its memory could be per CPU."""
        squeue = PrintsColumns(columns_of_a_job(admin_comment="ours"))
        reader = SqueueReader(squeue, JsonReader(squeue, SLURM_22_05))
        for _ in range(2):  # and it is asked for again
            (job,) = reader.jobs()
            assert job.unread
            assert not job.fields.reported
            assert job.mem_mib == 8192
        squeue.text = squeue.alone = SHOWN
        (job,) = reader.jobs()
        assert job.fields.reported
        assert not job.unread

    @pytest.mark.parametrize("ours", [5, 6])
    def test_a_few_jobs_are_shown_one_by_one_and_more_with_the_whole_queue(self, ours: int) -> None:
        """A message for each of many jobs costs more than one for all, and a long queue more than a few jobs."""
        others = [columns_of_a_job(job_id=str(number)) for number in range(8, 108 - ours)]
        numbers = range(1000, 1000 + ours)
        rows = [columns_of_a_job(job_id=str(number), admin_comment="ours") for number in numbers]
        squeue = PrintsColumns(*others, *rows, text="".join(SHOWN.replace("=7", f"={number}") for number in numbers))
        reader = SqueueReader(squeue, JsonReader(squeue, SLURM_22_05))
        asked = ["show job"] if ours > 5 else [f"show job {number}" for number in numbers]
        assert {job.fields.max_nodes for job in reader.jobs() if job.admin_comment} == {4}
        assert squeue.asked == ["columns", *asked]
        assert {job.fields.max_nodes for job in reader.read_back(numbers).values()} == {4}
        assert squeue.asked == ["columns", *asked, "columns of llm-alice", *asked]

    @pytest.mark.parametrize(
        "text",
        [
            SHOWN.replace("MinMemoryCPU", "MinMemoryNode"),
            f"JobId={'9' * 5000} JobName=other \n",
            SHOWN.replace("MinTmpDiskNode=0", f"MinTmpDiskNode={'9' * 400}G"),
            SHOWN.replace("MinTmpDiskNode=0", "MinTmpDiskNode=1.2.3"),
            "JobId=9 ArrayJobId=7 ArrayTaskId=3 x\nJobId=7 ArrayJobId=7 ArrayTaskId=0-9 x\n",
            "JobId=9 ArrayJobId=7 ArrayTaskId=3 x\nJobId=7 ArrayJobId=7 ArrayTaskId=0-9],9_[3 x\n",
            "JobId=7",
        ],
        ids=["another request", "a long id", "a large disk", "no number", "an array", "a list of tasks", "no more"],
    )
    def test_lines_that_texts_of_other_jobs_imitate_change_nothing(self, text: str) -> None:
        """Where the whole queue is shown, it has texts of all users, such as a comment with line ends."""
        squeue = PrintsColumns(columns_of_a_job(admin_comment="ours"), text=SHOWN + text, alone=SHOWN)
        (job,) = SqueueReader(squeue, JsonReader(squeue, SLURM_22_05)).jobs()
        assert (job.fields.max_nodes, job.fields.mem_mib_per_cpu, job.needs.tmp_disk_mib) == (4, 8192, 0)
        assert not job.is_split

    def test_an_array_stays_split_whatever_others_write(self) -> None:
        rest = SHOWN.replace("JobId=7 ", "JobId=7 ArrayJobId=7 ArrayTaskId=2-9 ")
        split = rest + SHOWN.replace("JobId=7 ", "JobId=8 ArrayJobId=7 ArrayTaskId=1 ")
        others = "JobId=7 ArrayJobId=999 ArrayTaskId=1 x\nJobId=8 ArrayJobId=999 ArrayTaskId=1 x\n"
        for queued in (0, 1000):
            squeue = PrintsColumns(text=split + others, alone=split + others)
            details = request_details(squeue, {7: "llm"}, queued, JobsPerCommand())[7]
            assert details is not None
            assert details.is_split

    def test_a_job_that_another_in_the_batch_imitates_is_asked_for_alone(self) -> None:
        other = SHOWN.replace("JobId=7 JobName=llm", "JobId=8 JobName=other")
        imitates = other + SHOWN.replace("MinMemoryCPU", "MinMemoryNode")

        class ShowsWhatIsAsked(PrintsColumns):
            def converse(self, *words: str, lines: Sequence[str]) -> str:
                super().converse(*words, lines=lines)
                return "".join({"show job 7": SHOWN, "show job 8": imitates}[line] for line in lines)

        squeue = ShowsWhatIsAsked()
        assert request_details(squeue, {7: "llm", 8: "other"}, 1000, JobsPerCommand()) == {
            7: SHOWN_DETAILS,
            8: SHOWN_DETAILS,
        }
        assert squeue.asked == ["show job 7", "show job 8", "show job 7"]

    def test_jobs_that_imitate_themselves_are_asked_for_ever_more_rarely(self) -> None:
        """Each costs a command of its own. One that scontrol did not show is asked for in the next cycle."""
        twice = SHOWN + SHOWN.replace("MinMemoryCPU", "MinMemoryNode")
        shown = {number: twice.replace("=7", f"={number}") for number in range(7, 14)}
        now_s = 0.0

        class ShowsWhatIsAsked(PrintsColumns):
            def converse(self, *words: str, lines: Sequence[str]) -> str:
                super().converse(*words, lines=lines)
                numbers = [int(line.split()[-1]) for line in lines]
                return "".join(shown[number] for number in numbers if number != 8)

        rows = [columns_of_a_job(job_id=str(number), admin_comment="ours") for number in shown]
        squeue = ShowsWhatIsAsked(*rows)
        reader = SqueueReader(squeue, JsonReader(squeue, SLURM_22_05), clock=lambda: now_s)

        def asked_in_a_cycle() -> list[int]:
            squeue.asked.clear()
            reader.jobs()
            return [int(line.split()[-1]) for line in squeue.asked if line.startswith("show job ")]

        assert asked_in_a_cycle() == [*range(7, 14), 7, 9, 10, 11, 12]
        assert asked_in_a_cycle() == [8, 13, 13]
        assert asked_in_a_cycle() == [8]
        now_s = 29.0
        assert asked_in_a_cycle() == [8]
        now_s = 61.0
        assert set(asked_in_a_cycle()) == set(shown)
        asked_in_a_cycle()
        now_s = 120.0
        assert asked_in_a_cycle() == [8]
        shown[7] = SHOWN
        now_s = 10_000.0
        assert [job.unread for job in reader.jobs()] == [False, *[True] * 6]

    @pytest.mark.parametrize("state", ["PENDING", "COMPLETING"])
    def test_a_requeued_task_of_ours_has_a_record_of_its_own(self, state: str) -> None:
        """It is in squeue's row of the tasks that have not started, unless it is asked for by its job id."""
        rest = columns_of_a_job(admin_comment="ours", array_task_id="0,2-3")
        requeued = columns_of_a_job(job_id="8", array_task_id="0", admin_comment="ours", restart_cnt="1")
        runs = columns_of_a_job(job_id="9", array_task_id="1", admin_comment="ours", job_state="RUNNING")
        shown = {
            "7": SHOWN.replace("JobName=", "ArrayJobId=7 ArrayTaskId=2-3%1 JobName=", 1),
            "8": SHOWN.replace("JobId=7 JobName=", "JobId=8 ArrayJobId=7 ArrayTaskId=0 JobName=", 1),
            "9": SHOWN.replace("JobId=7 JobName=", "JobId=9 ArrayJobId=7 ArrayTaskId=1 JobName=", 1),
        }
        shown = {
            number: line.replace("Reason=", f"JobState={'RUNNING' if number == '9' else state} Reason=")
            for number, line in shown.items()
        }

        forgotten = False

        class PutsTasksTogether(PrintsColumns):
            def run(self, *words: str) -> str:
                options = dict(word.split("=", 1) for word in words if word.startswith("--jobs="))
                ids = set(options.get("--jobs", "7").split(","))
                if forgotten and ids == {"8"}:
                    self.asked.append("task 8")
                    raise UnknownJob("Invalid job id specified")
                self.jobs = (rest, runs) if "7" in ids else (requeued,)
                return super().run(*words)

            def converse(self, *words: str, lines: Sequence[str]) -> str:
                super().converse(*words, lines=lines)
                return "".join("".join(shown.values()) if line.endswith("7") else shown[line[-1]] for line in lines)

        squeue = PutsTasksTogether()
        reader = SqueueReader(squeue, JsonReader(squeue, SLURM_22_05))
        for _ in range(2):
            squeue.asked.clear()
            jobs = {
                job.job_id: (job.array_tasks, job.waiting_tasks, job.base_id, job.is_split) for job in reader.jobs()
            }
            assert jobs == {7: ("2-3", 1, 7, True), 8: ("0", 1, 7, True), 9: ("", 1, 7, True)}
        assert squeue.asked == ["columns", "columns"]
        assert {*reader.read_back([7, 8])} == {7, 8}
        reader.jobs()
        squeue.asked.clear()
        forgotten = True
        for _ in range(2):
            assert [job.job_id for job in reader.jobs()] == [7, 9]
        assert squeue.asked == ["columns", "task 8", "columns"]

    def test_an_error_of_the_command_that_shows_the_queue_is_no_answer(self) -> None:
        class Refuses(PrintsColumns):
            def run(self, *words: str) -> str:
                if words[0] == "scontrol":
                    raise UpdateRefused("scontrol was killed")
                return super().run(*words)

        squeue = Refuses(columns_of_a_job(admin_comment="ours"), text=SHOWN)
        reader = SqueueReader(squeue, JsonReader(squeue, SLURM_22_05))
        for _ in range(2):  # and it is asked for again
            with pytest.raises(UpdateRefused):
                reader.jobs()

    def test_read_back_tells_only_what_was_asked_for(self) -> None:
        squeue = PrintsColumns(columns_of_a_job(), columns_of_a_job(job_id="8"), text=SHOWN)
        reader = SqueueReader(squeue, JsonReader(squeue, SLURM_22_05))
        assert set(reader.read_back([7, 9])) == {7}
        assert reader.read_back([]) == {}

    def test_jobs_of_one_user_are_read_back_among_the_jobs_of_that_user_alone(self) -> None:
        """Without the user's name, slurmctld would send the whole queue."""
        names = {7: "llm-alice", 8: "llm-alice", 9: "llm-bob"}
        squeue = PrintsColumns(*(columns_of_a_job(job_id=str(job), user_name=name) for job, name in names.items()))
        reader = SqueueReader(squeue, JsonReader(squeue, SLURM_22_05))
        assert set(reader.read_back([7, 8])) == {7, 8}  # no reading has shown whose jobs they are
        assert len(reader.jobs()) == 3
        assert set(reader.read_back([7, 8])) == {7, 8}
        assert set(reader.read_back([7, 9])) == {7, 9}
        assert set(reader.read_back([7])) == {7}  # by a message for this job
        asked = [words for words in squeue.asked if words.startswith("columns")]
        assert asked == ["columns", "columns", "columns of llm-alice", "columns", "columns"]

    def test_a_job_that_is_not_among_those_of_its_user_is_looked_for_in_the_whole_queue(self) -> None:
        rows = {number: columns_of_a_job(job_id=str(number)) for number in (7, 8)}
        squeue = PrintsColumns(*rows.values())
        reader = SqueueReader(squeue, JsonReader(squeue, SLURM_22_05))
        reader.jobs()
        squeue.jobs = (rows[7],)
        for _ in range(2):  # job 8 has left the queue
            assert set(reader.read_back([7, 8])) == {7}
        asked = [words for words in squeue.asked if words.startswith("columns")]
        assert asked == ["columns", *2 * ["columns of llm-alice", "columns"]]

    @pytest.mark.parametrize("said", ["", "squeue: error: Invalid user: llm-alice"], ids=["none", "an error"])
    def test_a_user_whose_jobs_squeue_does_not_list_is_not_named_again(self, said: str) -> None:
        """The host of slurmctld may not know the names of users."""

        class KnowsNoUser(PrintsColumns):
            def run(self, *words: str) -> str:
                if not any(word.startswith("--user=") for word in words):
                    return super().run(*words)
                self.asked.append("columns of a user")
                if said:
                    raise UpdateRefused(said)
                return ""

        squeue = KnowsNoUser(*(columns_of_a_job(job_id=str(job)) for job in (7, 8)))
        reader = SqueueReader(squeue, JsonReader(squeue, SLURM_22_05))
        reader.jobs()
        for _ in range(2):
            assert set(reader.read_back([7, 8])) == {7, 8}
        assert [words for words in squeue.asked if words.startswith("columns")] == [
            "columns",
            *("columns of a user", "columns"),
            "columns",
        ]

    def test_a_squeue_without_these_columns_is_read_as_json(self) -> None:
        squeue = PrintsColumns(json='{"jobs": [{"job_id": 7, "job_state": "PENDING"}]}', text="no columns")
        reader = SqueueReader(squeue, JsonReader(squeue, SLURM_24_11), clock=lambda: 0.0)
        assert [job.job_id for job in reader.jobs()] == [7]
        assert [job.job_id for job in reader.jobs()] == [7]
        assert squeue.asked == ["columns", "json", "json"]

    @pytest.mark.parametrize(
        "read", [SqueueReader.jobs, lambda reader: reader.read_back([7])], ids=["all jobs", "one job"]
    )
    def test_one_odd_answer_costs_the_columns_for_a_while_only(
        self, read: Callable[[SqueueReader], object], caplog: pytest.LogCaptureFixture
    ) -> None:
        """They are tried again within seconds, and what was read as JSON meanwhile is as good."""
        caplog.set_level(logging.INFO)
        now_s = 100.0
        squeue = PrintsColumns(json='{"jobs": [{"job_id": 7, "cpus_per_task": 1}]}', text="Segmentation fault")
        reader = SqueueReader(squeue, JsonReader(squeue, SLURM_24_11), clock=lambda: now_s)
        read(reader)
        assert squeue.asked == ["columns", "json"]
        squeue.jobs = (columns_of_a_job(),)
        now_s += 1.0
        read(reader)
        assert squeue.asked[2:3] == ["columns"]
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]

    def test_columns_that_never_work_are_tried_every_ten_minutes_at_last(self) -> None:
        now_s = 0.0
        squeue = PrintsColumns(text="no columns")
        reader = SqueueReader(squeue, JsonReader(squeue, SLURM_24_11), clock=lambda: now_s)
        tried_at_s = []
        for now_s in map(float, range(6 * 3600)):
            reader.jobs()
            if squeue.asked[-2:] == ["columns", "json"]:
                tried_at_s.append(now_s)
        pauses_s = [later - earlier for earlier, later in itertools.pairwise(tried_at_s)]
        assert pauses_s[0] <= 1
        assert all(300 <= pause_s <= 600 for pause_s in pauses_s[12:])

    @pytest.mark.parametrize("words", ["slurm_load_jobs error: Invalid job id specified", "squeue: error: odd"])
    def test_only_a_job_that_slurmctld_does_not_know_counts_as_gone(self, tmp_path: Path, words: str) -> None:
        """Any other refusal would end a transaction for a job that is still there."""
        program = tmp_path / "squeue"
        program.write_text(f"#!/bin/sh\necho '{words}' >&2\nexit 1\n", encoding="utf-8")
        program.chmod(0o755)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
            commands = Commands(10)
            reader = SqueueReader(commands, JsonReader(commands, SLURM_24_11))
            if "Invalid job id" in words:
                assert reader.read_back([7]) == {}
                return
            with pytest.raises(UpdateRefused, match="odd"):
                reader.read_back([7])
