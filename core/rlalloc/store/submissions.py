"""Which decided submission a run of a job belongs to."""

from collections.abc import Mapping


def submission_of(run_submitted_s: int, user: str | None, decided: Mapping[int, str]) -> int | None:
    """The submit second under which the job of a run was decided; None if it was not.

    A requeue gives a job another submit time: then the latest earlier submission of the same user counts, since Slurm
    reuses job ids; where ``user`` is None, that of anybody. ``decided`` are the users of the decided submissions of
    the job's id, by submit second.
    """
    if run_submitted_s in decided:
        return run_submitted_s
    earlier = (each_s for each_s, whose in decided.items() if each_s < run_submitted_s and user in {whose, None})
    return max(earlier, default=None)
