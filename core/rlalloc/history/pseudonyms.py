"""Names that tell nobody who or what they stand for, without the site's key.

A pseudonym is a keyed hash (BLAKE2b, 64 bits) written in letters: whoever takes digits out of names leaves it whole.
"""

import contextlib
import os
import re
import secrets
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from rlalloc.errors import HistoryError
from rlalloc.past_job import PastJob
from rlalloc.system.shared_files import read_regular_file

_KEY_BYTES: Final = 32
_LETTERS: Final = bytes.maketrans(b"0123456789abcdef", b"abcdefghijklmnop")
_DIGITS: Final = re.compile(r"\d+")
_OF_A_USER: Final = re.compile(r"user-[a-p]{16}")


def real_user(name: str) -> str | None:
    """The user of a past job; None where the name is a pseudonym, which does not tell."""
    return None if _OF_A_USER.fullmatch(name) else name


class Pseudonyms:
    """Replaces user, account and job name. Equal names stay equal, and job names that differ in digits become one.

    The key is in ``key_file``, which the first use makes. Raises HistoryError.
    """

    def __init__(self, key_file: Path) -> None:
        self._key = _key(key_file)
        self._name = lru_cache(maxsize=65536)(self._hash)

    def of(self, job: PastJob) -> PastJob:
        """The same job under pseudonyms."""
        return msgspec.structs.replace(
            job, user=self.user(job.user), account=self.account(job.account), name=self.job_name(job.name)
        )

    def user(self, name: str) -> str:
        """A user's pseudonym."""
        return self._name("user", name)

    def account(self, name: str) -> str:
        """An account's pseudonym."""
        return self._name("account", name)

    def job_name(self, name: str) -> str:
        """The pseudonym of a job's name."""
        return self._name("job", _DIGITS.sub("#", name))

    def _hash(self, kind: str, name: str) -> str:
        if not name:
            return ""
        digest = blake2b(f"{kind}:{name}".encode(errors="replace"), key=self._key, digest_size=8).hexdigest()
        return f"{kind}-{digest.encode().translate(_LETTERS).decode()}"


def _key(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        _make_key(path)
    try:
        key = bytes.fromhex(read_regular_file(path).decode("ascii"))
    except OSError as err:
        raise HistoryError(
            f"history.key_file {path}: {err.strerror}; run this as the user that owns the file, or as root, or name "
            "another file in the configuration"
        ) from err
    except ValueError as err:
        raise HistoryError(f"history.key_file {path}: not a key; restore it from a backup, or remove it") from err
    if len(key) != _KEY_BYTES:
        raise HistoryError(f"history.key_file {path}: found {len(key)} bytes, needed: {_KEY_BYTES}; restore it")
    return key


def _make_key(path: Path) -> None:
    """Make a key that only the owner of its directory can read, whole or not at all. Raises OSError."""
    if path.exists():
        return
    part = path.with_name(f"{path.name}.{os.getpid()}")
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(file, 0o600)  # whatever the umask
        if os.geteuid() == 0:
            directory = path.parent.stat()
            os.fchown(file, directory.st_uid, directory.st_gid)
        os.write(file, secrets.token_hex(_KEY_BYTES).encode())
        os.fsync(file)
        path.hardlink_to(part)  # fails where another process was first
    finally:
        os.close(file)
        part.unlink()
