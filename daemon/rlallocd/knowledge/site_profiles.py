"""The site's profiles of speeds: the files of a folder, read again when they change."""

import logging
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

from rlalloc.config import Config
from rlalloc.errors import ProfileError
from rlalloc.speed.family_speeds import FamilySpeeds
from rlalloc.speed.profile_file import SUFFIX, Profile, read_profile
from rlallocd.process.interval import Interval

_log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 60.0
_MOST: Final = 100
"""Files that are read: a folder with more is not one of profiles."""

_Seen = dict[Path, tuple[float, int]]


class SiteProfiles:
    """Hands the profiles of the configured folder to a ``FamilySpeeds``. A file that cannot be used is left out."""

    def __init__(self, counters: Counter[str]) -> None:
        self._counters = counters
        self._look = Interval()
        self._seen: _Seen = {}

    def read_into(self, speeds: FamilySpeeds, config: Config) -> None:
        """Look for changed files if some time has passed. Never raises: without a profile, jobs are decided too."""
        if not self._look.passed(_LOOK_EVERY_S):
            return
        self._look.restart()
        seen = _files(config.speed.profiles)
        if seen == self._seen:
            return
        self._seen = seen
        profiles = []
        for path in seen:
            profile = self._read(path)
            if profile is not None:
                profiles.append(profile)
        speeds.use(profiles)
        _log.info("profiles in use: %s", ", ".join(profile.name for profile in profiles) or "none")

    def _read(self, path: Path) -> Profile | None:
        try:
            return read_profile(path)
        except ProfileError as err:
            self._counters["profiles_left_out"] += 1
            _log.warning("a profile is left out: %s", err)
            return None


def _files(folder: Path) -> _Seen:
    """Time of change and size of each file with the suffix of profiles; none where there is no folder."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    except OSError:
        return {}
    found = {}
    for path in paths[:_MOST]:
        with suppress(OSError):  # it was removed meanwhile, or is a link to nothing
            stat = path.stat()
            found[path] = stat.st_mtime, stat.st_size
    return found
