"""The site's rlalloc.yaml: the file that ships with the project, with this site's paths and compressed times."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rlalloc.job import Mode

SHIPPED: Final = Path(__file__).resolve().parents[2] / "etc" / "rlalloc.yaml"
GRACE_S: Final = 10
HEARTBEAT_S: Final = 4
HOUR_S: Final = 20
"""Seconds of the demo that stand for an hour."""
MIN_CPUS_PER_GPU: Final = 8.0
"""This site's administrator knows that no job here needs more. The shipped rule has no such floor."""


def demo_values(directory: Path, mode: Mode) -> dict[str, str]:
    """The values that differ from the shipped file, by section and key."""
    return {
        "mode": mode,
        "rules.mode": "enforce",
        "rules.min_cpus_per_gpu": f"{MIN_CPUS_PER_GPU}",
        "nodes.task_prolog": "trusted",  # one script of the site serves all nodes
        # Where a real site has /run/rlalloc and /var/lib/rlalloc.
        "runtime_directory": str(directory / "run" / "rlalloc"),
        "agent.endpoint": f"ipc://{directory}/run/rlalloc/agent.sock",
        "store.url": f"sqlite:///{directory}/rlalloc/store.sqlite",
        "store.key_file": str(directory / "rlalloc" / "journal.key"),
        "policy.directory": str(directory / "rlalloc" / "policies"),
        # Jobs of seconds stand for jobs of hours.
        "grace_s": str(GRACE_S),
        "agent.deadline_s": "2.0",  # the demo may have to share its cores
        "daemon.poll_s": "2.0",
        "daemon.outcomes_every_s": "3.0",
        "daemon.heartbeat_s": f"{HEARTBEAT_S:.1f}",
        "history.first_days": "0",  # a new site has no past
        "metrics.listen": '""',
        "objective.horizon_s": f"{4 * HOUR_S:.1f}",
    }


def demo_configuration(directory: Path, mode: Mode) -> str:
    """The text of rlalloc.yaml for a site in ``directory``."""
    return with_values(SHIPPED.read_text(encoding="utf-8"), demo_values(directory, mode))


def with_values(text: str, values: Mapping[str, str]) -> str:
    """Replace values in a YAML text; comments and everything else stay.

    A key is ``key`` or ``section.key``, the section being the last line without indentation. Raises KeyError with the
    unknown keys.
    """
    left = dict(values)
    section = ""
    lines = []
    for line in text.splitlines():
        found = re.match(r"(?P<indent>[ -]*)(?P<key>\w+):(?P<value> [^#]*?)?(?P<rest>\s*(#.*)?)$", line)
        if found is None:
            lines.append(line)
            continue
        if not found["indent"]:
            section = found["key"]
        name = f"{section}.{found['key']}" if found["indent"] else found["key"]
        value = left.pop(name, None)
        lines.append(line if value is None else f"{found['indent']}{found['key']}: {value}{found['rest']}")
    if left:
        raise KeyError(", ".join(left))
    return "\n".join([*lines, ""])
