"""rlalloc.lua alone: which jobs it takes, what it writes, and that it fails open."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from rlalloc.bounds import parse_directives
from rlalloc.config import Config, Rule
from rlalloc.errors import DirectiveError
from rlalloc.scripts.script_class import class_of
from rlallocd.slurm.generations import Capabilities, generations
from rlallocd.submissions.intercept import INTERCEPT_HEADER, intercept_text
from rlallocd.submissions.job_tag import read_tag

from .lua_slurm import NOW, PLUGIN, UPTIME, Submitted, literal, submit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

NO_VAL = 4294967294.0
NO_VAL16 = 65534.0
INTERCEPT = f"""{INTERCEPT_HEADER}
expires {NOW + 30}
uptime {UPTIME + 30}
grace 60
class serve vllm serve
class train torchrun
rule big off partitions=gpu accounts=idle classes=train
rule watch shadow partitions=gpu,gpu2 accounts=phys,Bio classes=train
rule llm enforce partitions=* accounts=* classes=train,finetune,serve
"""
SCRIPT = "#!/bin/bash\n#SBATCH -N1\n#RLALLOC gpus=1-8 cpus-per-gpu=2-8\nsrun torchrun train.py\n"
JOB: dict[str, Any] = {
    "script": SCRIPT,
    "tres_per_node": "gres:gpu:4",
    "partition": None,
    "account": None,
    "default_account": "llm",
    "admin_comment": None,
    "comment": None,
    "array_inx": None,
    "het_job_offset": NO_VAL,
    "begin_time": 0.0,
    "priority": NO_VAL,
    "ntasks_per_tres": NO_VAL16,
    "cron_job": False,
    "reservation": None,
    "time_min": NO_VAL,
    "num_tasks": NO_VAL,
    "ntasks_per_node": NO_VAL16,
    "threads_per_core": NO_VAL16,
}


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """A runtime directory with a valid intercept file."""
    (tmp_path / "intercept").write_text(INTERCEPT)
    (tmp_path / "wake").touch()
    return tmp_path


@pytest.fixture
def submitted(interpreter: str, runtime: Path) -> Callable[..., Submitted]:
    """Submit JOB with some fields changed."""

    def call(
        *,
        partitions: Any = None,
        now: float = NOW,
        uptime: float | None = UPTIME,
        rounds: int = 1,
        refused: str = "",
        **fields: Any,
    ) -> Submitted:
        job = {**JOB, **fields}
        return submit(
            interpreter, runtime, job, partitions=partitions, now=now, uptime=uptime, rounds=rounds, refused=refused
        )

    return call


# What it writes


SET_BY_ANOTHER = {
    "SLURM_SET_BY_RLALLOC": "7 SLURM_NTASKS=2 SLURM_GPUS=2 SLURM_GPUS_PER_NODE=a100:2 SLURM_MEM_PER_NODE=900 HOME=/x",
    "SLURM_NTASKS": "2",
    "SLURM_GPUS": "8",
    "SLURM_GPUS_PER_NODE": "a100:2",
    "SLURM_MEM_PER_NODE": "900",
    "HOME": "/x",
}


@pytest.mark.parametrize(
    ("fields", "leaked"),
    [
        ({}, "SLURM_NTASKS SLURM_GPUS_PER_NODE SLURM_MEM_PER_NODE"),  # of SLURM_GPUS sbatch has written its own
        ({"num_tasks": 2.0}, "SLURM_GPUS_PER_NODE SLURM_MEM_PER_NODE"),
        ({"tres_per_node": "gres/gpu:a100:2,gres/nvme:1"}, "SLURM_NTASKS SLURM_MEM_PER_NODE"),
        ({"min_mem_per_node": 900.0}, "SLURM_NTASKS SLURM_GPUS_PER_NODE"),
        (
            {"min_mem_per_node": 0.0},
            "SLURM_NTASKS SLURM_GPUS_PER_NODE SLURM_MEM_PER_NODE",
        ),  # --mem=0
        ({"tres_per_node": None}, "SLURM_NTASKS SLURM_GPUS_PER_NODE SLURM_MEM_PER_NODE"),  # none of ours
    ],
)
def test_what_a_job_inherits_from_another_one_of_ours_is_named(
    submitted: Callable[..., Submitted], runtime: Path, fields: dict[str, Any], leaked: str
) -> None:
    """What it asks for itself is its own, though the other job has as much. rlallocd need not run for that."""
    for _ in range(2):
        job = submitted(environment=SET_BY_ANOTHER, **fields)
        found = job.environment["RLALLOC_LEAKED"].split()
        assert " ".join(pair.partition("=")[0] for pair in found) == leaked
        assert all(pair.partition("=")[2] == SET_BY_ANOTHER[pair.partition("=")[0]] for pair in found)
        (runtime / "intercept").unlink(missing_ok=True)


def test_task_counts_of_another_job_are_no_wish_of_this_one(submitted: Callable[..., Submitted]) -> None:
    assert submitted(environment=SET_BY_ANOTHER).environment["RLALLOC_NO_TASKS"] == "1"
    assert "RLALLOC_NO_TASKS" not in submitted(environment={"SLURM_NTASKS": "2"}).environment


def test_a_hint_is_no_wish_for_tasks(submitted: Callable[..., Submitted]) -> None:
    """--hint without --nodes. With --nodes=1, sbatch itself names a task (seen on 22.05)."""
    assert submitted(threads_per_core=1).environment["RLALLOC_NO_TASKS"] == "1"
    assert "RLALLOC_NO_TASKS" not in submitted(threads_per_core=1, num_tasks=1).environment


def test_llm_job_is_tagged_and_deferred(submitted: Callable[..., Submitted]) -> None:
    """Tag, begin time and mark, and nothing else: neither priority nor sizes."""
    job = submitted()
    assert job.writes == {
        "begin_time": str(NOW + 60),
        "admin_comment": (
            f"rlalloc:v=1;mode=enforce;rule=llm;class=train;begin={NOW + 60};user_begin=0;"
            "ask=gpus=1-8+cpus-per-gpu=2-8;unset=cpus+mem"
        ),
    }
    assert job.environment == {"RLALLOC_JOB": "1", "RLALLOC_NO_TASKS": "1"}
    assert job.logs == []


@pytest.mark.parametrize(
    ("fields", "unset"),
    [
        ({}, {"cpus", "mem"}),
        ({"cpus_per_task": 4.0}, {"mem"}),
        ({"cpus_per_task": 65534.0, "min_mem_per_node": 0.0}, {"cpus"}),
        ({"cpus_per_task": 4.0, "min_mem_per_cpu": 900.0}, set()),
        ({"cpus_per_task": 4.0, "mem_per_tres": "gres:gpu:900"}, set()),
    ],
)
def test_the_tag_tells_what_the_user_left_to_defaults(
    submitted: Callable[..., Submitted], fields: dict[str, Any], unset: set[str]
) -> None:
    """The tag has the key even if it is empty: a tag without it is from an earlier rlalloc.lua."""
    tag = read_tag(submitted(**fields).writes["admin_comment"])
    assert tag is not None
    assert tag.unset is not None
    assert tag.left_to_defaults == unset


def test_daemon_reads_the_tag(submitted: Callable[..., Submitted]) -> None:
    """Both ends agree on the tag's grammar, beside what was in the field before."""
    job = submitted(admin_comment="JS1:abc= site", script=SCRIPT.replace("#RLALLOC", "#RLALLOC gpus=1,2,4"))
    assert job.writes["admin_comment"].startswith("JS1:abc= site rlalloc:v=1;")
    tag = read_tag(job.writes["admin_comment"])
    assert tag is not None
    assert (tag.mode, tag.rule, tag.job_class, tag.begin) == ("enforce", "llm", "train", NOW + 60)
    assert tag.directives == "gpus=1,2,4 gpus=1-8 cpus-per-gpu=2-8"


def test_shadow_touches_only_the_admin_comment(submitted: Callable[..., Submitted]) -> None:
    job = submitted(account="phys")
    assert list(job.writes) == ["admin_comment"]
    assert job.environment == {}
    assert (job.tag["mode"], job.tag["rule"], job.tag["begin"]) == ("shadow", "watch", "0")


@pytest.mark.parametrize(
    ("user_begin", "begin", "written"),
    [(NOW + 10, NOW + 60, str(NOW + 60)), (NOW + 3600, NOW + 3600, None), (NOW - 100, NOW + 60, str(NOW + 60))],
)
def test_later_begin_of_the_user_stays(
    submitted: Callable[..., Submitted], user_begin: int, begin: int, written: str | None
) -> None:
    job = submitted(begin_time=float(user_begin))
    assert job.writes.get("begin_time") == written
    assert (job.tag["begin"], job.tag["user_begin"]) == (str(begin), str(user_begin))


def test_hold_stays_the_users(submitted: Callable[..., Submitted]) -> None:
    """`sbatch --hold`: tagged and marked, as it may be resized once it is released, but not deferred."""
    job = submitted(priority=0.0)
    assert list(job.writes) == ["admin_comment"]
    assert job.tag["begin"] == "0"
    assert job.environment == {"RLALLOC_JOB": "1", "RLALLOC_NO_TASKS": "1"}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"het_job_offset": 0.0}, "heterogeneous"),
        ({"cron_job": True}, "scrontab"),
        ({"clusters": "here,there"}, "multi-cluster"),
        ({"reservation": "maintenance"}, "reservation"),
        ({"time_min": 60.0}, "time-min"),
        ({"environment": {"SLURM_ARBITRARY_NODELIST": "n1,n2"}}, "arbitrary"),
        ({"script": SCRIPT.replace("-N1", "-N1 --deadline=now+1hour")}, "deadline"),
    ],
)
def test_skipped_job_is_only_tagged(submitted: Callable[..., Submitted], fields: dict[str, Any], name: str) -> None:
    """It loses no time, and the daemon can say why it was left as submitted."""
    job = submitted(**fields)
    assert list(job.writes) == ["admin_comment"]
    assert job.environment == {}
    assert (job.tag["skip"], job.tag["begin"]) == (name, "0")
    tag = read_tag(job.writes["admin_comment"])
    assert tag is not None
    assert tag.skip == name


@pytest.mark.parametrize("filler", ["#", "-", "d", "R", "#R", "d-", "#RAd-a", "x"])
def test_what_a_script_is_filled_with_hides_no_directive_and_no_deadline(
    submitted: Callable[..., Submitted], filler: str
) -> None:
    """They are searched for by another of their characters where one is frequent."""
    filled = f"#{filler * (7_000 // len(filler))}\n"
    lines = "#RLALLOC gpus=1-8\n #RLALLOC a\n#SBATCH -N1 --deadline=now+1hour\n"
    job = submitted(script=f"#!/bin/bash\n{filled}{lines}{filled}torchrun a.py\n")
    assert (job.tag["ask"], job.tag["skip"]) == ("gpus=1-8", "deadline")


def test_a_deadline_that_is_not_looked_at_counts(submitted: Callable[..., Submitted]) -> None:
    """Behind many mentions, or far along its line. Of other words, more may stand before it."""
    far = f"#SBATCH --comment={'a' * 390} --deadline=now+1hour\n"
    often = "# see --deadline or deadline\n" * 8 + "#SBATCH --deadline=now+1hour\n"
    for lines in (far, often, "# readline\n" * 20 + "#SBATCH --deadline=now+1hour\n"):
        assert submitted(script=f"#!/bin/sh\n{lines}torchrun a.py\n").tag["skip"] == "deadline", lines
    assert "skip" not in submitted(script="#!/bin/sh\n" + "# readline\n" * 20 + "torchrun a.py\n").tag


@pytest.mark.parametrize(
    "line",
    [
        "#SBATCH -N1\nsrun a --deadline=4",
        "# SBATCH --deadline=4",
        "#SBATCH -N1 x--deadline=4",
        " #SBATCH --deadline=4",
        "#SBATCH -J adline",
    ],
)
def test_other_deadlines_are_none_of_the_jobs(submitted: Callable[..., Submitted], line: str) -> None:
    assert "skip" not in submitted(script=SCRIPT + line + "\n").tag


@pytest.mark.parametrize(
    ("shared", "max_share", "skipped"),
    [
        (0, 32_770, True),  # FORCE:2
        (0, 4, False),  # YES:4, which shows the job as exclusive
        (2, 32_770, False),  # --exclusive=user
        (NO_VAL16, 32_770, False),
        (0, None, False),
    ],
)
def test_an_exclusive_job_is_skipped_where_all_jobs_share(
    submitted: Callable[..., Submitted], shared: int, max_share: int | None, *, skipped: bool
) -> None:
    partitions = {"forced": {"flag_default": 1} | ({} if max_share is None else {"max_share": max_share})}
    job = submitted(shared=float(shared), partition=None, partitions=partitions)
    assert job.tag.get("skip") == ("exclusive-force" if skipped else None)


ALL_TRAINING = Config(
    mode="enforce",
    rules=(Rule(name="llm", partitions=("*",), accounts=("*",), classes=("train",), mode="enforce"),),
    commands={"train": ("torchrun",)},
)


@pytest.mark.parametrize(
    ("partition", "skipped"),
    [("gpu", False), ("gpu,closed", True), ("closed,gpu", True), (",".join(["gpu"] * 21), False), (None, False)],
    ids=["one", "last", "first", "too many to look at", "default"],
)
def test_a_job_with_a_partition_that_is_closed_to_its_user_is_skipped(
    submitted: Callable[..., Submitted], runtime: Path, partition: str | None, *, skipped: bool
) -> None:
    """Slurm shows only those that are open to the user. 22.05 may refuse all updates, even of the begin time."""
    (runtime / "intercept").write_text(intercept_text(ALL_TRAINING, NOW, UPTIME, {"closed-partition"}))
    job = submitted(partition=partition, partitions={"gpu": {"flag_default": 1}})
    assert (job.tag.get("skip") == "closed-partition") == skipped
    assert ("begin_time" in job.writes) is not skipped


@pytest.mark.parametrize("generation", generations(), ids=lambda generation: generation.release)
@pytest.mark.parametrize(
    ("form", "fields"),
    [
        ("ntasks-per-gpu", {"ntasks_per_tres": 1.0}),
        ("closed-partition", {"partition": "closed,gpu", "partitions": {"gpu": {"flag_default": 1}}}),
    ],
)
def test_form_that_an_update_breaks_in_this_version_of_slurm(
    submitted: Callable[..., Submitted],
    runtime: Path,
    form: str,
    fields: Mapping[str, Any],
    generation: Capabilities,
) -> None:
    """The daemon writes its name into the intercept file."""
    (runtime / "intercept").write_text(intercept_text(ALL_TRAINING, NOW, UPTIME, generation.skipped_forms))
    job = submitted(**fields)
    skipped = form in generation.skipped_forms
    assert ("begin_time" in job.writes) is not skipped
    assert job.tag.get("skip") == (form if skipped else None)
    assert "begin_time" in submitted().writes


def test_array_is_deferred_as_a_whole(submitted: Callable[..., Submitted]) -> None:
    job = submitted(array_inx="1-4")
    assert job.tag["begin"] == job.writes["begin_time"] == str(NOW + 60)


def test_admin_comment_without_room_for_a_tag(submitted: Callable[..., Submitted]) -> None:
    """Nothing of the site's own is ever cut: the job passes as submitted."""
    job = submitted(admin_comment="x" * 1025)
    assert job.untouched
    assert len(job.messages("log_info")) == 1
    assert submitted(admin_comment="x" * 900).writes


def test_wakes_the_daemon_for_its_jobs(submitted: Callable[..., Submitted], runtime: Path) -> None:
    """Inotify sees a writer closing the file, which never grows and is not made where it is missing."""
    inotify_simple = pytest.importorskip("inotify_simple")
    with inotify_simple.INotify() as inotify:
        inotify.add_watch(runtime / "wake", inotify_simple.flags.CLOSE_WRITE)
        submitted(account="idle")
        assert inotify.read(timeout=0) == []
        submitted(priority=0.0)
        assert len(inotify.read(timeout=60_000)) == 1
        submitted(account="phys")
        assert len(inotify.read(timeout=60_000)) == 1
        submitted()
        assert len(inotify.read(timeout=60_000)) == 1
    assert (runtime / "wake").stat().st_size == 0
    (runtime / "wake").unlink()
    assert submitted().writes
    assert not (runtime / "wake").exists()


# Which jobs


@pytest.mark.parametrize(
    "fields",
    [
        {"tres_per_node": "gpu:a100:2"},
        {"tres_per_node": None, "tres_per_job": "gres/gpu:4"},
        {"tres_per_node": None, "tres_per_task": "cpu=4,gres/gpu:a100=1"},
        {"tres_per_node": "gres:nvme:1", "tres_per_socket": "gres:gpu:2"},
        {"tres_per_node": "gres/shard:2"},
        {"tres_per_node": "gres:shard:a100:2"},
        {"tres_per_node": "gres:gpu:1g.10gb:2"},
        {"tres_per_node": None, "ntasks_per_tres": 1.0},
    ],
)
def test_gpu_requests_of_all_forms_count(submitted: Callable[..., Submitted], fields: dict[str, Any]) -> None:
    assert submitted(**fields).writes


@pytest.mark.parametrize(
    "fields",
    [
        {"tres_per_node": None},
        {"tres_per_node": "gres:gpu:0"},
        {"tres_per_node": "gres:gpu_mem:4,gres:mps:50,gres:shard:0"},
        {"script": None},
        {"script": ""},
        {"script": "#!/bin/sh\npython train.py\n"},
        {"script": "#!/bin/sh\n  # torchrun later\n#torchrun\n#RLALLOCATION gpus=1\n ##RLALLOC gpus=1\nhostname\n"},
        {"account": "idle"},
        {"het_job_offset": 1.0},
        {"admin_comment": "copied rlalloc:v=1;mode=enforce;rule=llm"},
    ],
)
def test_other_jobs_are_left_wholly_alone(submitted: Callable[..., Submitted], fields: dict[str, Any]) -> None:
    job = submitted(**fields)
    assert job.untouched
    assert not job.messages("log_error")
    assert not job.messages("log_user")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("torchrun x.py\n", "train"),
        ("vllm serve m &\ntorchrun x.py\n", "serve"),
        ("#RLALLOC class=finetune\ntorchrun x.py\n", "finetune"),
        ("#RLALLOC class=nonsense\nvllm serve m\n", "serve"),
        ("#RLALLOC gpus=1-4\npython x.py\n", "train"),
        ("#RLALLOC\tgpus=1-4\r\npython x.py\r\n", "train"),
        ("#RLALLOC\npython x.py\n", "train"),
        ("# vllm serve m\n\t#torchrun\n#RLALLOC gpus=1 launch=torchrun\nvllm serve m", "serve"),
    ],
)
def test_class(submitted: Callable[..., Submitted], script: str, expected: str) -> None:
    """From class=, else the first text of the file that stands in the commands, else train."""
    assert submitted(script="#!/bin/bash\n" + script).tag["class"] == expected


def test_comment_is_a_source_for_wrapped_jobs(submitted: Callable[..., Submitted]) -> None:
    wrapped = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\npython x.py\n"
    job = submitted(script=wrapped, comment="rlalloc: gpus=1-8  class=serve")
    assert job.tag["ask"] == "gpus=1-8+class=serve"
    assert job.tag["class"] == "serve"
    assert "comment" not in job.writes
    assert submitted(script=wrapped, comment="see rlalloc: gpus=1-8").untouched


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"partition": "gpu", "account": "bio"}, "watch"),
        ({"partition": "gpu2,gpu", "account": "PHYS"}, "watch"),
        ({"partition": "gpu,cpu", "account": "phys"}, "llm"),
        ({"partition": "GPU", "account": "phys"}, "llm"),
        ({"partition": None, "account": "phys"}, "watch"),
        ({"account": None, "default_account": "phys"}, "watch"),
        ({"account": None, "default_account": None}, "llm"),
        ({"account": "phys", "partitions": {"cpu": {"flag_default": 1}, "gpu": {}}}, "llm"),
        ({"account": "phys", "partitions": {"gpu": {"flag_default": 0}}}, "llm"),
        ({"account": "phys", "script": SCRIPT + "#RLALLOC class=serve\n"}, "llm"),
    ],
)
def test_first_rule_that_matches_holds(
    submitted: Callable[..., Submitted], fields: dict[str, Any], rule: str
) -> None:
    """All of a job's partitions, its account or the user's default one, and its class."""
    assert submitted(**fields).tag["rule"] == rule


# Directives


@pytest.mark.parametrize(
    "words",
    [
        "gpus=1-8;mode=enforce;rule=evil",
        "gpus=1-8+gpus=64",
        "x rlalloc:v=1;mode=enforce;rule=evil;class=train;begin=0;user_begin=0;ask=",
        "gpus=$(reboot) `id` 'a' \"b\" %s%n \\n",
    ],
)
def test_script_cannot_forge_a_tag(submitted: Callable[..., Submitted], words: str) -> None:
    """What a word may not contain becomes _, so that the daemon refuses the word and not only a part of it."""
    job = submitted(script=f"#!/bin/sh\n#RLALLOC {words}\ntorchrun\n", account="phys")
    comment = job.writes["admin_comment"]
    assert comment.count("rlalloc:") == 1
    assert comment.count(";") == 7
    assert (job.tag["mode"], job.tag["rule"]) == ("shadow", "watch")
    tag = read_tag(comment)
    assert tag is not None
    assert len(tag.directives.split()) == len(words.split())


def test_too_many_words_are_not_cut(submitted: Callable[..., Submitted]) -> None:
    """Half of what a user said could be something else."""
    job = submitted(script="#!/bin/sh\n#RLALLOC gpus=1-" + "8" * 400 + "\n")
    assert job.tag["ask"] == "too-long"
    assert len(job.messages("log_user")) == 1


@pytest.mark.parametrize("word", ["gpu=1-4", "gpus", "gpus=", "=4", "class=chat", "100%"])
def test_user_reads_about_an_unknown_word(submitted: Callable[..., Submitted], word: str) -> None:
    job = submitted(script=f"#!/bin/sh\n#RLALLOC {word}\n")
    (message,) = job.messages("log_user")
    assert word.replace("%", "_") in message
    assert "class=" in message
    assert job.writes


WORDS = (
    *("gpus=4", "gpus=1-8", "gpus=8-1", "gpus=1,2,4", "gpus=1,,4", "gpus=0", "gpus=0-4", "gpus=1-", "gpus=-4"),
    *("gpus=1.5", "gpus=1e3", "gpus=1-2-3", "gpus=2000000000", "gpus=four", "gpus=1, 2", "gpus=0x10", "gpus=1-8,"),
    *("cpus-per-gpu=2.5-8", "cpus-per-gpu=8-2.5", "cpus-per-gpu=.5", "cpus-per-gpu=5.", "cpus-per-gpu=0"),
    *(f"cpus-per-gpu=0.{'0' * 20}1-8", "cpus-per-gpu=0.001-8", "cpus-per-gpu=1-2000000000", "mem-per-gpu=0.0001M"),
    *("mem-per-gpu=8G-64G", "mem-per-gpu=64G-8G", "mem-per-gpu=8192-8G", "mem-per-gpu=8GB", "mem-per-gpu=lots"),
    *("mem-per-gpu=1.2.3G", "mem-per-gpu=0G", "mem-per-gpu=1T-2t", "mem-per-gpu=8g-64", "mem-per-gpu=2G-"),
    *(
        "gpu-multiple=2",
        "gpu-multiple=0",
        "gpu-multiple=1-2",
        "launch=srun",
        "launch=mpirun",
        "class=serve",
        "class=x",
    ),
)


@pytest.mark.parametrize("word", WORDS)
def test_user_reads_about_each_mistake_that_the_daemon_would_refuse(
    submitted: Callable[..., Submitted], word: str
) -> None:
    """Reversed ranges and bad sizes included; and about nothing that is right."""
    messages = submitted(script=f"#!/bin/sh\n#RLALLOC {word}\n").messages("log_user")
    refusal = ""
    try:
        parse_directives(word)
    except DirectiveError as err:
        refusal = str(err)
    assert len(messages) == refusal.count("#RLALLOC")
    assert ["it keeps its size" in message for message in messages[-1:]] == [True] * bool(refusal)


def test_user_reads_about_all_mistakes_at_once(submitted: Callable[..., Submitted]) -> None:
    """One line for each, whichever #RLALLOC line it is in; the daemon and `rlalloc check` name the same words."""
    wrong = ("gpus=8-1", "gpu=4", "mem-per-gpu=lots")
    script = f"#!/bin/sh\n#RLALLOC {wrong[0]} class=train {wrong[1]}\n#RLALLOC {wrong[2]} launch=srun\n"
    messages = submitted(script=script).messages("log_user")
    assert [next(word for word in wrong if word in message) for message in messages] == list(wrong)
    assert ["it keeps its size" in message for message in messages] == [False, False, True]
    with pytest.raises(DirectiveError) as told:
        parse_directives("gpus=8-1 class=train gpu=4 mem-per-gpu=lots launch=srun")
    assert str(told.value).count("#RLALLOC") == 3


def test_no_flood_of_mistakes(submitted: Callable[..., Submitted]) -> None:
    messages = submitted(script="#!/bin/sh\n#RLALLOC" + " x=1" * 60 + "\n").messages("log_user")
    assert len(messages) == 6
    assert "there are more mistakes" in messages[-1]
    with pytest.raises(DirectiveError, match=r"; there are more mistakes$"):
        parse_directives(" x=1" * 60)


@pytest.mark.parametrize("script", ["#RLALLOC off", "#RLALLOC gpus=1-8\n#RLALLOC off class=train"])
def test_off_leaves_a_job_alone(submitted: Callable[..., Submitted], script: str) -> None:
    """Not even a tag; by --comment, too."""
    assert not submitted(script=f"#!/bin/sh\n{script}\ntorchrun x.py\n").writes
    assert not submitted(script="#!/bin/sh\ntorchrun x.py\n", comment="rlalloc: off").writes
    assert class_of(f"#!/bin/sh\n{script}\ntorchrun x.py\n".encode(), Config().commands) is None


@pytest.mark.parametrize(
    ("word", "remarks"),
    [
        ("mem-per-gpu=1M", 1),
        ("mem-per-gpu=512-64G", 1),
        ("mem-per-gpu=0.5g", 1),
        ("mem-per-gpu=1G-64G", 0),
        ("mem-per-gpu=1024", 0),
        ("mem-per-gpu=0.001T", 0),
    ],
)
def test_user_reads_about_the_floor_of_memory(submitted: Callable[..., Submitted], word: str, remarks: int) -> None:
    """Declared memory below the floor is raised to it, and the terminal says so."""
    messages = submitted(script=f"#!/bin/sh\n#RLALLOC {word}\n").messages("log_user")
    assert len(messages) == remarks
    assert all(word in message and "at least 1G of memory per GPU" in message for message in messages)


# Failing open


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        INTERCEPT.replace(INTERCEPT_HEADER, "another program's file"),
        INTERCEPT.replace(f"expires {NOW + 30}", f"expires {NOW - 1}"),
        INTERCEPT.replace(f"uptime {UPTIME + 30}", f"uptime {UPTIME - 1}"),
    ],
)
def test_file_that_is_not_ours_or_expired(submitted: Callable[..., Submitted], runtime: Path, text: str) -> None:
    """No error: that is how a site without the daemon looks."""
    (runtime / "intercept").write_text(text)
    job = submitted()
    assert job.untouched
    assert job.logs == []


@pytest.mark.parametrize("stepped_s", [-86_400, -60, 0])
def test_a_clock_set_back_does_not_bring_a_dead_daemon_to_life(
    submitted: Callable[..., Submitted], stepped_s: int
) -> None:
    """31 seconds after its last renewal the file has expired, whatever the clock says by then."""
    assert submitted(now=NOW + 30 + stepped_s, uptime=UPTIME + 30).writes
    assert submitted(now=NOW + 30 + stepped_s, uptime=UPTIME + 31).untouched


RENEWALS = r"""
slurm = {log_error = print, log_info = print, log_user = print}
local rlalloc = dofile(arg[1])
local now = 0
os.time = function() return now end
for line in io.lines(arg[2] .. "/renewals") do
   local time, text = line:match("^(%d+) (.*)$")
   now = tonumber(time)
   local file = io.open(arg[2] .. "/intercept", "w")
   file:write((text:gsub("|", "\n")))
   file:close()
   local job = {script = "torchrun a.py", tres_per_node = "gres:gpu:4", environment = {}}
   rlalloc.job_submit(job, {}, 0)
   print((job.admin_comment or "none"):match("rule=%l+") or "none")
end
"""


def test_of_a_renewed_file_only_the_times_may_be_new(interpreter: str, runtime: Path) -> None:
    """It is renewed every few seconds, and what else stands in it is read anew only where it has changed."""

    def line(now: int, expires: int, rule: str = "llm", header: str = INTERCEPT_HEADER) -> str:
        lines = (header, f"expires {expires}", f"uptime {10**9}", "grace 60", "class train torchrun", "")
        rules = f"rule {rule} shadow partitions=* accounts=* classes=train|"
        return f"{now} {'|'.join(lines)}{rules}"

    renewals = (
        line(100, 130),
        line(131, 130),
        line(131, 160),
        line(150, 161, "other"),
        line(150, 162, "other", "another program's file"),
        line(150, 163, "other"),
        line(150, 163, "other")[:-1],
        line(150, 164, "other"),
    )
    (runtime / "renewals").write_text("\n".join(renewals) + "\n")
    (runtime / "renewals.lua").write_text(RENEWALS)
    done = subprocess.run(
        [interpreter, runtime / "renewals.lua", PLUGIN / "rlalloc.lua", runtime],
        env={"RLALLOC_RUNTIME_DIRECTORY": str(runtime)},
        capture_output=True,
        text=True,
        check=True,
    )
    *found, cut_short, last = [line for line in done.stdout.splitlines() if not line.startswith("rlalloc:")]
    assert found == ["rule=llm", "none", "rule=llm", "rule=other", "none", "rule=other"]
    assert (cut_short, last) == ("none", "rule=other")
    assert "cut short" in done.stdout


def test_after_a_restart_of_the_machine_the_time_tells(submitted: Callable[..., Submitted]) -> None:
    """Where the runtime directory outlives it: the uptime begins anew."""
    assert submitted(now=NOW + 31, uptime=10).untouched


def test_without_an_uptime_the_time_tells(submitted: Callable[..., Submitted]) -> None:
    assert submitted(now=NOW + 30, uptime=None).writes
    assert submitted(now=NOW + 31, uptime=None).untouched


@pytest.mark.parametrize("kind", ["missing", "empty", "directory", "dangling"])
def test_file_that_is_not_there(submitted: Callable[..., Submitted], runtime: Path, kind: str) -> None:
    """Empty, it is as systemd-tmpfiles makes it, before the daemon's first start."""
    (runtime / "intercept").unlink()
    if kind == "empty":
        (runtime / "intercept").touch()
    if kind == "directory":
        (runtime / "intercept").mkdir()
    elif kind == "dangling":
        (runtime / "intercept").symlink_to(runtime / "nothing")
    job = submitted()
    assert job.untouched
    assert job.logs == []


@pytest.mark.parametrize(
    "text",
    [
        INTERCEPT[:-1],
        INTERCEPT.replace("grace 60", "grace soon"),
        INTERCEPT.replace("grace 60\n", ""),
        INTERCEPT.replace(f"uptime {UPTIME + 30}\n", ""),
        INTERCEPT.replace(f"uptime {UPTIME + 30}", "uptime 1e9"),
        INTERCEPT.replace(f"expires {NOW + 30}", "expires inf"),
        INTERCEPT.replace(f"expires {NOW + 30}", "expires nan"),
        INTERCEPT.replace("enforce partitions", "Enforce partitions"),
        INTERCEPT.replace("accounts=* ", ""),
        INTERCEPT.replace("class train torchrun", "class train"),
        INTERCEPT.replace("rule llm", "rules llm"),
        INTERCEPT.replace("rule llm", "rule a;b"),
        INTERCEPT + "x" * 100_000 + "\n",
        f"{INTERCEPT_HEADER}\n\x00\xff\n",
        INTERCEPT.replace(INTERCEPT_HEADER, "rlalloc-intercept 1"),
        INTERCEPT.replace(INTERCEPT_HEADER, f"{INTERCEPT_HEADER}1"),
    ],
)
def test_broken_file(submitted: Callable[..., Submitted], runtime: Path, text: str) -> None:
    """Untouched, and one error for however many jobs."""
    (runtime / "intercept").write_text(text, encoding="latin-1")
    job = submitted(rounds=3)
    assert job.untouched
    assert len(job.messages("log_error")) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"script": 5.0},
        {"script": {}},
        {"tres_per_node": {"gpu": 1}},
        {"begin_time": "tomorrow"},
        {"begin_time": {}},
        {"admin_comment": 7.0},
        {"partition": True},
        {"account": {}},
        {"het_job_offset": "0"},
        {"ntasks_per_tres": {}, "tres_per_node": None},
        {"comment": 1.0},
        {"reservation": 3.0},
        {"partitions": {"gpu": 5}},
    ],
)
def test_garbage_in_a_field(submitted: Callable[..., Submitted], fields: dict[str, Any]) -> None:
    job = submitted(**fields)
    assert job.untouched
    assert len(job.messages("log_error")) == 1


@pytest.mark.parametrize("job", [None, 5.0, "job", {}])
def test_no_job_at_all(interpreter: str, runtime: Path, job: Any) -> None:
    assert submit(interpreter, runtime, job).untouched


def test_binary_script(submitted: Callable[..., Submitted]) -> None:
    """Any bytes may stand in a script, and in a directive."""
    assert submitted(script=bytes(range(1, 256)) * 4).untouched
    job = submitted(script=b"#!/bin/sh\n#RLALLOC gpus=\xff\x80\x01-8\n")
    assert job.tag["ask"] == "gpus=___-8"


@pytest.mark.parametrize("begin", [NO_VAL, 4294967295.0, 1.8446744073709552e19, -1.0, None])
def test_unset_begin_time(submitted: Callable[..., Submitted], begin: float | None) -> None:
    """Slurm's marks of an unset number are no times."""
    job = submitted(begin_time=begin)
    assert (job.tag["begin"], job.tag["user_begin"]) == (str(NOW + 60), "0")


def test_field_that_cannot_be_written(submitted: Callable[..., Submitted]) -> None:
    """Never deferred without a tag: the begin time comes last."""
    job = submitted(refused="admin_comment")
    assert job.writes == {}
    assert len(job.messages("log_error")) == 1


def test_long_script_takes_little_time(submitted: Callable[..., Submitted]) -> None:
    """All of slurmctld waits for it: the largest script that Slurm takes, made to be slow to search."""
    hostile = "#!/bin/sh\n" + ("\n" + " " * 1000 + "#torchrun") * 4000
    assert submitted(script=hostile[:4_000_000]).untouched


# Updates

QUEUED = {
    "job_id": 7,
    "qos": "normal",
    "partition": "gpu",
    "account": "llm",
    "admin_comment": "rlalloc:v=1;mode=enforce;begin=0;rlalloc-decision:42",
}


def refusal(interpreter: str, tmp_path: Path, update: Any, job: Any, uid: Any) -> list[str]:
    """What job_submit.lua answers to an update, and what it logs; SlurmUser is 990."""
    (tmp_path / "status").write_text("Name:\tslurmctld\nUid:\t990\t990\t990\t990\n")
    for name in ("rlalloc.lua", "job_submit.lua"):
        shutil.copy(PLUGIN / name, tmp_path)
    program = f"""
    slurm = {{SUCCESS = 0, ERROR = -1, ESLURM_ACCOUNTING_POLICY = 2050}}
    slurm.log_error = function(...) print("error " .. string.format(...)) end
    slurm.log_user = function(...) print("user " .. string.format(...)) end
    local real_open = io.open
    io.open = function(path, mode)
       return real_open(path == "/proc/self/status" and "{tmp_path}/status" or path, mode)
    end
    dofile("{tmp_path}/job_submit.lua")
    print(slurm_job_modify({literal(update)}, {literal(job)}, {{}}, {literal(uid)}))
    """
    completed = subprocess.run([interpreter, "-e", program], check=True, capture_output=True, text=True, timeout=120)
    return completed.stdout.splitlines()


@pytest.mark.parametrize("update", [{"qos": "fast"}, {"qos": ""}, {"partition": "short"}, {"account": "small"}])
def test_a_changed_job_cannot_be_moved_past_limits(interpreter: str, tmp_path: Path, update: dict[str, str]) -> None:
    """Slurm takes our update for an administrator's, and would not check the other one's limits."""
    said, answer = refusal(interpreter, tmp_path, update, QUEUED, 1000)
    assert said.startswith(
        "user rlalloc: job 7 was changed by rlalloc, so Slurm would not check the limits of another"
    )
    assert said.endswith(": cancel it and submit it again, or have it moved by root or SlurmUser")
    assert answer == "2050"


@pytest.mark.parametrize(
    ("update", "job", "uid"),
    [
        ({"qos": "fast"}, {}, 0),
        ({"qos": "fast"}, {}, 990),
        ({"qos": "normal", "partition": "gpu", "account": "llm"}, {}, 1000),
        ({"time_limit": 5, "begin_time": 0}, {}, 1000),
        ({"qos": "fast"}, {"admin_comment": "rlalloc:v=1;mode=enforce;begin=0"}, 1000),
        ({"qos": "fast"}, {"admin_comment": "rlalloc:v=1;mode=enforce;begin=0;rlalloc-nice:42"}, 1000),
        ({"partition": "short"}, {"admin_comment": None}, 1000),
    ],
)
def test_other_updates_pass(
    interpreter: str, tmp_path: Path, update: dict[str, Any], job: dict[str, Any], uid: int
) -> None:
    assert refusal(interpreter, tmp_path, update, {**QUEUED, **job}, uid) == ["0"]


@pytest.mark.parametrize(("update", "job"), [(None, QUEUED), ({"qos": "fast"}, {**QUEUED, "admin_comment": 5})])
def test_an_update_that_cannot_be_read_passes(interpreter: str, tmp_path: Path, update: Any, job: Any) -> None:
    said, answer = refusal(interpreter, tmp_path, update, job, 1000)
    assert said.startswith("error rlalloc: update of a job passed: ")
    assert answer == "0"


@pytest.mark.parametrize("beside", [True, False])
def test_job_submit_lua_without_a_working_module(interpreter: str, tmp_path: Path, beside: bool) -> None:
    """Then slurmctld has to start, and jobs have to pass."""
    shutil.copy(PLUGIN / "job_submit.lua", tmp_path)
    if beside:
        (tmp_path / "rlalloc.lua").write_text("this is no Lua\n")
    else:
        text = (tmp_path / "job_submit.lua").read_text()
        (tmp_path / "job_submit.lua").write_text(text.replace("/usr/lib/rlalloc", str(tmp_path / "absent")))
    program = f"""
    errors = 0
    slurm = {{SUCCESS = 0, log_error = function(...) errors = errors + 1; string.format(...) end}}
    dofile("{tmp_path}/job_submit.lua")
    assert(slurm_job_submit({{}}, {{}}, 0) == 0 and slurm_job_modify({{}}, {{}}, {{}}, 0) == 0 and errors == 1)
    """
    subprocess.run([interpreter, "-e", program], check=True, env=os.environ, timeout=120)
