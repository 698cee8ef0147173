"""What the server of ``rlalloc_command`` imports once.

A terminal's width is not among it: rich reads COLUMNS at each call where it was not set before.
"""

import os

os.environ.pop("COLUMNS", None)

import rlalloc_cli.main
import rlalloc_cli.status  # noqa: F401 (what most commands need)
