"""What a command reads itself where its user may, and asks rlallocd for where not: ordinary users' own jobs."""

import contextlib
import os
import re
from pathlib import Path
from typing import Final

from rlalloc.config import DEFAULT_PATH, Config, load_config, parse_config
from rlalloc.errors import ConfigError, RlallocError, StoreError, StoreMissing
from rlalloc.store import Store
from rlalloc.store.job_story import Chapter, story_of
from rlalloc.strict_yaml import YamlError, read_yaml
from rlalloc.system.shared_files import read_regular_file
from rlalloc.user_messages import AskOff, AskSettings, AskState, AskStory, Done, Settings, State, Story, ask_daemon
from rlallocd.process.daemon_state import DaemonState, parse_daemon_state

_NAMED: Final = re.compile(r"^runtime_directory:.*", re.MULTILINE)
_RUNTIME_DIRECTORY: Final = "RLALLOC_RUNTIME_DIRECTORY"
"""As rlalloc.lua reads it, where a site has another directory than the shipped one."""


def story_for_me(path: Path, job_id: int) -> tuple[Chapter, ...]:
    """All decisions on a job: from the store where this user may read it, else from rlallocd, of the user's own job.

    Raises ConfigError, StoreError or UserServiceError.
    """
    if not may_read(path):
        return _story_of_daemon(daemon_directory(), job_id)
    config = load_config(path)
    try:
        with contextlib.closing(Store(config.store.url, read_only=True)) as store:
            return story_of(store, job_id)
    except StoreMissing:
        raise
    except StoreError as err:
        if os.geteuid() == 0:
            raise
        try:
            return _story_of_daemon(config.runtime_directory, job_id)
        except RlallocError:
            raise err from None


def store_for_me(path: Path) -> tuple[Config, Store] | None:
    """The configuration and the store, or None where this user may not read them: rlallocd has to be asked then.

    Raises ConfigError or StoreError.
    """
    if not may_read(path):
        return None
    config = load_config(path)
    try:
        return config, Store(config.store.url, read_only=True, skip_unreadable=True)
    except StoreMissing:
        raise
    except StoreError:
        if os.geteuid() == 0:
            raise
        return None


def settings_for_me(path: Path) -> Config:
    """The configuration: from its file, or, where this user may not read that, what rlallocd shows of it.

    Raises ConfigError or UserServiceError.
    """
    if may_read(path):
        return load_config(path)
    answer = ask_daemon(daemon_directory(), AskSettings())
    return parse_config(answer.text, "rlallocd") if isinstance(answer, Settings) else Config()


def state_for_me() -> tuple[Config, DaemonState | None]:
    """The configuration and the state of rlallocd, as it shows them to readers. Raises UserServiceError."""
    directory = daemon_directory()
    state, settings = ask_daemon(directory, AskState()), ask_daemon(directory, AskSettings())
    text = settings.text if isinstance(settings, Settings) else ""
    told = parse_daemon_state(state.text.encode()) if isinstance(state, State) else None
    return parse_config(text, "rlallocd"), told


def leave_alone_for_me(path: Path, job_id: int, reason: str) -> str:
    """Have rlallocd leave a pending job alone; what it did. Raises ConfigError or UserServiceError."""
    answer = ask_daemon(directory_named_in(path), AskOff(job_id, " ".join(reason.split())[:200]))
    return answer.message if isinstance(answer, Done) else ""


def _story_of_daemon(runtime_directory: Path, job_id: int) -> tuple[Chapter, ...]:
    answer = ask_daemon(runtime_directory, AskStory(job_id))
    return answer.chapters if isinstance(answer, Story) else ()


def may_read(path: Path) -> bool:
    """Whether this user may read the file; a missing one is load_config's to complain of."""
    try:
        path.stat()
    except PermissionError:  # its directory
        return False
    except OSError:
        return True
    return os.access(path, os.R_OK)


def directory_named_in(path: Path) -> Path:
    """Where the rlallocd of this configuration listens, even if the file has an error, or the default one is missing.

    rlallocd then runs on with what it read before.

    Raises ConfigError if the file cannot be read at all.
    """
    if not may_read(path) or (path == DEFAULT_PATH and not path.exists()):
        return daemon_directory()
    try:
        return load_config(path).runtime_directory
    except ConfigError:
        with contextlib.suppress(OSError):
            return _directory_in(read_regular_file(path, follow=True).decode(errors="replace"))
        raise


def _directory_in(text: str) -> Path:
    """What the line of this key says in a file with an error elsewhere; else the default."""
    line = _NAMED.search(text)
    try:
        tree = read_yaml(line[0]) if line is not None else None
    except YamlError:
        tree = None
    named = tree.get("runtime_directory") if isinstance(tree, dict) else None
    return Path(named) if isinstance(named, str) else daemon_directory()


def daemon_directory() -> Path:
    """Where rlallocd listens for users."""
    return Path(os.environ.get(_RUNTIME_DIRECTORY) or Config().runtime_directory)
