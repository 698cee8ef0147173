"""The facts that differ between versions of Slurm and that the code needs."""

import msgspec


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What one generation of Slurm prints, and what it can be asked to do.

    No field has a default: a new one has to be answered for every generation, from its recordings or on a real site.
    Facts that a value shows by itself are not here. Numbers in JSON, for example, are plain or ``{set, infinite,
    number}`` within one schema, and DataParserParameters in slurm.conf changes which.
    """

    release: str
    """The release that was tried, such as ``24.11``; its recordings are in tests/daemon/fixtures/slurm-24.11."""

    holds_from: str
    """The first release that these facts hold for: ``release`` itself, or an older one where Slurm's release notes
    or sources say so. A version between two generations counts as the older one."""

    json_option: str
    """What makes squeue, sinfo and scontrol print JSON with every field that json_reader.py reads."""

    nodes_command: tuple[str, ...]
    """The command that prints nodes as JSON, without ``json_option``."""

    json_tells_cpus_per_task: bool
    """Whether squeue's JSON has a job's CPUs per task. Where it does not, a column of squeue is read, too."""

    exclusive_column: str
    """The column of squeue that tells --exclusive."""

    exclusive_word: str
    """What ``exclusive_column`` shows of a job that takes whole nodes."""

    new_cpus_per_task_take_sockets: bool
    """Whether a job gets all sockets of its nodes once its CPUs per task have been changed (with CR_Socket)."""

    skipped_forms: frozenset[str]
    """Forms of submission, by their names in docs/reference/messages.md, that any update breaks in this generation.

    rlallocd writes them into the intercept file, and rlalloc.lua does not defer such jobs.
    """
