"""Scripts that nobody means well with, by name: what the submit plugin must read within its time."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Final

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
        "endings of settings": b"_size_node_gpu_steps",
        "options with dots": b"--a.b.c.devices=4 --aaa.bbb.ccc ",
        "echoes": b'echo "a\n',
        "echoes behind blanks": b" " * 60 + b"echo 'torchrun' \n",
        "blanks behind #RLALLOC": b"#RLALLOC" + b" " * 15_900 + b"a\n",
        "blanks behind an echo": b"echo " + b" " * 5_900 + b"x;\n",
        "hashes": b"a #",
        "lines of hashes": b"#" * 215 + b"\n",
        "letters of --deadline": b"d--e",
        "hashes behind blanks": b" " * 60 + b"#",
        "conditions": b"if [ $A -ne $B ]; then\n",
        "changed variables": b"let A-=1; read -r A B C D; --model=$A\n",
        "conditions in arithmetic": b"((A<B)) ",
        "conditions in Python": b'os.environ["A"] == 4\n',
        "variables of Python": b'os.getenv("A" ',
        "names in many places": b"export A export B --model=$A --model=$B ",
        "names inside of others": b"AA BA --model=$A --model=$B ",
        "files": b"a.json ",
        "files that are written": b"> " + b"a" * 50 + b".yaml\n",
        "files for the shell": b". a\nsource b\neval c\n",
        "sentences": b"a . b source c eval d. ",
        "computed names": b"export $a=b\nread a b c d $e\ndeclare -n a=$b\n",
        "plain names": b"export A=1\nlocal a b c d e\n",
        "commands in sentences": b"a read b c d e $f ",
        "evaluations": b"accelerate launch -m lm_eval a;",
        "evaluations in a line": b"lighteval vllm lm_eval ",
        "evaluations in short lines": b"lm_eval\n",
    }
    scripts = {
        f"{name}, {size} bytes": _HEAD + _LAUNCH + _repeated(body, size)
        for name, body in bodies.items()
        for size in (4_000, 16_000)
    }
    scripts |= {f"more than is looked at, {name}": _at_every_limit(body) for name, body in _FILLERS.items()}
    scripts |= {
        f"as much as is read, {name}, {filler}": _filled(text, _FILLERS[filler])
        for name, text in read_in_full().items()
        for filler in ("letters", "lines")
    }
    wrong = {"unknown": b" a" * 195, "reversed": b" gpus=9-1" * 43, "unreadable": b" gpus=1,x" * 43}
    scripts |= {
        f"#RLALLOC words, {name}": _HEAD + b"#RLALLOC" + words + b"\n" + _LAUNCH for name, words in wrong.items()
    }
    scripts |= _between_samples()
    deadlines = {"blanks": b" " * 16_000, "dashes": b" -" * 8_000, "words": b" --deadlin" * 1_600}
    scripts |= {
        f"a deadline behind {name}": _HEAD + b"--deadline\n" + _LAUNCH + b"#SBATCH" + text + b"\n"
        for name, text in deadlines.items()
    }
    scripts["lines of #SBATCH beside a deadline"] = _HEAD + b"--deadline\n" + _LAUNCH + b"#SBATCH\n" * 2_000
    large = {f"{name}, 4 MB": _HEAD + _LAUNCH + bodies[name] * (4_000_000 // len(bodies[name])) for name in _LARGE}
    return scripts | large


def _between_samples() -> dict[str, bytes]:
    """One byte again and again, but others where a fixed choice of samples looks."""
    scripts = {f"all {letter} but the samples": _unseen(_LAUNCH, letter.encode()) for letter in "aefhlmtuvx"}
    ends = {  # of texts that a class is known by, each more often than is looked at
        "l": (
            *("mdeploy serve", "lama-server", "lamafactory-cli", "ightning", "itgpt"),
            *("m_eval", "m-evaluation-harness", "ighteval vllm", "ighteval accelerate"),
        ),
        "t": ("orchrun", "orch.distributed", "rainer.devices", "rain_llm", "rain_gpt", "rtllm-serve", "une run"),
    }
    for letter, texts in ends.items():
        planted = "maxtext\n" + "".join(f"{text} " * 6 for text in texts)
        scripts[f"all {letter} but ends of texts and the samples"] = _unseen(planted.encode(), letter.encode())
    return scripts


def not_all_searched_for() -> bytes:
    """A short script with ends of two texts that begin with its frequent byte, each more often than is looked at."""
    ends = b"xorchrun " * 8 + b"xrainer.devices " * 8 + b"\n"
    return b"#!/bin/sh\n#RLALLOC gpus=1-8\n" + ends + b"tttttttttt a b c d e f\n" * 45


def _unseen(text: bytes, letter: bytes) -> bytes:
    """A script with this text and the letter again and again, but other bytes in the places of the samples.

    These are 32 squares, modulo the length.
    """
    code = bytearray(text + letter * (4_070 - len(text)))
    for number in range(1, 33):
        place = number * number * 37 % len(code)
        if place >= len(text):
            code[place] = 64 + number
    return _HEAD + bytes(code)


_FILLERS: Final = {"letters": b"taboe umid", "short words": b"t m -t W= ", "lines": b"tm taboe umid\n"}


_ASSIGNING: Final = (b"export", b"declare", b"typeset", b"local", b"readonly", b"read", b"mapfile", b"let")


def read_in_full() -> dict[str, bytes]:
    """Scripts with as much of one thing as is read, by its name, and one with some of everything."""
    names = b"ABCDEFGHIJKLMNOPQRST"
    chain = b"".join(b"%c=$%c " % pair for pair in pairwise(names))
    once = b"".join(b"%c=%c " % (name, name) for name in names[:12])
    inside = (b"$A $B $C $D ", b"$E $F ", b"$A ", b"$A ")
    tests = b"".join(b"[ %s]\n((%s))\ntest %s\ncase %s\n" % (each, each, each, each) for each in inside)
    uses = b"".join(b"--model $%c " % name for name in names)
    mixed = b"#RLALLOC a\n" + (b" " * 60 + b"#\n") * 3 + b"echo 'a'\n"
    mixed += b"--nnodes=$((A*B*%d)) " % 7 + b"> a.yaml for a in b; [ $A -ne $B ] getenv('A') == srun -n $C "
    return {
        "variables in a chain": chain + b"".join(b"--model $%c " % name for name in names[:16:2]),
        "options with a variable": once + b"".join(b"--model $%c " % name for name in names[:7]),
        "options with a long value": b"".join(b"--model=%d%s " % (number, b"~!@^?" * 14) for number in range(5)),
        "settings with a long value": b"".join(b"WORLD_SIZE=%d%s " % (number, b":~!@^?" * 3) for number in range(5)),
        "assignments": b"A=1 " * 20 + b"B=1 " * 20 + b"C=1 " * 12 + b"--nnodes $A ",
        "assigned numbers": b"AAA=1 " * 56 + b"--nnodes 2 ",
        "settings named like counts": b"gpu_mem_=1 " * 23,
        "options named like counts": b"--gpu_a_mem 1 " * 23,
        "settings that may be counts": b"".join(b"gpus_%d_=$%c " % (n, names[n]) for n in range(8)),
        "arguments": b"$ { $ { " * 50 + b"${@} .s a.sh . b.sh source c.sh " + once,
        "conditions": tests,
        "changed variables": b"".join(b"read -r a %c " % name for name in names[:8]) + uses[:77],
        "names in many places": b"export A export B " * 9 + uses[:22],
        "names inside of others": b"".join(b"x%cy%cz%c" % ((name,) * 3) * 7 for name in names[:6]) + uses[:66],
        "mpirun": (b"mpirun -n 4" + b" -a bcd" * 45 + b"\\\n\n") * 2,
        "srun": (b"srun -n 4" + b" -a bcd" * 45 + b"\\\n\n") * 2,
        "files for the shell": b"".join(b". $A%d" % n + b"~" * 150 + b"\n" for n in range(2)),
        "short files for the shell": b"".join(b"then source a%d\n'. b%d'\n" % (n, n) for n in range(7)),
        "what eval runs": b"".join(b'eval "$(%s%d` export `%s%d`' % (b"~" * 70, n, b"{}" * 70, n) for n in range(3)),
        "sentences": b"abc = a source a eval . b " * 8 + once[:36],
        "computed names": b"".join(b'\tthen %s abc abc "$a\n' % each for each in _ASSIGNING) + once[:36],
        "plain names": b"export A B C D\n" * 32 + b"read A B C D\n" * 32 + once[:36],
        "commands before a long name": b"export declare typeset local readonly read mapfile readarray let env " * 3
        + b"abcdefghijuvwxyz_" * 76,
        "a long name": b"export declare typeset " + b"abcdefghijuvwxyz_" * 87,
        "long names": (b"export declare typeset " + b"abcdefghijuvwxyz_" * 7 + b"\n") * 10,
        "a long name of odd characters": b"export declare typeset " + b"~!@%^+*?[]{},." * 105,
        "names in sentences": b"abc read b c $f abc export b $a\n" * 10 + once[:36],
        "files": b"".join(b"> %s%d.json %d.yaml %d.toml " % (b"a" * 50, n, n, n) for n in range(3)),
        "conditions in Python": b"os.environ['A'] ==" * 4 + b"getenv('B') <" * 4 + b"world_size ==" * 3 + once[:8],
        "comments": (b" " * 60 + b"#\n") * 19 + b"#\n" * 36,
        "directives": b"#RLALLOC a\n" * 8,
        "right directives": b"#RLALLOC" + b" gpus=1,2,4" * 12 + b"\n",
        "some of everything": mixed + once[:4] + b"".join(b"--model %c$%c " % (n, n) for n in names[:1]),
    }


def _filled(text: bytes, filler: bytes) -> bytes:
    """A script with this text, then one that is slow to search."""
    body = _HEAD + text + b"\n"
    code = body.replace(b"#RLALLOC a\n", b"").replace(b" " * 60 + b"#\n", b"").replace(b"#\n", b"")
    return body + _repeated(filler, 1_510 - len(code)) + b"\ntorchrun a.py\n"


def _at_every_limit(filler: bytes) -> bytes:
    """As much of everything as is looked at, then a text slow to search."""
    comments = b"#RLALLOC a\n" * 15 + b"#\n" * 44 + (b" " * 60 + b"#\n") * 19
    endings = b"trainer. model. torch. torch.distributed. accelerate. pretrain_gpt.py vllm. _size _node _gpu _steps "
    sums = b"".join(b"--nnodes=$((A*B*C*D*E*F*A*B*C*D*E*F*A*B*C*D*%d)) " % number for number in range(3))
    names = b"ABCDEFGHIJKLMNO"
    options = b"".join(b"--model $%c%s " % (names[number % len(names)], b"=" * number) for number in range(16))
    pairs = zip(names, names[1:] + names[:1], strict=True)
    assigned = b"".join(b"%c=$%c %c=$%c " % (one, other, one, other) for one, other in pairs)
    tests = b"".join(b"[ $%c $%c $%c ]" % (one, one, one) for one in names[:3]) + b"((A<B)) " * 3 + b"getenv('A' " * 8
    rest = b"> a.yaml " * 3 + b"for a in " * 7 + b"srun " * 3 + b"echo 'a'\n" * 8
    code = endings + sums + options + assigned + tests + rest
    return _HEAD + comments + code + _repeated(filler, 4_080 - len(code))


def _repeated(body: bytes, size: int) -> bytes:
    """The body again and again, with the number of the time where it says %d."""
    times = range(size // len(body))
    return b"".join(body.replace(b"%d", b"%d" % number) for number in times)[:size]


def hostile_fields() -> dict[str, dict[str, Any]]:
    """What a job may have beside its script, by name: each as much as is looked at, and all of it."""
    tres = ("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "gres")
    names = ("GPUS", "GPUS_PER_NODE", "GPUS_PER_TASK", "NTASKS", "NPROCS", "NTASKS_PER_NODE", "CPUS_PER_GPU")
    inherited = {f"SLURM_{name}": "7" for name in (*names, "MEM_PER_NODE", "TRES_BIND", "TRES_PER_TASK")}
    fields: dict[str, dict[str, Any]] = {
        "lists of GRES": dict.fromkeys(tres, "gres:gpu_a:1," * 5) | {"tres_per_socket": "gpu:1"},
        "blanks in lists of GRES": dict.fromkeys(tres, " " * 90 + "gpu,") | {"tres_per_socket": "gpu:1"},
        "partitions": {"partition": "a," * 60},
        "a long name of a partition": {"partition": "a" * 300},
        "a long account": {"account": "A" * 200},
        "a comment of right words": {"comment": "rlalloc:" + " gpus=1,2,4" * 12},
        "a comment of wrong words": {"comment": "rlalloc:" + " a" * 12},
        "blanks in a comment": {"comment": "rlalloc: " + " " * 5_000 + "a"},
        "an ordinary comment": {"comment": " " * 50_000},
        "an admin comment": {"admin_comment": "rlalloc:v" * 20},
        "inherited sizes": {
            "environment": inherited | {"SLURM_SET_BY_RLALLOC": "".join(f" {name}=7" for name in inherited)}
        },
    }
    together: dict[str, Any] = {}
    for each in ("lists of GRES", "partitions", "an admin comment", "a comment of right words", "inherited sizes"):
        together |= fields[each]
    too_long = {"partition": "a," * 20_000, "account": "A" * 60_000, "admin_comment": "r" * 60_000}
    return fields | {"all together": together, "too long": dict.fromkeys(tres, "gpu_a," * 2_000) | too_long}


def corpus() -> dict[str, bytes]:
    """The scripts of scripts/, by name."""
    folder = Path(__file__).parent / "scripts"
    return {path.stem: path.read_bytes() for path in sorted(folder.glob("*.sh"))}
