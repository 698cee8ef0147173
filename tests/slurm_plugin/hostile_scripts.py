"""Scripts that nobody means well with, by name: what the submit plugin must read within its time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_HEAD: Final = b"#!/bin/sh\n"
_LARGE: Final = ("one line", "short lines", "blanks", "#RLALLOC lines")
_LAUNCH: Final = b"torchrun --nproc_per_node=gpu train.py\n"


def hostile_scripts() -> dict[str, bytes]:
    """Return them by name: as long as a script that is read as a whole, longer, and some of slurmctld's 4 MB."""
    bodies = {
        "one line": b"x",
        "a launcher's first letter": b"t",
        "a launcher's first letters": b"torchru ",
        "half of them a launcher's letter": b"taboetum",
        "blanks": b" ",
        "short lines": b"a\n",
        "short lines after a blank": b" a\n",
        "comment lines": b"#\n",
        "indented comments": b" " * 100 + b"#torchrun\n",
        "dashes": b"-",
        "pairs of dashes": b"--a ",
        "options": b"--nproc_per_node=4 ",
        "options with own values": b"--nproc_per_node=$A%d ",
        "options with many letters": b"--nproc_per_node=" + b"]" * 180 + b" ",
        "arithmetic": b"--nproc_per_node=$((A*B*C*D*E*F*G*H*I*J*K*L*M*%d)) ",
        "assignments": b"A=$A --nproc_per_node $A ",
        "a chain of variables": b"V%d=$V%d --nproc_per_node $V%d\n",
        "settings": b"WORLD_SIZE=",
        "many settings": b"WORLD_SIZE=%d trainer.devices=%d batch_size=%d ",
        "srun": b"srun -n 4 ",
        "launchers": b"torchrun ",
        "#RLALLOC lines": b"#RLALLOC gpus=1-8\n",
        "#RLALLOC without a word": b"#RLALLOC\n",
        "#RLALLOC in one line": b"#RLALLOC a ",
        "#SBATCH with dashes": b"#SBATCH - --deadline\n",
        "quotes": b"\"'`",
        "unclosed": b'--nproc_per_node "$(',
        "NUL bytes": b"\0",
        "all bytes": bytes(range(256)),
        "patterns": b"%(.-)*[",
    }
    scripts = {
        f"{name}, {size} bytes": _HEAD + _LAUNCH + _repeated(body, size)
        for name, body in bodies.items()
        for size in (5_900, 16_000)
    }
    large = {f"{name}, 4 MB": _HEAD + _LAUNCH + bodies[name] * (4_000_000 // len(bodies[name])) for name in _LARGE}
    return scripts | large


def _repeated(body: bytes, size: int) -> bytes:
    """The body again and again, with the number of the time where it says %d."""
    times = range(size // len(body))
    return b"".join(body.replace(b"%d", b"%d" % number) for number in times)[:size]


def corpus() -> dict[str, bytes]:
    """The scripts of scripts/, by name."""
    folder = Path(__file__).parent / "scripts"
    return {path.stem: path.read_bytes() for path in sorted(folder.glob("*.sh"))}
