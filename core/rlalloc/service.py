"""What systemd wants to hear from a service of Type=notify; silence where there is no systemd."""

import os


def notify(state: str) -> None:
    """Send ``state`` (READY=1, WATCHDOG=1, STATUS=…) to systemd, if it started this process."""
    if "NOTIFY_SOCKET" not in os.environ:
        return
    try:
        import systemd.daemon
    except ImportError:
        return
    systemd.daemon.notify(state)
