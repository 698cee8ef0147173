"""Users read what was decided for their own jobs, and nobody else's; whatever they send, the daemon lives on."""

import contextlib
import errno
import os
import pwd
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from rlalloc.config import Config, PolicySection, StoreSection, config_as_yaml, parse_config
from rlalloc.errors import ConfigError
from rlalloc.store import Store
from rlalloc.user_messages import (
    MOST_JOBS_ASKED,
    MOST_QUESTION_BYTES,
    SOCKET_FILE,
    Answer,
    AskDecided,
    AskOff,
    AskSettings,
    AskState,
    AskStory,
    Decided,
    Denied,
    Question,
    Settings,
    State,
    Story,
    UserServiceError,
    ask_daemon,
)
from rlalloc_cli import own_jobs
from rlalloc_cli.own_jobs import state_for_me
from rlalloc_cli.status import print_daemon_status
from rlalloc_cli.switch_command import switch_site
from rlallocd.process.daemon_state import StateFile
from rlallocd.process.switched_off import SiteSwitchInUse
from rlallocd.transactions.left_alone import OffRequests
from rlallocd.users import user_service
from rlallocd.users.user_connections import MOST_OF_A_USER, MOST_OF_ALL
from rlallocd.users.user_service import Asker, UserService
from slurm_testbed import wait_until
from tests.core.test_store import DECISION
from tests.daemon.test_redecision_rules import pending_job

OTHER = 61_234
"""A user id that no user has."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """As /run/rlalloc: everybody may enter; and the store in a folder that others may not."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        (path / "private").mkdir(mode=0o700)
        yield path


@pytest.fixture
def service(folder: Path) -> Iterator[UserService]:
    url = f"sqlite:///{folder}/private/store.sqlite"
    with closing(Store(url)) as store:
        store.add_decisions([DECISION, msgspec.structs.replace(DECISION, id="d2", job_id=8, user="nobody")])
    with closing(UserService(Config(runtime_directory=folder, store=StoreSection(url=url)))) as serving:
        yield serving


def jobs_of(answer: object) -> list[int]:
    assert isinstance(answer, Story)
    return [chapter.decision.job_id for chapter in answer.chapters]


def test_each_user_sees_their_own_jobs(service: UserService) -> None:
    assert jobs_of(service.answer(AskStory(7), Asker(DECISION.user, sees_all=False))) == [7]
    assert jobs_of(service.answer(AskStory(7), Asker("nobody", sees_all=False))) == []
    assert jobs_of(service.answer(AskStory(8), Asker("nobody", sees_all=False))) == [8]
    assert jobs_of(service.answer(AskStory(9), Asker("nobody", sees_all=False))) == []
    assert jobs_of(service.answer(AskStory(7), Asker("", sees_all=True))) == [7]


def test_each_user_sees_the_sizes_of_their_own_jobs(service: UserService, folder: Path) -> None:
    for asker, own in (
        (Asker("nobody", sees_all=False), [8]),
        (Asker("", sees_all=False), []),
        (Asker.of(0), [7, 8]),
    ):
        answer = service.answer(AskDecided((7, 8, 9)), asker)
        assert isinstance(answer, Decided)
        assert [job.job_id for job in answer.jobs] == own
    largest = tuple(range((1 << 32) - MOST_JOBS_ASKED, 1 << 32))
    assert ask_daemon(folder, AskDecided(largest)) == Decided(())


def test_who_may_see_all() -> None:
    """Root, the daemon's own user, the group that may read the store; not somebody without a login name."""
    assert Asker.of(0).sees_all
    assert Asker.of(os.geteuid()).sees_all
    assert Asker.of(OTHER) == Asker("", sees_all=False, uid=OTHER)
    assert not Asker.of(OTHER).changes_all


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
@pytest.mark.parametrize(("user", "own"), [("nobody", 8), ("daemon", 0)])
def test_the_kernel_says_who_asks(service: UserService, folder: Path, user: str, own: int) -> None:
    """An ordinary user, by the command, who can read neither the configuration file nor the store."""
    config = folder / "private" / "rlalloc.yaml"
    config.write_text("")
    for job_id in (7, 8):
        done = subprocess.run(
            [sys.executable, "-c", "from rlalloc_cli.main import main; main()", "explain", str(job_id)],
            env={"RLALLOC_CONFIG": str(config), "RLALLOC_RUNTIME_DIRECTORY": str(folder), "PATH": "/usr/bin:/bin"},
            user=user,
            group="nogroup",
            extra_groups=[],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) == (job_id == own), done.stderr
        assert ("it is not yours" in done.stderr) == (job_id != own)
    assert service.config.runtime_directory == folder


def test_settings_have_no_secrets(service: UserService, folder: Path) -> None:
    secret = StoreSection(url="mysql://rlalloc:hunter2@db/rlalloc")
    service.config = msgspec.structs.replace(service.config, store=secret)
    answer = ask_daemon(folder, AskSettings())
    assert isinstance(answer, Settings)
    assert "grace_s: 60" in answer.text
    assert "hunter2" not in answer.text


def test_settings_are_written_once_and_nobody_asks_for_them_without_end(
    service: UserService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing them takes time of the loop's interpreter."""
    written: list[Config] = []

    def write(config: Config) -> str:
        written.append(config)
        return config_as_yaml(config)

    monkeypatch.setattr(user_service, "config_as_yaml", write)
    service.config = parse_config("mode: enforce", "test")
    for asker in (Asker("nobody", sees_all=False, uid=OTHER), Asker("root", sees_all=True, uid=0)):
        answer = service.answer(AskSettings(), asker)
        assert isinstance(answer, Settings)
        assert "mode: enforce" in answer.text
    assert len(written) == 1

    def ask_without_end() -> None:
        for _ in range(1000):
            service.answer(AskSettings(), Asker("nobody", sees_all=False, uid=OTHER))

    with pytest.raises(UserServiceError, match="you have asked for much at a time"):
        ask_without_end()


def test_readers_see_how_the_daemon_is_and_others_do_not(
    folder: Path, service: UserService, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file itself is not theirs to read."""
    with closing(StateFile(folder, "shadow")) as state:
        state.cycled({}, 0)
    assert "only root and members" in str(service.answer(AskState(), Asker("mallory", sees_all=False)))
    answer = service.answer(AskState(), Asker("auditor", sees_all=True))
    assert isinstance(answer, State)
    monkeypatch.setenv("RLALLOC_RUNTIME_DIRECTORY", str(folder))
    assert not print_daemon_status(*state_for_me())
    shown = capsys.readouterr().out
    assert "FAIL stopped since" in shown
    assert "mode    shadow" in shown
    assert "last cycle 0:00:0" in shown


def test_only_root_and_slurm_user_switch_the_site_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked as another user over the socket; the loop need not come to it."""
    directory = folder / "policies"
    config = Config(runtime_directory=folder, policy=PolicySection(directory=directory))
    script = (
        "import os, sys; os.setuid(int(sys.argv[2]))\n"
        "from pathlib import Path\n"
        "from rlalloc.user_messages import AskSwitch, ask_daemon\n"
        "print(ask_daemon(Path(sys.argv[1]), AskSwitch(True, 'why', 'root')).message)"
    )

    def ask_as(uid: int) -> str:
        done = subprocess.run(
            [sys.executable, "-c", script, folder, str(uid)], capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    switch = SiteSwitchInUse(directory, "nobody")
    with closing(UserService(config, switch=switch)):
        assert "only root and SlurmUser" in ask_as(OTHER)
        assert not (directory / "switch.json").exists()
        monkeypatch.setattr(user_service, "_OFF_WITHIN_S", 0.01)
        assert "rlallocd is busy" in ask_as(pwd.getpwnam("nobody").pw_uid)
    assert switch.look()
    assert switch.reason == f"switched off by nobody (uid {pwd.getpwnam('nobody').pw_uid}) because: why"


def test_a_running_daemon_is_switched_off_with_a_wrong_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file was changed since the daemon read it; without a daemon, the command says what is wrong with it."""
    monkeypatch.setattr(user_service, "_OFF_WITHIN_S", 0.01)
    monkeypatch.setenv("RLALLOC_RUNTIME_DIRECTORY", str(folder))
    directory, path = folder / "policies", folder / "rlalloc.yaml"
    path.write_text("grace: 60\n")
    service = UserService(
        Config(runtime_directory=folder, policy=PolicySection(directory=directory)),
        switch=SiteSwitchInUse(directory, "nobody"),
    )
    with closing(service):
        told = switch_site(path, "a typo", off=True)
        assert "switched off for the whole site" in told
        assert "rlallocd would not start again with its configuration file" in told
        assert "unknown key" in told
        assert (directory / "switch.json").exists()
        monkeypatch.setenv("RLALLOC_RUNTIME_DIRECTORY", str(folder / "elsewhere"))
        with pytest.raises(ConfigError, match="unknown key"):  # nor does a daemon answer there
            switch_site(path, "a typo", off=True)
        path.write_text(f"grace: 60\nruntime_directory: '{folder}'  # here\nmode: [\n")
        assert "switched off for the whole site" in switch_site(path, "a typo", off=True)
        missing = folder / "missing.yaml"
        with pytest.raises(ConfigError, match="name another file"):
            switch_site(missing, "a typo", off=True)
        monkeypatch.setattr(own_jobs, "DEFAULT_PATH", missing)
        monkeypatch.setenv("RLALLOC_RUNTIME_DIRECTORY", str(folder))
        told = switch_site(missing, "no file", off=True)
        assert "switched off for the whole site" in told
        assert "rlallocd would not start again with its configuration file" in told
    with pytest.raises(ConfigError, match="name another file"):  # nor does a daemon answer
        switch_site(missing, "no file", off=True)
    with pytest.raises(ConfigError, match="expected"):
        switch_site(path, "a typo", off=True)


@pytest.mark.parametrize("data", [b"", b"\xff" * 10, b"\x91" * 3000, b"x" * (MOST_QUESTION_BYTES + 1)])
def test_what_is_no_question_is_refused(service: UserService, folder: Path, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / SOCKET_FILE))
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert isinstance(msgspec.msgpack.decode(answer, type=Denied), Denied)
    assert jobs_of(ask_daemon(folder, AskStory(7))) == ([7] if service else [])


def test_a_number_that_is_no_job_is_refused(service: UserService, folder: Path) -> None:
    with pytest.raises(UserServiceError, match="not a question of this version"):
        ask_daemon(folder, AskStory(1 << 63))
    assert jobs_of(ask_daemon(folder, AskStory(7))) == ([7] if service else [])


def test_a_row_that_cannot_be_read_hides_its_job_only(service: UserService, folder: Path) -> None:
    url = service.config.store.url
    with closing(Store(url)) as store:
        store.add_decisions([msgspec.structs.replace(DECISION, id="d3", decided_s=DECISION.decided_s + 1)])
    with sa.create_engine(url).begin() as connection:
        connection.execute(sa.text("UPDATE decisions SET request = '{}' WHERE id = 'd3'"))
    assert jobs_of(ask_daemon(folder, AskStory(7))) == []
    assert jobs_of(ask_daemon(folder, AskStory(8))) == [8]


def test_after_any_failure_the_next_asker_gets_an_answer(
    service: UserService, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("no such thing")

    with monkeypatch.context() as broken:
        broken.setattr(service, "answer", fails)
        with pytest.raises(UserServiceError, match="ask an administrator to read its log"):
            ask_daemon(folder, AskStory(7))
    assert jobs_of(ask_daemon(folder, AskStory(7))) == [7]


def test_a_connection_that_cannot_be_accepted_ends_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accept, failures = socket.socket.accept, [OSError(errno.EMFILE, "too many open files")]

    def first_fails(listening: socket.socket) -> object:
        if failures:
            raise failures.pop()
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", first_fails)
    monkeypatch.setattr(user_service, "_ACCEPT_AGAIN_S", 0.01)
    with closing(UserService(Config(runtime_directory=folder))):
        assert isinstance(ask_daemon(folder, AskSettings()), Settings)


def as_user(uid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel says of connections that are accepted from now on."""
    getsockopt = socket.socket.getsockopt

    def credentials(connection: socket.socket, level: int, option: int, *size: int) -> object:
        if option == socket.SO_PEERCRED:
            return struct.pack("3i", 1, uid, uid)
        return getsockopt(connection, level, option, *size)

    monkeypatch.setattr(socket.socket, "getsockopt", credentials)


def connected(folder: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(60)
    connection.connect(str(folder / SOCKET_FILE))
    return connection


def test_askers_that_say_nothing_do_not_keep_others_waiting(
    service: UserService, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One user with many connections gets no answer any more, at once; all others do, at once."""
    monkeypatch.setattr(user_service, "_ASK_WITHIN_S", 3600.0)
    with monkeypatch.context() as other, contextlib.ExitStack() as silent:
        as_user(OTHER, other)
        for _ in range(MOST_OF_A_USER):
            silent.enter_context(connected(folder))
        for _ in range(2 * MOST_OF_ALL):
            with pytest.raises(UserServiceError, match="too many questions at a time"):
                ask_daemon(folder, AskSettings())
        other.undo()
        assert jobs_of(ask_daemon(folder, AskStory(7))) == ([7] if service else [])
    wait_until(lambda: not threads_of(OTHER), what="those that hung up are forgotten")
    as_user(OTHER, monkeypatch)
    assert isinstance(ask_daemon(folder, AskSettings()), Settings)


def test_a_few_accounts_do_not_take_all_places(
    service: UserService, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fuller it is, the fewer places each account gets: one that comes later gets one, too."""
    monkeypatch.setattr(user_service, "_ASK_WITHIN_S", 3600.0)
    with contextlib.ExitStack() as silent:
        for uid in range(OTHER, OTHER + MOST_OF_ALL // MOST_OF_A_USER):
            with monkeypatch.context() as other:
                as_user(uid, other)
                for _ in range(MOST_OF_A_USER):
                    before = sum(len(threads_of(each)) for each in range(OTHER, uid + 1))
                    connection = silent.enter_context(connected(folder))
                    connection.settimeout(0.3)
                    with contextlib.suppress(TimeoutError):
                        connection.recv(1)  # refused
                    assert sum(len(threads_of(each)) for each in range(OTHER, uid + 1)) <= before + 1
        as_user(OTHER + MOST_OF_ALL, monkeypatch)
        assert isinstance(ask_daemon(folder, AskSettings()), Settings)
    assert service.is_there


def test_anothers_job_wakes_nobody_and_nobody_asks_without_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose a job is, is known from the last reading of the queue; one that is not known yet is dear."""
    requests = OffRequests()
    requests.saw(
        [msgspec.structs.replace(pending_job(number), user=user) for number, user in ((7, "daemon"), (8, "x"))]
    )
    woken: list[None] = []
    monkeypatch.setattr(UserService, "_wake", lambda _: woken.append(None))
    monkeypatch.setattr(user_service, "_OFF_WITHIN_S", 0.01)
    asker = Asker("daemon", sees_all=False, uid=OTHER)
    with closing(UserService(Config(runtime_directory=folder), requests)) as serving:
        with pytest.raises(UserServiceError, match="no job 8 of yours"):
            serving.answer(AskOff(8), asker)
        assert not woken
        with pytest.raises(UserServiceError, match="try again later"):
            serving.answer(AskOff(7), asker)
        assert len(woken) == 1
        said = []
        for number in range(100, 110):
            with pytest.raises(UserServiceError) as refused:
                serving.answer(AskOff(number), asker)
            said.append(str(refused.value))
        assert len(woken) < 8
        assert "you have asked for much at a time: try again in" in said[-1]
        with pytest.raises(UserServiceError, match="try again later"):
            serving.answer(AskOff(9), Asker("root", sees_all=True, uid=0))


def test_an_asker_that_does_not_read_its_answer_keeps_nobody_waiting(service: UserService, folder: Path) -> None:
    """An answer that is larger than the kernel's buffers, to the same user that asks again."""
    service.answer = lambda *_: Settings("x" * 10_000_000)  # type: ignore[method-assign]
    with connected(folder) as deaf:
        deaf.sendall(msgspec.msgpack.encode(AskSettings()))
        deaf.shutdown(socket.SHUT_WR)
        assert deaf.recv(1)
        answer = ask_daemon(folder, AskSettings())
        assert isinstance(answer, Settings)
        assert len(answer.text) == 10_000_000


def test_what_one_user_asks_takes_its_turn_and_others_do_not_wait_for_it(
    service: UserService, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that hangs for one user, who asks several times: one of the questions is worked on at a time."""
    hangs, at_work = threading.Event(), threading.Semaphore(0)
    answer = service.answer

    def slow(question: Question, asker: Asker) -> Answer:
        if asker.uid == OTHER:
            at_work.release()
            hangs.wait(60)
        return answer(question, asker)

    service.answer = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor(3) as pool, monkeypatch.context() as other:
        as_user(OTHER, other)
        waiting = [pool.submit(ask_daemon, folder, AskStory(7)) for _ in range(3)]
        assert at_work.acquire(timeout=60)
        wait_until(lambda: len(threads_of(OTHER)) == 3, what="three questions are taken")
        other.undo()
        assert jobs_of(ask_daemon(folder, AskStory(7))) == [7]
        assert not at_work.acquire(blocking=False)
        hangs.set()
        assert [jobs_of(each.result()) for each in waiting] == [[], [], []]


def threads_of(uid: int) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == f"user-{uid}"]


def test_without_a_store_or_a_daemon_the_user_reads_why(service: UserService, folder: Path) -> None:
    gone = StoreSection(url=f"sqlite:///{folder}/nothing.sqlite")
    service.config = msgspec.structs.replace(service.config, store=gone)
    with pytest.raises(UserServiceError, match="cannot read its store now"):
        ask_daemon(folder, AskStory(7))
    with pytest.raises(UserServiceError, match="run this on the machine of slurmctld"):
        ask_daemon(folder / "private", AskStory(7))
