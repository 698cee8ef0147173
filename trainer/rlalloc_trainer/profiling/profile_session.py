"""Measures the points of a profile that are missing, and keeps the file up to date, so that nothing is lost."""

import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import msgspec

from rlalloc.errors import ProfileError
from rlalloc.speed.profile_file import Profile, ProfilePoint, Size, read_profile, write_profile
from rlalloc_trainer.profiling.made_up_text import make_up_text
from rlalloc_trainer.profiling.point_files import PointTask, speeds_of

_MADE_UP: Final = "text"


class DoesNotFit(ProfileError):
    """A point asks for more than there is."""


class PointRunner(Protocol):
    """Runs points, each in a folder of its own."""

    at_once: int

    def start(self, folder: Path, task: PointTask) -> None:
        """Begin a point, or go on with it. Raises DoesNotFit, or ProfileError if no point can be run at all."""

    def ended(self, folder: Path, size: Size) -> ProfilePoint | None:
        """What came of a point; None as long as it has not ended."""

    def describe(self) -> str:
        """What is going on, in a few words."""

    def pause(self) -> None:
        """Wait until it is worth to look again."""

    def cancel(self) -> None:
        """End all that was begun and has not ended."""


class Session:
    """One call of ``rlalloc profile run``: ``done`` and ``total`` count points, ``profile`` is the file as it is."""

    def __init__(self, path: Path, profile: Profile, sizes: Sequence[Size]) -> None:
        self.path = path
        self.profile = profile
        self.total = len(sizes)
        self._work = path.with_name(path.name + ".work")
        self._missing = [size for size in sizes if self._is_missing(size)]

    @property
    def done(self) -> int:
        """Points that are settled."""
        return self.total - len(self._missing)

    def run(
        self, runner: PointRunner, text: Path | None, timeout_s: float, report: Callable[[str, int], None]
    ) -> None:
        """Measure what is missing. Raises ProfileError; whatever ends it early, the measured points are kept."""
        if not self._missing:
            return
        text = text.resolve() if text is not None else self._made_up_text()
        waiting, running = list(self._missing), dict[Size, Path]()
        try:
            while waiting or running:
                while waiting and len(running) < runner.at_once:
                    self._begin(waiting.pop(0), runner, text, timeout_s, running)
                    report(runner.describe(), self.done)
                for size, folder in list(running.items()):
                    point = runner.ended(folder, size)
                    if point is not None:
                        del running[size]
                        self._keep(point, folder)
                report(runner.describe(), self.done)
                if running:
                    runner.pause()
        finally:
            with _uninterrupted():
                runner.cancel()
                self._tidy()

    def _is_missing(self, size: Size) -> bool:
        point = self.profile.point(size)
        return point is None or point.outcome == "failed"

    def _begin(
        self, size: Size, runner: PointRunner, text: Path, timeout_s: float, running: dict[Size, Path]
    ) -> None:
        folder = self._work / _folder_name(size)
        if self.profile.point(size) is not None:  # it failed: what lies there is of then
            shutil.rmtree(folder, ignore_errors=True)
        task = PointTask(conditions=self.profile.conditions, size=size, text=str(text), timeout_s=timeout_s)
        with _uninterrupted():
            try:
                runner.start(folder, task)
            except DoesNotFit as err:
                self._keep(ProfilePoint(size=size, outcome="does-not-fit", why=str(err)[:2000]), folder)
            else:
                running[size] = folder

    def _keep(self, point: ProfilePoint, folder: Path) -> None:
        speeds = speeds_of(folder)
        if speeds is not None and not self.profile.conditions.accelerator:
            conditions = msgspec.structs.replace(self.profile.conditions, accelerator=speeds.accelerator)
            self.profile = msgspec.structs.replace(self.profile, conditions=conditions)
        self.profile = self.profile.with_point(point)
        write_profile(self.profile, self.path)
        if point.size in self._missing:
            self._missing.remove(point.size)
        if point.outcome != "failed":
            shutil.rmtree(folder, ignore_errors=True)

    def _made_up_text(self) -> Path:
        path = self._work / _MADE_UP
        try:
            self._work.mkdir(parents=True, exist_ok=True)
            if not path.exists():  # a job of an earlier call may be reading it
                make_up_text(path)
        except OSError as err:
            raise ProfileError(f"cannot write to {self._work}: {err.strerror}") from err
        return path.resolve()

    def _tidy(self) -> None:
        """Where no point is open and no log of a failed one is left, nothing stays but the profile."""
        if self._work.is_dir() and all(entry.name == _MADE_UP for entry in self._work.iterdir()):
            shutil.rmtree(self._work, ignore_errors=True)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the block is done: what was begun is known by then, and what is ended has ended."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def opened(path: Path, wanted: Profile) -> Profile:
    """The profile at ``path``, to go on with; ``wanted`` where there is none.

    Raises ProfileError if the file was measured under other conditions than ``wanted``.
    """
    if not path.exists():
        write_profile(wanted, path)
        return wanted
    found = read_profile(path)
    asked = msgspec.structs.replace(wanted.conditions, accelerator=found.conditions.accelerator)
    if asked != found.conditions:
        have, want = msgspec.structs.asdict(found.conditions), msgspec.structs.asdict(asked)
        differs = ", ".join(
            f"{name} {_shown(have[name])}, not {_shown(want[name])}" for name in have if have[name] != want[name]
        )
        raise ProfileError(
            f"{path} was measured with {differs}: points of both cannot be compared; give the same options, or name "
            "another file"
        )
    if _says_whom(wanted) and wanted.applies_to != found.applies_to:
        found = msgspec.structs.replace(found, applies_to=wanted.applies_to)
        write_profile(found, path)
    return found


def _says_whom(profile: Profile) -> bool:
    return bool(profile.applies_to.jobs or profile.applies_to.gpu_types)


def _shown(value: object) -> object:
    return getattr(value, "name", value)


def _folder_name(size: Size) -> str:
    return f"g{size.gpus}-n{size.nodes}-c{size.cpus_per_gpu}-m{size.mem_mib_per_gpu}"
