"""Several updates by one scontrol: what it does where scontrol fails. test_slurm_contract has it on real sites."""

import errno
import logging
import os
from pathlib import Path

import pytest

from rlallocd.slurm import CommandDied, Commands, SlurmUnavailable, UpdateRefused
from rlallocd.slurm.update_session import UpdateSession

READS_COMMANDS = """
[ $# -eq 0 ] || { echo "$2" >>"$0.alone"; exit 0; }
while read -r word job field; do
   case $word in
      update) echo "$job" >>"$0.together" ;;
      *) echo "invalid keyword: $word" >&2; continue ;;
   esac
   case $job in
      JobId=3) echo "slurm_update error: not this one" >&2 ;;
      JobId=4) echo "slurm_update error: Unable to contact slurm controller (connect failure)" >&2 ;;
      JobId=5) exit 1 ;;
      JobId=6) exec sleep 600 ;;
      JobId=8) echo "scontrol: error: get_addr_info: getaddrinfo() failed: Name or service not known" >&2 ;;
   esac
done
"""
KNOWS_NO_COMMANDS = """
[ $# -eq 0 ] || { echo "$2" >>"$0.alone"; exit 0; }
echo usage >&2
exit 1
"""


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program = tmp_path / "scontrol"
    program.touch(mode=0o755)
    return program


def _jobs(scontrol: Path, how: str) -> list[str]:
    path = Path(f"{scontrol}.{how}")
    return [line.removeprefix("JobId=") for line in path.read_text().split()] if path.exists() else []


def _session(scontrol: Path, script: str, timeout_s: float = 60.0) -> UpdateSession:
    scontrol.write_text(f"#!/bin/sh{script}")
    return UpdateSession(Commands(timeout_s))


def test_the_first_goes_alone_and_others_share_a_process(scontrol: Path) -> None:
    session = _session(scontrol, READS_COMMANDS)
    for _ in range(2):
        with session.together():
            for job_id in (1, 2, 7):
                session.update(f"JobId={job_id}", "Nice=1")
    session.update("JobId=8", "Nice=1")
    assert (_jobs(scontrol, "alone"), _jobs(scontrol, "together")) == (["1", "1", "8"], ["2", "7", "2", "7"])


@pytest.mark.parametrize(
    "value", ["a b", "a\tb", 'a"b', "a'b", "a\\b", "a\nupdate JobId=9 Nice=1", "é", "\x15", "x" * 4000]
)
def test_what_scontrol_would_read_otherwise_goes_alone(scontrol: Path, value: str) -> None:
    session = _session(scontrol, READS_COMMANDS)
    with session.together():
        for job_id in (1, 2):
            session.update(f"JobId={job_id}", f"AdminComment={value}")
    assert (_jobs(scontrol, "alone"), _jobs(scontrol, "together")) == (["1", "2"], [])


def test_a_refusal_is_that_of_its_own_job(scontrol: Path) -> None:
    session = _session(scontrol, READS_COMMANDS)
    with session.together():
        session.update("JobId=1", "Nice=1")
        session.update("JobId=2", "Nice=1")
        with pytest.raises(UpdateRefused, match="update JobId=3 Nice=1: slurm_update error: not this one"):
            session.update("JobId=3", "Nice=1")
        session.update("JobId=7", "Nice=1")
    assert _jobs(scontrol, "together") == ["2", "3", "7"]


@pytest.mark.parametrize(
    ("job_id", "why"), [(4, "is Slurm up"), (5, "ended before it answered"), (6, "no answer in 1 s")]
)
def test_without_an_answer_slurm_is_unavailable(scontrol: Path, job_id: int, why: str) -> None:
    """And the next update has a process that answers."""
    session = _session(scontrol, READS_COMMANDS, timeout_s=1.0 if job_id == 6 else 60.0)
    with session.together():
        session.update("JobId=1", "Nice=1")
        with pytest.raises(SlurmUnavailable, match=why):
            session.update(f"JobId={job_id}", "Nice=1")
    with session.together():
        session.update("JobId=1", "Nice=1")
        session.update("JobId=2", "Nice=1")
    assert _jobs(scontrol, "together") == [str(job_id), "2"]


def test_a_line_that_scontrol_logs_counts_as_a_refusal(scontrol: Path) -> None:
    """24.11 logs one for a node count that it does not send; an update that was carried out is read back."""
    session = _session(scontrol, READS_COMMANDS)
    with session.together():
        session.update("JobId=1", "Nice=1")
        with pytest.raises(UpdateRefused, match=r"getaddrinfo\(\) failed"):
            session.update("JobId=8", "Nice=1")


def test_after_a_process_that_died_others_go_on_with_a_new_one(scontrol: Path) -> None:
    session = _session(scontrol, READS_COMMANDS)
    with session.together():
        for job_id in (1, 2, 5, 3, 5, 7):
            try:
                session.update(f"JobId={job_id}", "Nice=1")
            except CommandDied:
                assert job_id == 5
            except UpdateRefused:
                assert job_id == 3
    assert _jobs(scontrol, "together") == ["2", "5", "3", "5", "7"]


def test_where_each_process_dies_each_update_has_its_own(scontrol: Path) -> None:
    session = _session(scontrol, READS_COMMANDS)
    with session.together():
        session.update("JobId=1", "Nice=1")
        for _ in range(2):
            with pytest.raises(CommandDied):
                session.update("JobId=5", "Nice=1")
        session.update("JobId=7", "Nice=1")
    assert (_jobs(scontrol, "alone"), _jobs(scontrol, "together")) == (["1", "7"], ["5", "5"])


def test_an_update_of_its_own_that_a_signal_ends_may_have_been_carried_out(scontrol: Path) -> None:
    session = _session(scontrol, "\nkill -SEGV $$\n")
    with pytest.raises(CommandDied, match="signal 11"):
        session.update("JobId=1", "Nice=1")


def test_no_descriptor_is_lost_where_there_are_too_few(scontrol: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    pipe = os.pipe

    def first_alone() -> tuple[int, int]:
        if made:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        made.append(pipe())
        return made[0]

    session = _session(scontrol, READS_COMMANDS)
    with session.together():
        session.update("JobId=1", "Nice=1")
        with monkeypatch.context() as few:
            few.setattr("rlallocd.slurm.update_session.os.pipe", first_alone)
            assert session._interactive() is None
    assert len(made) == 1
    for each in made[0]:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(each)


def test_a_scontrol_that_takes_no_commands_gets_one_update_each(
    scontrol: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = _session(scontrol, KNOWS_NO_COMMANDS)
    for _ in range(2):
        with session.together():
            for job_id in (1, 2, 3):
                session.update(f"JobId={job_id}", "Nice=1")
    assert _jobs(scontrol, "alone") == ["1", "2", "3"] * 2
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "a scontrol of its own" in record.message
