"""``rlalloc`` in a process of its own, which need not import it: that takes a second of processor time each time."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload([f"{__package__}.preloaded_rlalloc"])


def run_rlalloc(
    *words: str, environment: Mapping[str, str], directory: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``rlalloc`` with these ``words`` and this ``environment``, in ``directory`` where one is named."""
    with TemporaryDirectory() as folder:
        said, complained = Path(folder, "stdout"), Path(folder, "stderr")
        process = _FORKED.Process(
            target=_rlalloc, args=(words, dict(environment), directory or Path.cwd(), said, complained)
        )
        process.start()
        process.join()
        assert process.exitcode is not None
        return subprocess.CompletedProcess(words, process.exitcode, said.read_text(), complained.read_text())


def _rlalloc(words: tuple[str, ...], environment: dict[str, str], directory: Path, *paths: Path) -> None:
    from rlalloc_cli.main import main

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    for descriptor, path in enumerate((Path(os.devnull), *paths)):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 (until the process ends)
        for number, mode in enumerate("rww")
    )
    sys.argv = ["rlalloc", *words]
    main()
