"""Users read what was decided for their own jobs, and nobody else's; whatever they send, the daemon lives on."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from rlalloc.config import Config, StoreSection
from rlalloc.store import Store
from rlalloc.user_messages import (
    MOST_QUESTION_BYTES,
    SOCKET_FILE,
    AskSettings,
    AskStory,
    Denied,
    Settings,
    Story,
    UserServiceError,
    ask_daemon,
)
from rlallocd.user_service import Asker, UserService
from tests.core.test_store import DECISION

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


def test_who_may_see_all() -> None:
    """Root, the daemon's own user, the group that may read the store; not somebody without a login name."""
    assert Asker.of(0).sees_all
    assert Asker.of(os.geteuid()).sees_all
    assert Asker.of(OTHER) == Asker("", sees_all=False)


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


@pytest.mark.parametrize("data", [b"", b"\xff" * 10, b"\x91" * 3000, b"x" * (MOST_QUESTION_BYTES + 1)])
def test_what_is_no_question_is_refused(service: UserService, folder: Path, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / SOCKET_FILE))
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert isinstance(msgspec.msgpack.decode(answer, type=Denied), Denied)
    assert jobs_of(ask_daemon(folder, AskStory(7))) == ([7] if service else [])


def test_an_asker_that_says_nothing_does_not_keep_others_waiting(service: UserService, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(folder / SOCKET_FILE))
        assert jobs_of(ask_daemon(folder, AskStory(7))) == ([7] if service else [])


def test_without_a_store_or_a_daemon_the_user_reads_why(service: UserService, folder: Path) -> None:
    gone = StoreSection(url=f"sqlite:///{folder}/nothing.sqlite")
    service.config = msgspec.structs.replace(service.config, store=gone)
    with pytest.raises(UserServiceError, match="cannot read its store now"):
        ask_daemon(folder, AskStory(7))
    with pytest.raises(UserServiceError, match="run this on the machine of slurmctld"):
        ask_daemon(folder / "private", AskStory(7))
