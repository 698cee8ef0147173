"""Coverage by package, for the summary of a run with ``--cov``: see ``make coverage``."""

import io
from typing import Final, cast

import coverage

ALL: Final = "all"


def coverage_by_package() -> dict[str, float]:
    """The part of the lines [%] that have run, by source folder and of all, from the data of pytest-cov.

    It includes the programs that tests started, but for those that were killed.
    """
    whole = coverage.Coverage()
    whole.load()
    folders = cast("list[str]", whole.get_option("run:source"))
    found = {folder: whole.report(include=f"{folder}/*", file=io.StringIO()) for folder in folders}
    return found | {ALL: whole.report(file=io.StringIO())}
