"""Times and durations as people read them."""

from datetime import datetime


def local_time(epoch_s: float | None) -> str:
    """A time as people at this site write it; a dash for none, the bare number for one that no calendar has."""
    if not epoch_s:
        return "-"
    try:
        return datetime.fromtimestamp(epoch_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return f"{epoch_s:g} s after 1970"


def duration(seconds: float | None) -> str:
    """Seconds as ``1:02:03``; a dash for none."""
    if seconds is None:
        return "-"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"
