"""Coverage by package, for the summary of a run under ``coverage run``: see ``make test``."""

import io
import warnings
from typing import Final, cast

import coverage
from coverage.exceptions import CoverageWarning

ALL: Final = "all"


def coverage_by_package() -> dict[str, float]:
    """The part of the lines [%] that have run until now, by source folder and of all; none where it isn't measured.

    Ends the measurement. It includes the programs that tests started, but for those that were killed.
    """
    measured = coverage.Coverage.current()
    if measured is None:
        return {}
    measured.stop()
    measured.save()
    whole = coverage.Coverage()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)  # what a killed program has left cannot be read
        whole.combine()
    folders = cast("list[str]", whole.get_option("run:source"))
    found = {folder: whole.report(include=f"{folder}/*", file=io.StringIO()) for folder in folders}
    return found | {ALL: whole.report(file=io.StringIO())}
