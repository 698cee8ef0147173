"""Models of run times on disk: a folder of versions beside the policies, LightGBM's text and a manifest.

::

    policies/run_times/v000007/manifest.json     from how many jobs, how well it did, SHA-256 of each file
    policies/run_times/v000007/median.txt        a booster; low.txt, high.txt, relative.txt likewise

Nothing in it can run code, and no file is read by LightGBM whose SHA-256 differs from its manifest's. The newest
version is the one in use.
"""

import hashlib
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from rlalloc.errors import MissingInputsError, PolicyError
from rlalloc.policy.policies import MANIFEST_FILE
from rlalloc.run_times.recent_runs import FEATURES
from rlalloc.run_times.run_time_model import NAMES, RELATIVE, Offsets, RunTimeModel, require_lightgbm
from rlalloc.system.shared_files import read_regular_file

FOLDER: Final = "run_times"
KEPT: Final = 10
"""Versions that are kept."""
_VERSION: Final = re.compile(r"v([0-9]{6,12})")
log = logging.getLogger(__name__)


class RunTimeManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a model of run times is.

    ``inputs`` name what it reads, ``files`` maps file names to SHA-256 in hex. ``jobs`` is how many it was learned
    from, the last of which ended at ``until_s``. ``evaluation`` tells people how well it did in strict time order.
    """

    created_s: float
    jobs: int
    until_s: float
    inputs: tuple[str, ...]
    offsets: Offsets
    files: dict[str, str]
    evaluation: dict[str, object]


def save_model(directory: Path, model: RunTimeModel, manifest: RunTimeManifest) -> Path:
    """Store a model as the newest version under ``directory`` and return its folder.

    Inputs, offsets and files of ``manifest`` are set here. The version appears whole or not at all. Only the last
    KEPT versions stay. Raises PolicyError.
    """
    contents = {f"{name}.txt": model.boosters[name].model_to_string().encode() for name in (*NAMES, RELATIVE)}
    complete = msgspec.structs.replace(
        manifest,
        inputs=FEATURES,
        offsets=model.offsets,
        files={name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
    )
    contents[MANIFEST_FILE] = msgspec.json.format(msgspec.json.encode(complete))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        numbers = [number for number, _ in _versions(directory)]
        folder = directory / f"v{max(numbers, default=0) + 1:06d}"
        with tempfile.TemporaryDirectory(prefix=".new-", dir=directory) as aside:
            staged = Path(aside) / "version"
            staged.mkdir(mode=0o755)
            for name, content in contents.items():
                with (staged / name).open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            staged.rename(folder)
        for _, old in sorted(_versions(directory))[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    except OSError as err:
        raise PolicyError(f"cannot store a model of run times in {directory}: {err.strerror}") from err
    return folder


def load_model(folder: Path) -> RunTimeModel:
    """Return the model in ``folder``. Raises PolicyError if it is missing, damaged or of another version's inputs."""
    manifest = read_run_time_manifest(folder)
    if manifest.inputs != FEATURES:
        raise MissingInputsError(
            f"{folder} reads other inputs than this version of rlalloc has: `rlalloc train run` makes a new one"
        )
    texts = {}
    names = (*NAMES, RELATIVE) if f"{RELATIVE}.txt" in manifest.files else NAMES
    for name in names:
        path = folder / f"{name}.txt"
        try:
            content = read_regular_file(path)
        except OSError as err:
            raise PolicyError(f"{path} cannot be read ({err.strerror}): remove {folder}") from err
        if hashlib.sha256(content).hexdigest() != manifest.files.get(path.name):
            raise PolicyError(f"{path} differs from its manifest's SHA-256: remove {folder}")
        texts[name] = content.decode()
    require_lightgbm()
    import lightgbm

    try:
        boosters = {name: lightgbm.Booster(model_str=text) for name, text in texts.items()}
    except lightgbm.basic.LightGBMError as err:
        raise PolicyError(f"LightGBM cannot read {folder} ({err}): remove it") from err
    return RunTimeModel(boosters, manifest.offsets)


def read_run_time_manifest(folder: Path) -> RunTimeManifest:
    """Return the manifest of a model of run times. Raises PolicyError if it is missing or damaged."""
    path = folder / MANIFEST_FILE
    try:
        return msgspec.json.decode(read_regular_file(path), type=RunTimeManifest)
    except OSError as err:
        raise PolicyError(f"no model of run times at {folder}: {err.strerror}") from err
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise PolicyError(f"{path} is damaged ({err}): remove {folder}") from err


def newest_model(directory: Path) -> RunTimeModel | None:
    """Return the newest model that can be used; None where there is none. One that cannot is named in the log."""
    for _, folder in sorted(_versions(directory), reverse=True):
        try:
            return load_model(folder)
        except Exception as err:  # noqa: BLE001 (LightGBM and what it imports may fail in any way; like jobs answer then)
            log.warning("a model of run times is left out: %s", err)
    return None


def _versions(directory: Path) -> Iterator[tuple[int, Path]]:
    if not directory.is_dir():
        return
    for path in directory.iterdir():
        if (match := _VERSION.fullmatch(path.name)) is not None:
            yield int(match[1]), path
