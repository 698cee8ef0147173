"""The commands of the pages in docs/admin, run as they stand there: what an administrator is told to type is tested.

The site has the packages where the pages say that they are, apt asks nothing, and all else is as on the page.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from markdown_it import MarkdownIt

from slurm_testbed.waiting import stretched
from tests.systemd.conftest import PROJECT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.systemd.systemd_container import Container

CLONE: Final = "/srv/clone"
"""Where the administrator stands: in a clone of the project, with packages in build/packages."""
LIMIT_S: Final = 400.0


def steps(page: str, heading: str, containing: str) -> list[str]:
    """The commands of a block, without comments: the one below a heading of docs/admin/``page`` with these words."""
    blocks, inside, is_heading = [], False, False
    for token in MarkdownIt().parse((PROJECT / "docs/admin" / page).read_text()):
        if is_heading:
            inside = token.content == heading
        is_heading = token.type == "heading_open"
        if inside and token.type == "code_block" and containing in token.content:
            blocks.append(token.content)
    (block,) = blocks
    without_comments = (re.sub(r"(^|\s)#.*", "", line).strip() for line in block.splitlines())
    return [command for command in without_comments if command]


def follow(container: Container, commands: list[str], packages: Path | None = None) -> str:
    """Type the commands; return all that they print. ``packages`` are what was built.

    The doctor may warn, and is asked again while what has just started is not ready, as it says itself; so is status.
    """
    if packages is not None:
        container.run("mkdir", "-p", f"{CLONE}/build")
        container.run("ln", "-sfn", str(packages), f"{CLONE}/build/packages")
        container.run("tee", "/etc/apt/apt.conf.d/90assume-yes", text='APT::Get::Assume-Yes "true";\n')
    told = ""
    for command in commands:
        typed = f"export DEBIAN_FRONTEND=noninteractive; cd {CLONE if packages else '/'}; {{ {command}; }} 2>&1"
        good = (0, 3) if command.startswith("rlalloc doctor") else (0,)
        asks = command.startswith(("rlalloc doctor", "rlalloc status"))
        until_s = time.monotonic() + (stretched(60) if asks else 0)
        while True:
            done = container.run("bash", "-c", typed, check=False, limit_s=LIMIT_S)
            if done.returncode in good:
                break
            assert time.monotonic() < until_s, f"{command}: exit {done.returncode}\n{done.stdout}"
            time.sleep(1)
        told += done.stdout
    return told
