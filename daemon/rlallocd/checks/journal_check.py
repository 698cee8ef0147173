"""Whether the journal in the store is as rlallocd wrote it: the seals of its entries (docs/admin/security.md)."""

import contextlib
import os
from typing import Final

from rlalloc.config import Config
from rlalloc.errors import StoreError
from rlalloc.store import Store
from rlalloc.store.database import why_not_shared
from rlalloc.store.journal_seal import JournalKey
from rlallocd.checks.file_access import ids_of
from rlallocd.checks.finding import Finding, failure, good, unchecked, warning

_WHAT: Final = "journal"
_NEWEST: Final = 1000
"""So many of the newest entries are checked, and all that are open: all that jobs in the queue are likely to have."""
_PAGE: Final = "docs/admin/security.md"


def journal_findings(config: Config, daemon: str) -> list[Finding]:
    """One line; none where the store cannot be opened, as another check says. ``daemon`` is the user of rlallocd."""
    try:
        owner, _ = ids_of(daemon)
    except KeyError:
        return [unchecked(_WHAT, f"not checked: there is no user {daemon} here", "scripts/install-site.sh")]
    if os.geteuid() not in (0, owner):
        return [
            unchecked(_WHAT, f"not checked: its key is for root and {daemon} alone", "run rlalloc doctor as root")
        ]
    try:
        key = JournalKey(config.store.key_file, owner)
    except StoreError as err:
        path = config.store.key_file
        rights = f"if its owner or mode is wrong: chown {daemon} {path}; chmod 600 {path}"
        return [failure(_WHAT, f"rlallocd will not start: {err}", f"{rights}; if it is damaged: {_PAGE}")]
    try:
        store = Store(config.store.url, read_only=True, skip_unreadable=True, seal=key.seal)
    except StoreError:
        return []
    with contextlib.closing(store):
        try:
            return [_without_key(config, store) if key.is_new else _of_entries(config, store)]
        except StoreError as err:
            return [failure(_WHAT, str(err), "journalctl -u rlallocd")]


def _without_key(config: Config, store: Store) -> Finding:
    path = config.store.key_file
    if not store.has_seals():
        return good(_WHAT, "not sealed yet: rlallocd makes its key at its first start")
    if why_not_shared(config.store.url):
        found = f"its key {path} is gone: at its next start, rlallocd accepts the journal that is in the store"
        return warning(_WHAT, found, f"put the key back, or restart rlallocd if you trust the store ({_PAGE})")
    found = f"its key {path} is missing: rlallocd waits for it"
    return failure(_WHAT, found, f"copy it from the machine that sealed the journal ({_PAGE})")


def _of_entries(config: Config, store: Store) -> Finding:
    looked_at, broken = store.count_broken_seals(_NEWEST)
    if not broken:
        return good(_WHAT, f"{looked_at} entries have the seal of rlallocd" if looked_at else "no entry yet")
    found = (
        f"{broken} of {looked_at} entries are not as rlallocd wrote them, or have another key's seal: "
        "rlallocd leaves them out, and their jobs keep the sizes that they have"
    )
    again = f"rm {config.store.key_file} and restart rlallocd"
    return failure(_WHAT, found, f"find out who changed the store; if you trust it as it is: {again} ({_PAGE})")
