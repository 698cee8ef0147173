"""A site's history: jobs that have ended, read from what Slurm and other schedulers leave behind.

Readers stream: they hold one job and its steps at a time. The store keeps what they read (``Store.history``).
"""

from rlalloc.history.log_import import Imported, Importer, LogFormat, read_file
from rlalloc.history.log_lines import LogLines, ReadTally
from rlalloc.history.past_jobs_of_sacct import COLUMNS, read_sacct
from rlalloc.history.past_jobs_of_swf import read_swf
from rlalloc.history.pseudonyms import Pseudonyms

__all__ = [
    "COLUMNS",
    "Imported",
    "Importer",
    "LogFormat",
    "LogLines",
    "Pseudonyms",
    "ReadTally",
    "read_file",
    "read_sacct",
    "read_swf",
]
