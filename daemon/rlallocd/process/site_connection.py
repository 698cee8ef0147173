"""What rlallocd has open while it runs: the store, with the key of its journal, and slurmctld."""

import logging
import socket
from collections.abc import Callable

from rlalloc.config import Config
from rlalloc.errors import PolicyError, StoreError
from rlalloc.policy.interrupted_promotion import mend_interrupted_promotion
from rlalloc.policy.policies import PolicyStore
from rlalloc.store import Store
from rlalloc.store.database import is_harmed_by_others, why_not_shared
from rlalloc.store.journal_seal import JournalKey
from rlallocd.process.control_lease import ControlLease
from rlallocd.slurm import connect, host_of_this_machine

_log = logging.getLogger("rlallocd")


class SiteConnection:
    """Open from construction until closed. Raises StoreError or SlurmError.

    ``control`` is None on a site with one slurmctld; else it says whether this rlallocd is the one that acts.
    """

    def __init__(self, config: Config, progress: Callable[[], None]) -> None:
        """``progress`` is called after each step."""
        self._key = JournalKey(config.store.key_file)
        if is_harmed_by_others(config.store.url):
            _require_primary(config)
        self.store = Store(config.store.url, skip_unreadable=True, seal=self._key.seal)
        try:
            self._require_key(config)
            progress()
            _mend_promotion(config, self.store)
            self.slurm = connect(config.slurm)
            self._controllers = self.slurm.config.controllers
            self.control: ControlLease | None = None
            if len(self._controllers) > 1:
                self.control = ControlLease(self.store, config.store.url, self.slurm, socket.gethostname())
            else:
                self.keep_key()
        except BaseException:
            self.store.close()
            raise

    @property
    def has_changed(self) -> bool:
        """Whether slurm.conf names other controllers by now."""
        return self.slurm.config.controllers != self._controllers

    def keep_key(self) -> None:
        """Keep the journal's key, where it is a new one. Only who acts may: the journal is sealed with it."""
        if self._key.is_new:
            self.store.seal_journal()
            self._key.keep()
            self._key.is_new = False

    def _require_key(self, config: Config) -> None:
        """Raise StoreError where another machine's rlallocd has sealed the journal, and its key is not here."""
        if self._key.is_new and self.store.has_seals() and not why_not_shared(config.store.url):
            raise StoreError(
                "the journal is sealed with the key of another machine, and there is none here: copy "
                f"{config.store.key_file} from there, for rlallocd's user alone (mode 0600); if it is lost, see "
                "docs/admin/security.md"
            )

    def close(self) -> None:
        """Let another rlallocd act at once, and close the store."""
        try:
            if self.control is not None:
                self.control.give_up()
        except StoreError as err:
            _log.warning("cannot give up the right to act, another rlallocd has to wait until it ends: %s", err)
        finally:
            self.store.close()


def _require_primary(config: Config) -> None:
    """Raise StoreError where another machine's rlallocd is to have the store for itself. Raises SlurmError."""
    controllers = connect(config.slurm).config.controllers
    if len(controllers) > 1 and host_of_this_machine(controllers, socket.gethostname()) != controllers[0]:
        raise StoreError(
            f"{why_not_shared(config.store.url)}: rlallocd leaves it closed here, as it might break it; only the one "
            f"beside the primary slurmctld, {controllers[0]}, acts (docs/admin/two-controllers.md)"
        )


def _mend_promotion(config: Config, store: Store) -> None:
    """Record what a killed training left unrecorded; no job depends on it."""
    try:
        for done in mend_interrupted_promotion(PolicyStore(config.policy.directory), store, wait=False):
            _log.warning("an interrupted promotion: %s", done)
    except (PolicyError, StoreError) as err:
        _log.warning("cannot see whether a promotion was interrupted: %s", err)
