"""What rlallocd keeps open in its runtime directory: its lock, the plugin's wake file, and the socket for users."""

import logging
from contextlib import ExitStack, closing

from rlalloc.config import Config
from rlallocd.controller import Controller
from rlallocd.process.only_daemon import AnotherDaemonError, OnlyDaemon
from rlallocd.submissions.intercept import RuntimeDirectoryError, WakeFile
from rlallocd.users.user_service import UserService

_log = logging.getLogger("rlallocd")


class RuntimeFiles:
    """Open from construction until closed. Raises RuntimeDirectoryError."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._users: UserService | None = None
        with ExitStack() as opened:
            self._lock = opened.enter_context(closing(OnlyDaemon(config.runtime_directory)))
            self.wake = opened.enter_context(closing(WakeFile(config.runtime_directory)))
            self._opened = opened.pop_all()

    def take_up(self, config: Config) -> None:
        """Answer users by another configuration."""
        self._config = config
        if self._users is not None:
            self._users.config = config

    def serve_users(self, controller: Controller | None, stands_by: str) -> None:
        """Answer users about their own jobs anew; where that cannot be, no job depends on it.

        ``stands_by`` says why another rlallocd is to act.
        """
        try:
            self._stop_serving()
            if controller is None:
                self._users = UserService(self._config)
            else:
                self._users = UserService(self._config, controller.off_requests, controller.switch)
        except (OSError, RuntimeError) as err:  # RuntimeError: no thread can be started
            _log.warning("cannot answer users in %s: %s", self._config.runtime_directory, err)
        else:
            self._users.stands_by = stands_by

    def renew(self, controller: Controller | None, stands_by: str) -> None:
        """Make again what somebody has removed with the runtime directory, as soon as there is one again.

        Raises AnotherDaemonError where another rlallocd has been started meanwhile: this one has to end.
        """
        try:
            self._lock.renew()
            self.wake.renew()
        except AnotherDaemonError:
            raise
        except RuntimeDirectoryError as err:
            _log.error("users and the plugin do not reach rlallocd, jobs run as submitted: %s", err)
            return
        if self._users is None or not self._users.is_there:
            self.serve_users(controller, stands_by)
        else:
            self._users.stands_by = stands_by

    def close(self) -> None:
        """Serve nobody any more, and give the lock up."""
        self._stop_serving()
        self._opened.close()

    def _stop_serving(self) -> None:
        if self._users is not None:
            users, self._users = self._users, None
            users.close()
