"""The option ``--config`` of the commands, the configuration that it names, and how errors end a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from rlalloc.config import Config, load_config
from rlalloc.errors import ConfigError, RlallocError
from rlalloc_cli.terminal import fail

_HELP = "The configuration file."
ConfigOption = Annotated[Path, typer.Option("--config", envvar="RLALLOC_CONFIG", help=_HELP)]
ConfigForAllOption = Annotated[Path, typer.Option("--config", envvar="RLALLOC_CONFIG", readable=False, help=_HELP)]
"""Not checked to be readable: ordinary users ask rlallocd instead."""


@contextmanager
def exit_on_errors() -> Iterator[None]:
    """Exit with 2 for a configuration that cannot be used, with 1 for any other error of rlalloc."""
    try:
        yield
    except ConfigError as err:
        fail(str(err), code=2)
    except RlallocError as err:
        fail(str(err), code=1)


def loaded_config(path: Path) -> Config:
    """Load the configuration, or exit with 2."""
    with exit_on_errors():
        return load_config(path)
