"""What can go wrong with a testbed site.

::

    TestbedError
    ├── InvalidSpecError       the SiteSpec (or a name in a call) makes no sense
    ├── MissingSoftwareError   a program is not installed
    ├── ReleaseUnavailableError  Slurm of another Debian release cannot be had here
    ├── NotPermittedError      not root, or the kernel forbids a mount
    ├── SiteExistsError        a site of that name is there already
    ├── SiteNotFoundError      no site of that name
    ├── DaemonFailedError      a daemon died or did not become ready
    ├── CommandFailedError     a command exited non-zero or ran past its time limit
    └── WaitTimedOutError      a condition did not come true in time
"""

from __future__ import annotations


class TestbedError(Exception):
    """Root of the tree; its message says what to do next."""

    __test__ = False  # pytest would take the name for a test class


class InvalidSpecError(TestbedError):
    """A value of a SiteSpec, or a name in a call, cannot work."""


class MissingSoftwareError(TestbedError):
    """Programs are not installed; the message has the apt-get line."""


class ReleaseUnavailableError(TestbedError):
    """Slurm of another Debian release cannot be unpacked here; a test that wants it is skipped."""


class NotPermittedError(TestbedError):
    """The step needs root or a capability that this process lacks."""


class SiteExistsError(TestbedError):
    """A site of that name exists, running or crashed."""


class SiteNotFoundError(TestbedError):
    """No site of that name exists under the root directory."""


class DaemonFailedError(TestbedError):
    """A daemon died or did not become ready; the message has its log's tail."""


class CommandFailedError(TestbedError):
    """A command failed or ran past its time limit; the message has its output."""


class WaitTimedOutError(TestbedError):
    """What was waited for did not come."""
