"""Seals of the journal: a keyed hash of what an entry has the daemon do.

Agent and trainer may write the store, too, and the daemon changes jobs with an administrator's rights: by the journal
it gives jobs their requests back. Only rlallocd has the key, so an entry that somebody else wrote or changed is left
out. A seal is of the entry and of the request in its decision, but for the states through which an entry goes.
"""

import hmac
import os
import secrets
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from rlalloc.errors import StoreError
from rlalloc.store.encoding import UnreadableRow
from rlalloc.store.rows import Application
from rlalloc.system.shared_files import read_regular_file

SEALED_REQUEST: Final = "sealed_request"
"""The request of an entry's decision, in rows that are read to be checked."""
_KEY_BYTES: Final = 32
_SEAL_BYTES: Final = 20
_FINGERPRINT_BYTES: Final = 8


class BrokenSeal(UnreadableRow):
    """An entry of the journal that is not as rlallocd wrote it."""

    remedy = "run rlalloc doctor as root; its line journal says what to do"


class JournalSeal:
    """Seals entries, and checks seals, by one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, application: Application, request: str) -> str:
        """The seal of an entry; ``request`` is its decision's, as the store has it (JSON)."""
        sealed = (
            application.decision_id,
            application.job_id,
            application.original,
            application.intended,
            float(application.begin_s),
            application.begins,
            application.record,
            application.own_nice,
            application.added_nice,
            request,
        )
        return blake2b(msgspec.json.encode(sealed), key=self._key, digest_size=_SEAL_BYTES).hexdigest()

    @property
    def fingerprint(self) -> str:
        """By which two programs see that they have the same key."""
        return blake2b(b"rlallocd", key=self._key, digest_size=_FINGERPRINT_BYTES).hexdigest()

    def check(self, row: Mapping[Any, Any], application: Application) -> None:
        """Raise BrokenSeal for an entry that is not as rlallocd wrote it."""
        seal = self.of(application, str(row[SEALED_REQUEST]))
        if not hmac.compare_digest(str(row["seal"]).encode(), seal.encode()):
            raise BrokenSeal("seal: rlallocd did not write it like this, or with another key (store.key_file)")


class JournalKey:
    """The key in a file that only one user may read. Raises StoreError where the file cannot be used.

    Where there is none yet, a new key is made, and written by ``keep``: the journal as it is then is to be sealed
    with it first.
    """

    def __init__(self, path: Path, owner: int | None = None) -> None:
        """``owner`` is that user's uid, by default that of this process."""
        self._path = path
        found = _read(path, os.geteuid() if owner is None else owner)
        self.is_new = found is None
        self._key = secrets.token_bytes(_KEY_BYTES) if found is None else found
        self.seal = JournalSeal(self._key)

    def keep(self) -> None:
        """Write a new key, on disk when this returns. Raises StoreError."""
        aside = self._path.with_name(f"{self._path.name}.new")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            aside.unlink(missing_ok=True)
            file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "wb") as writable:
                writable.write(self._key.hex().encode())
                writable.flush()
                os.fsync(file)
            aside.replace(self._path)
        except OSError as err:
            raise StoreError(
                f"store.key_file {self._path} cannot be written ({err.strerror}): without it, rlallocd cannot tell "
                "its journal from what others write"
            ) from err


def _read(path: Path, owner: int) -> bytes | None:
    """The key in a file; None where there is none."""
    try:
        key = bytes.fromhex(read_regular_file(path, owner=owner).decode("ascii"))
    except FileNotFoundError:
        return None
    except OSError as err:
        raise StoreError(f"store.key_file {path}: {err.strerror}; {_REMEDY}") from err
    except ValueError as err:
        raise StoreError(f"store.key_file {path}: not a key; {_REMEDY}") from err
    if len(key) != _KEY_BYTES:
        raise StoreError(f"store.key_file {path}: found {len(key)} bytes, needed: {_KEY_BYTES}; {_REMEDY}")
    return key


_REMEDY: Final = "restore it, or remove it if you trust the journal in the store as it is"
