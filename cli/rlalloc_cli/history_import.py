"""``rlalloc history import``: past jobs into the store, from a file or from sacct itself."""

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from rlalloc.config import Config
from rlalloc.errors import HistoryError
from rlalloc.history import Imported, Importer, LogFormat, Pseudonyms
from rlalloc.history.as_requested import as_requested
from rlalloc.history.earlier_reading import IMPORTED
from rlalloc.store import Store
from rlalloc.store.database import file_of
from rlalloc.system.run_as_owner import become_owner_of
from rlallocd.slurm import Commands, ended_jobs, in_spans

_DAY_S: Final = 86400.0
_AGAIN_S: Final = _DAY_S
"""An end may reach slurmdbd late: the last day is asked for again."""
_SACCT_TIMEOUT_S: Final = 300.0


@contextmanager
def importing(config: Config, *, pseudonymize: bool, create: bool) -> Iterator[tuple[Store, Importer]]:
    """The store, and what adds past jobs to it. Raises StoreError, HistoryError.

    Without ``create``, a store that is not there is refused: its file system may not be mounted. Root works as the
    owner of the store's directory from then on.
    """
    if (file := file_of(config.store.url)) is not None:
        become_owner_of(file.parent)
    disguise = Pseudonyms(config.history.key_file).of if pseudonymize else lambda job: job
    kept_from_s = time.time() - config.store.keep_history_days * _DAY_S
    with closing(Store(config.store.url, create=create)) as store:
        importer = Importer(
            store.history,
            kept_from_s=kept_from_s,
            disguise=disguise,
            restore=lambda jobs: as_requested(jobs, store),
        )
        yield store, importer


def import_file(importer: Importer, file: BinaryIO, log_format: LogFormat) -> None:
    """Add an open file's jobs. Raises HistoryError, StoreError."""
    path = Path(file.name)
    with _bar(importer.done) as bar:
        task = bar.add_task(path.name, total=os.fstat(file.fileno()).st_size)
        try:
            importer.add_file(file, log_format, lambda position: bar.update(task, completed=position))
        except HistoryError as err:
            raise HistoryError(f"{path}: {err}") from err


def import_live(importer: Importer, store: Store, config: Config, since_s: float | None, until_s: float) -> None:
    """Add what ended from ``since_s`` to ``until_s``, span by span. Raises SlurmError, StoreError.

    Without ``since_s`` it goes on where the last import ended, at first from store.keep_history_days ago. With it, an
    import that was interrupted goes on where it stopped. It then counts as the last import only if it leaves no gap.
    """
    reached_s = store.history.position(IMPORTED)
    if since_s is None:
        source = IMPORTED
        oldest_s = time.time() - config.store.keep_history_days * _DAY_S
        begin_s = oldest_s if reached_s is None else max(oldest_s, reached_s - _AGAIN_S)
    else:
        source = f"{IMPORTED} from {since_s:.0f}"
        begin_s = store.history.position(source) or since_s
    leaves_no_gap = since_s is None or (reached_s is not None and since_s <= reached_s)
    commands = Commands(_SACCT_TIMEOUT_S)
    with _bar(importer.done) as bar:
        task = bar.add_task("sacct", total=until_s - begin_s)
        for found in in_spans(
            lambda since_s, until_s: ended_jobs(commands, since_s, until_s, importer.done.tally), begin_s, until_s
        ):
            latest = {IMPORTED: max(found.until_s, reached_s or 0.0)} if leaves_no_gap else {}
            importer.add(found.jobs, {source: found.until_s, **latest})
            bar.update(task, completed=found.until_s - begin_s)


class _Jobs(ProgressColumn):
    """How many jobs have been read."""

    def __init__(self, done: Imported) -> None:
        super().__init__()
        self._done = done

    def render(self, task: Task) -> Text:  # noqa: ARG002 (rich's signature)
        """The count, beside the bar."""
        return Text(f"{self._done.read:,} jobs")


@contextmanager
def _bar(done: Imported) -> Iterator[Progress]:
    """A progress bar on a terminal's stderr; nothing elsewhere."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        _Jobs(done),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield bar
