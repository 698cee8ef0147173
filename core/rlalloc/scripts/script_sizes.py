"""What a size in a batch script is: a word that follows the allocation, a number, or a formula. Pure functions."""

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from typing import Final, Literal

from rlalloc.job import Allocation

Kind = Literal["follows", "number", "unknown"]

_VARIABLE: Final = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_IN_ARITHMETIC: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+")
_NUMBERS: Final = re.compile(r"-?(?:[A-Za-z0-9_.-]+:)*[0-9][0-9,.-]*")
_DEFAULT_NUMBER: Final = re.compile(r"\$\{[A-Za-z0-9_]+:?-([0-9]+)\}?")
_DEFAULT: Final = r"[^{}]*(?:\{[^{}]*\}[^{}]*)*"
_EXPANSION: Final = re.compile(
    rf"\$[A-Za-z_][A-Za-z0-9_]*|\$\{{[A-Za-z_][A-Za-z0-9_]*(?:\}}|\Z|:?[-=]{_DEFAULT}(?:\}}|\Z))"
)
"""``$N``, ``${N}`` and ``${N:-8}``: what leaves the value of a variable alone."""
_AROUND: Final = re.compile(r"[_*:{}]*(?:[A-Za-z][A-Za-z0-9_.-]*:)*[_*:{}]*")
_CUTS_A_LIST: Final = re.compile(
    r"[0-9]|\b(?:head|tail|sed|cut|shuf|min|bc|dc|expr|seq)\b|grep\b.* -(?:[A-Za-z]*v|-invert)"
)
_ALL_NODES: Final = re.compile(
    r"\$\(_*(?:[A-Za-z0-9_./-]*/)?scontrol_+show_+hostnames?(?:_+\$\{?SLURM_(?:JOB_)?NODELIST\}?)?(?:_+2_/dev/null)?"
    r"(?:_+(?:sort|sort_+-u|uniq))*_+wc_+(?:-[lw]|--lines|--words)_*\)"
)
"""The one command with scontrol that counts all nodes of the job; blanks, quotes and ``|`` are ``_``."""
_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Mult: operator.mul,
    ast.Sub: operator.sub,
    ast.Div: operator.truediv,
}
_MOST_DIGITS: Final = 9
_SHORTEST_PROGRAM: Final = 6
"""A word of ``follows`` this long is looked for inside of ``$(…)``: nvidia-smi, not all."""


def kind_of(value: str, follows: Collection[str], beside: Collection[str] = ()) -> Kind:
    """Say whether a value follows the allocation, is a number, or can be anything.

    ``beside``: variables that it may name as well, as in ``$((SLURM_NNODES*SLURM_GPUS_ON_NODE))``. An expansion that
    changes the value (``${SLURM_GPUS_ON_NODE%1}``), or text beside it, can be anything. A command in
    ``$(…)`` follows if it names a variable or a program that does, and nothing that could cut their list.
    """
    if value in follows and not value.startswith("$"):
        return "follows"
    if value.startswith("$(("):
        named = _IN_ARITHMETIC.findall(value)
        if any(name.isdigit() for name in named):
            return "number"
    elif value.startswith("$("):
        words = [word for word in follows if len(word) >= _SHORTEST_PROGRAM]
        return "follows" if any(word in value for word in words) and not _cuts_a_list(value) else "unknown"
    else:
        named = _VARIABLE.findall(value)
    if not named:
        return "number" if _NUMBERS.fullmatch(value) else "unknown"
    variables = {f"${name}" for name in named}
    is_plain = value.startswith("$((") or _AROUND.fullmatch(_EXPANSION.sub("", value)) is not None
    if is_plain and variables <= {*follows, *beside} and not variables.isdisjoint(follows):
        return "follows"
    return "number" if _DEFAULT_NUMBER.fullmatch(value) else "unknown"


def _cuts_a_list(command: str) -> bool:
    """Whether a command may pick some of what it lists: by a number, or by a program for that.

    scontrol lists anything; only the whole list of the job's nodes counts.
    """
    if "scontrol" in command:
        return _ALL_NODES.fullmatch(command) is None
    plain = re.sub(r"python[0-9.]+|2_/dev/null", "", command)
    return _CUTS_A_LIST.search(re.sub(r"[_$]", " ", plain)) is not None


def whole_number(value: str | None) -> int | None:
    """The whole number above 0 that a value is, else None."""
    if value is None or re.fullmatch(rf"[1-9][0-9]{{0,{_MOST_DIGITS - 1}}}", value) is None:
        return None
    return int(value)


def is_formula(value: str | None) -> bool:
    """Whether a value is shell arithmetic."""
    return value is not None and value.startswith("$((")


def formula_value(formula: str, size: Allocation, *, task_per_gpu: bool) -> Fraction | None:
    """What shell arithmetic such as ``$((64/SLURM_GPUS_ON_NODE))`` gives in a job of this size.

    None where it cannot be read, or where the shell would round: then it is not what its user meant.
    """
    text = re.sub(r"[${}]", "", formula.removeprefix("$((").removesuffix("))"))
    text += ")" * (text.count("(") - text.count(")"))
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    value = _evaluated(tree.body, _sizes_of(size, task_per_gpu=task_per_gpu))
    return value if value is not None and value >= 1 and value.denominator == 1 else None


def _sizes_of(size: Allocation, *, task_per_gpu: bool) -> Mapping[str, int]:
    per_node = {"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "RLALLOC_GPUS_PER_NODE"}
    in_all = {"SLURM_GPUS", "RLALLOC_GPUS"}
    if task_per_gpu:
        per_node |= {"SLURM_NTASKS_PER_NODE"}
        in_all |= {"SLURM_NTASKS", "SLURM_NPROCS"}
    nodes = {"SLURM_NNODES", "SLURM_JOB_NUM_NODES", "RLALLOC_NODES"}
    return (
        dict.fromkeys(per_node, size.gpus_per_node)
        | dict.fromkeys(in_all, size.gpus)
        | dict.fromkeys(nodes, size.nodes)
    )


def _evaluated(node: ast.expr, sizes: Mapping[str, int]) -> Fraction | None:
    """The value of an expression; None where a part of it is not known, is not allowed, or would be rounded."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    if isinstance(node, ast.Name):
        return Fraction(sizes[node.id]) if node.id in sizes else None
    if not isinstance(node, ast.BinOp) or type(node.op) not in _OPERATIONS:
        return None
    left, right = _evaluated(node.left, sizes), _evaluated(node.right, sizes)
    if left is None or right is None or (isinstance(node.op, ast.Div) and right == 0):
        return None
    found = _OPERATIONS[type(node.op)](left, right)
    return found if found.denominator == 1 else None
