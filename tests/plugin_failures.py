"""For tests in which no plug-in may fail."""

from typing import NoReturn

from rlalloc.errors import PluginError


def no_plugin_fails(error: PluginError) -> NoReturn:
    """Be told of a plug-in that failed, which is a failure of the test. Raises PluginError."""
    raise error
