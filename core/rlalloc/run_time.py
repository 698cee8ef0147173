"""What is expected of a job's run time."""

import msgspec


class RunTimeEstimate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Quantiles of a job's run time [s] in the size that it asked for: 10, 50 and 90 %.

    ``source`` says in a few words what it rests on, for people.
    """

    low_s: float
    median_s: float
    high_s: float
    source: str
