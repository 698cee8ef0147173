"""The policy store: a directory of versions, each a folder with safetensors and a manifest.

::

    policies/
    ├── current -> v000003            what the agent serves; replaced atomically; absent for the shipped policy
    ├── promotions.jsonl              what was put in use when, by whom and why; a line each
    ├── v000003/manifest.json         who made it, from what, how well it did, SHA-256 of each file
    └── v000003/actor.safetensors

Nothing in it can run code, and no file is used whose SHA-256 differs from its manifest's.
"""

import contextlib
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.errors import MissingInputsError, PolicyError
from rlalloc.heuristics import BASELINE_NAME, BASELINE_OF_0_1, SERVED_HEURISTICS
from rlalloc.observation import answer_columns
from rlalloc.policy.policy_inputs import PolicyInputs
from rlalloc.system.shared_files import lock_file, open_shared, read_regular_file

ACTOR_FILE: Final = "actor.safetensors"
MANIFEST_FILE: Final = "manifest.json"
CURRENT: Final = "current"
SHIPPED_NAME: Final = "shipped"
"""What people call the policy that comes with rlalloc: the one in use where there is no current version."""
LOCK_FILE: Final = ".lock"
"""A promoter holds an flock on it."""
_LOCK_WITHIN_S: Final = 60.0
HISTORY_FILE: Final = "promotions.jsonl"
_SCHEMA_OF_0_1: Final = 7
_INPUTS_OF_0_1: Final = dict(
    zip(
        ("heuristic_gpu_share", "heuristic_cpu_share", "heuristic_mem_share", "heuristic_urgency"),
        answer_columns(BASELINE_OF_0_1),
        strict=True,
    )
)
_VERSION: Final = re.compile(r"v([0-9]{6,})")


class Routing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which decisions a policy's network answers; ``heuristic``, one of SERVED_HEURISTICS, answers the others.

    The pressure on the partition decides: the GPUs that the jobs waiting ahead ask for, over all its GPUs
    (``pressure_of``). ``below`` is None where there is no upper end. With ``own_order`` the network answers only on
    sites where urgency does not count, so that the queue keeps its own order.
    """

    at_least: float = 0.0
    below: float | None = None
    own_order: bool = False
    heuristic: str = BASELINE_NAME

    def __post_init__(self) -> None:
        """Raise ValueError for a heuristic that the agent cannot serve."""
        if self.heuristic not in SERVED_HEURISTICS:
            raise ValueError(f"{self.heuristic!r} cannot be served: write one of {', '.join(SERVED_HEURISTICS)}")

    @classmethod
    def by(cls, heuristic: str) -> "Routing":
        """Leave every decision to that heuristic."""
        return cls(below=0.0, heuristic=heuristic)

    @property
    def nowhere(self) -> bool:
        """Whether the heuristic answers every decision."""
        return self.below is not None and self.below <= self.at_least

    @property
    def everywhere(self) -> bool:
        """Whether the network answers every decision."""
        return self.at_least <= 0.0 and self.below is None and not self.own_order

    def ever(self, *, urgency_counts: bool) -> bool:
        """Whether the network answers at all on a site where urgency counts, or does not."""
        return not self.nowhere and not (urgency_counts and self.own_order)

    def at(self, pressure: NDArray[np.float64], urgency_counts: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether the network answers at each ``pressure``, on sites where ``urgency_counts`` or does not."""
        pressed = (pressure >= self.at_least) & (pressure < (np.inf if self.below is None else self.below))
        return pressed & ~(urgency_counts & self.own_order)

    def describe(self) -> str:
        """Describe the routing in a few words, for people."""
        if self.everywhere:
            return "everywhere"
        if self.nowhere:
            return f"nowhere: {self.heuristic} answers"
        where = []
        if self.at_least > 0.0 or self.below is not None:
            end = "" if self.below is None else f" and below {self.below:g}"
            where.append(f"the pressure is at least {self.at_least:g}{end}")
        if self.own_order:
            where.append("the queue keeps its own order")
        return f"where {' and '.join(where)}"


EVERYWHERE: Final = Routing()
NOWHERE: Final = Routing.by(BASELINE_NAME)


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a policy version is.

    ``inputs`` name what the actor reads (``PolicyInputs``). ``files`` maps file names to SHA-256 in hex. ``hidden``
    are the actor's hidden layer widths. ``training`` and ``evaluation`` tell people how it was made and judged, as
    plain JSON. ``routing`` says which decisions the actor answers.
    """

    version: str
    parent: str | None
    created_s: float
    inputs: tuple[str, ...]
    hidden: tuple[int, ...]
    files: dict[str, str]
    training: dict[str, object]
    evaluation: dict[str, object]
    routing: Routing = EVERYWHERE

    @property
    def refusal(self) -> str | None:
        """Why the gate refused this version; None where it did not."""
        return str(self.evaluation.get("reason", "")) if self.evaluation.get("promote") is False else None


class Promotion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of the policy in use; ``version`` and ``before`` are versions or SHIPPED_NAME.

    ``by`` is who did it: a login name, or a program. ``forced``: although the gate had refused it. ``undoes``: back
    to the version before.
    """

    time_s: float
    version: str
    before: str
    by: str
    reason: str
    forced: bool = False
    undoes: bool = False


class PolicyStore:
    """Versions of policies under one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def versions(self) -> tuple[str, ...]:
        """All complete versions, oldest first."""
        if not self.directory.is_dir():
            return ()
        return tuple(sorted(path.parent.name for path in self.directory.glob(f"v*/{MANIFEST_FILE}")))

    def current(self) -> str | None:
        """The version in use, or None where none was ever promoted."""
        try:
            return (self.directory / CURRENT).readlink().name
        except OSError:
            return None

    def path(self, version: str) -> Path:
        """The folder of ``version``. Raises PolicyError if the name is not a version's."""
        if _VERSION.fullmatch(version) is None:
            raise PolicyError(f"{version!r} is not a policy version; `rlalloc policy list` shows them")
        return self.directory / version

    def manifest(self, version: str) -> Manifest:
        """Return the manifest of ``version``. Raises PolicyError if missing or damaged."""
        return read_manifest(self.path(version))

    def add(self, files: Mapping[str, bytes], manifest: Manifest) -> str:
        """Store a new version, not yet in use, and return its name; version and files of ``manifest`` are set here.

        A version appears whole or not at all: it is written aside and renamed.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=self.directory) as aside:
            staged = Path(aside) / "version"
            staged.mkdir()
            for name, content in files.items():
                _write_durably(staged / name, content)
            digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
            while True:
                version = self._next_version()
                complete = msgspec.structs.replace(manifest, version=version, files=digests)
                _write_durably(staged / MANIFEST_FILE, msgspec.json.format(msgspec.json.encode(complete)))
                try:
                    staged.rename(self.directory / version)
                except OSError as err:
                    if (self.directory / version).exists():
                        continue  # another trainer took the number
                    raise PolicyError(f"cannot store {version} in {self.directory}: {err}") from err
                return version

    @contextmanager
    def locked(self, *, wait: bool = True) -> Iterator[bool]:
        """Keep other processes from promoting; False if not to ``wait`` and another does.

        Raises PolicyError, also where another holds the lock for longer than any promotion takes.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            lock = open_shared(self.directory / LOCK_FILE, os.O_RDONLY)
        except OSError as err:
            raise PolicyError(f"cannot lock {self.directory}: {err.strerror}") from err
        try:
            locked = lock_file(lock, _LOCK_WITHIN_S if wait else 0.0)
            if wait and not locked:
                raise PolicyError(
                    f"another process has held {self.directory / LOCK_FILE} for {_LOCK_WITHIN_S:.0f} s: "
                    "end it (fuser -v names it), then try again"
                )
            yield locked
        finally:
            os.close(lock)

    def promotions(self) -> tuple[Promotion, ...]:
        """All changes of the policy in use, oldest first; a line that cannot be read is left out."""
        try:
            lines = read_regular_file(self.directory / HISTORY_FILE).splitlines()
        except FileNotFoundError:
            return ()
        except OSError as err:
            raise PolicyError(f"cannot read {self.directory / HISTORY_FILE}: {err.strerror}") from err
        found = []
        for line in lines:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # the last line, where a disk was full
                found.append(msgspec.json.decode(line, type=Promotion))
        return tuple(found)

    def promote(self, version: str, *, by: str = "", reason: str = "", forced: bool = False) -> None:
        """Make ``version``, or SHIPPED_NAME, the one in use, whichever was before.

        Raises PolicyError if its files are damaged.
        """
        if version != SHIPPED_NAME:
            verify(self.path(version))
        with self.locked():
            self.put_in_use(version, by=by, reason=reason, forced=forced)

    def roll_back(self, *, by: str, reason: str) -> str:
        """Put the version before the present one in use again, and return it. Raises PolicyError if there is none."""
        with self.locked():
            version = self._version_before()
            if version != SHIPPED_NAME:
                verify(self.path(version))
            self.put_in_use(version, by=by, reason=reason, undoes=True)
            return version

    def put_in_use(self, version: str, *, by: str, reason: str, forced: bool = False, undoes: bool = False) -> None:
        """Make an intact ``version``, or SHIPPED_NAME, the one in use, and note who did it and why.

        Atomic; to be called within ``locked``. Raises PolicyError; then nothing has changed.
        """
        aside = self.directory / f".{CURRENT}-{os.getpid()}"
        change = Promotion(
            time_s=time.time(),
            version=version,
            before=self.current() or SHIPPED_NAME,
            by=by,
            reason=reason,
            forced=forced,
            undoes=undoes,
        )
        try:
            with self._noted(change):
                if version == SHIPPED_NAME:
                    (self.directory / CURRENT).unlink(missing_ok=True)
                    return
                aside.unlink(missing_ok=True)
                aside.symlink_to(version)
                aside.replace(self.directory / CURRENT)
        except OSError as err:
            raise PolicyError(f"cannot put {version} in use: {err}") from err

    @contextmanager
    def _noted(self, change: Promotion) -> Iterator[None]:
        """Note a change before it is made; take the note back if it cannot be made. Raises OSError."""
        path = self.directory / HISTORY_FILE
        with os.fdopen(open_shared(path, os.O_WRONLY | os.O_APPEND), "ab") as file:
            length = file.seek(0, os.SEEK_END)
            try:
                file.write(msgspec.json.encode(change) + b"\n")
                file.flush()
                os.fsync(file.fileno())
                yield
            except BaseException:
                os.ftruncate(file.fileno(), length)
                raise

    def _version_before(self) -> str:
        """What was in use before the present version: by the notes, or, where there are none, by its manifest.

        If the manifest cannot be read either, it is the shipped version.
        """
        current = self.current() or SHIPPED_NAME
        stack: list[str] = []
        last = None
        for change in self.promotions():
            if change.undoes and stack:
                stack.pop()
            elif change.before != change.version:
                stack.append(change.before)
            last = change.version
        if last == current and stack:
            return stack[-1]
        if current == SHIPPED_NAME:
            raise PolicyError("the shipped policy is in use, and no other was before it: promote a version instead")
        try:
            parent = self.manifest(current).parent
        except PolicyError:
            return SHIPPED_NAME
        return parent if parent in self.versions() else SHIPPED_NAME

    def _next_version(self) -> str:
        taken = [int(match[1]) for path in self.directory.iterdir() if (match := _VERSION.fullmatch(path.name))]
        return f"v{max(taken, default=0) + 1:06d}"


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest in ``folder``. Raises PolicyError if missing or damaged."""
    path = folder / MANIFEST_FILE
    try:
        fields = msgspec.json.decode(read_regular_file(path), type=dict[str, object])
        return msgspec.convert(_as_of_today(fields, folder), Manifest)
    except OSError as err:
        raise PolicyError(
            f"no policy at {folder}: {err.strerror}; `rlalloc policy list` shows what there is"
        ) from err
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise PolicyError(f"{path} is damaged ({err}): promote another version") from err


def verify(folder: Path) -> Manifest:
    """Return the manifest of a folder whose files are as it says and whose actor this program can serve.

    Raises MissingInputsError where an input of the actor is gone, another PolicyError if it is missing or damaged.
    """
    manifest = read_manifest(folder)
    missing = PolicyInputs(manifest.inputs).missing()
    if missing:
        raise MissingInputsError(
            f"{folder} reads {', '.join(missing)}, which this version of rlalloc does not have: promote another "
            "version, or retrain"
        )
    for name, digest in manifest.files.items():
        try:
            content = read_regular_file(folder / name)
        except OSError as err:
            raise PolicyError(f"{folder / name} cannot be read ({err.strerror}): promote another version") from err
        if hashlib.sha256(content).hexdigest() != digest:
            raise PolicyError(f"{folder / name} differs from its manifest's SHA-256: promote another version")
    return manifest


def _as_of_today(fields: dict[str, object], folder: Path) -> dict[str, object]:
    """Return a manifest's fields under today's names: rlalloc 0.1 had others, and numbered what an actor reads.

    Raises MissingInputsError for an actor of before 0.1.
    """
    if "answers" in fields:
        fields["routing"] = fields.pop("answers")
    if (schema := fields.pop("observation_schema", None)) is not None:
        if schema != _SCHEMA_OF_0_1:
            raise MissingInputsError(
                f"{folder} was trained on observation schema {schema}, which this version of rlalloc does not have: "
                "promote another version, or retrain"
            )
        names = msgspec.convert(fields.pop("features", ()), tuple[str, ...])
        fields["inputs"] = tuple(_INPUTS_OF_0_1.get(name, name) for name in names)
    return fields


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
