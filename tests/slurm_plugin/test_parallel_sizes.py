"""Each usual way to write a parallel size is read, and as what. Where it is not, a job may get an illegal size."""

from typing import Final, Literal, NamedTuple

import pytest

from rlalloc.scripts.consent import Consent, consent_of
from rlalloc.scripts.script_words import read_script

from .test_script_corpus import CONFIG, INTERPRETERS, read_alike

Effect = Literal["rigid", "parallel", "experts", "spread", "none"]
"""``spread``: the model is spread over the GPUs, so that the job gets no fewer."""
LAUNCHER: Final = "torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE train.py --global-batch-size 64 --micro-batch-size 1"
BARE: Final = ("--{} 8", "--{}=8", "-{} 8", "{}=8", "model.{}=8", "--model.{} 8", "{}: 8", '"{}": 8,')
SIZE: Final = ("--{}-size 8", "--{}_size=8", "{}_size=8", "model.{}_size=8", "--model.{}_size 8", "{}_size: 8")
DEGREE: Final = tuple(form.replace("size", "degree") for form in SIZE)
LONG: Final = (
    *("--{}-parallel-size 8", "--{}_parallel_size=8", "{}_parallel_size=8", "--{}-parallel-degree 8"),
    *("{}_parallel_degree: 8", "--{}-model-parallel-size 8", "model.{}_model_parallel_size=8", "--{}-parallel 8"),
)


class Effects(NamedTuple):
    """What a kind of parallelism does as ``--x 8``, ``--x-size 8`` and ``--x-degree 8``."""

    bare: Effect
    size: Effect
    degree: Effect


KINDS: Final = {
    "tp": Effects("rigid", "rigid", "parallel"),
    "pp": Effects("rigid", "rigid", "parallel"),
    "dp": Effects("rigid", "rigid", "rigid"),
    "cp": Effects("parallel", "parallel", "parallel"),
    "sp": Effects("parallel", "parallel", "parallel"),
    "mp": Effects("parallel", "parallel", "parallel"),
    "ring": Effects("parallel", "parallel", "parallel"),
    "ulysses": Effects("parallel", "parallel", "parallel"),
    "ep": Effects("experts", "experts", "experts"),
    "fsdp": Effects("spread", "rigid", "rigid"),
    "hsdp": Effects("spread", "rigid", "rigid"),
    "ddp": Effects("none", "rigid", "rigid"),  # --ddp is a switch
    "some": Effects("none", "none", "rigid"),  # whatever its name, a degree is that of a parallelism
}
NAMES: Final = ("tensor", "pipeline", "data", "context", "sequence", "expert", "model", "ulysses", "ring")
SHORT: Final = ("tp", "pp", "dp")
"""Those that have an option with one dash."""


def lines(effects: Effects, kind: str) -> dict[str, Effect]:
    forms = [form for form in BARE if not form.startswith("-{") or kind in SHORT]
    return {
        form.format(kind): effect
        for each, effect in ((forms, effects.bare), (SIZE, effects.size), (DEGREE, effects.degree))
        for form in each
    }


EXPECTED: Final = {line: effect for kind, effects in KINDS.items() for line, effect in lines(effects, kind).items()}
SWITCH: Final = "--sequence-parallel 8"
"""Megatron's option has no value."""
OF_NAMES: Final = [line for name in (*NAMES, *KINDS) for form in LONG if (line := form.format(name)) != SWITCH]


def consent(line: str) -> Consent:
    words = read_script(f"{LAUNCHER}\n{line}\n".encode(), CONFIG.word_table).words
    return consent_of(words, CONFIG.scripts, job_class="train", task_per_gpu=False)


def effect_of(found: Consent) -> Effect:
    if not found.moldable:
        return "rigid"
    by_size: dict[tuple[int, int], Effect] = {(8, 1): "parallel", (1, 8): "experts"}
    return by_size.get((found.parallel, found.experts), "spread" if found.shards else "none")


@pytest.mark.parametrize("line", EXPECTED)
def test_a_parallel_size(line: str) -> None:
    """Once, --pp 4, --dp 8, --cp-degree 8 and tp=8 were not read: such jobs could get any count."""
    assert effect_of(consent(line)) == EXPECTED[line], consent(line).sign


@pytest.mark.parametrize("line", OF_NAMES)
def test_a_parallel_size_by_its_long_name(line: str) -> None:
    """The table has the usual ones; the others have ``parallel`` in their name."""
    assert effect_of(consent(line)) in ("rigid", "parallel", "experts"), line


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_the_plugin_reads_them_alike(interpreter: str) -> None:
    for line, words in read_alike(interpreter, [line.encode() for line in (*EXPECTED, *OF_NAMES)]):
        assert any(word.endswith("=8") for word in words) == (EXPECTED.get(line.decode()) != "none"), line


@pytest.mark.parametrize(
    "name", ["fsdp-degree", "fsdp-size", "hsdp-degree", "dp-shard", "data-parallel-shard-degree"]
)
def test_a_model_spread_over_all_gpus_that_resumes_is_rigid(name: str) -> None:
    """-1 stands for all GPUs that there are."""
    assert "resumes a model" in consent(f"--{name} -1 --resume ckpt").sign
    spread = consent(f"--{name} -1")
    assert spread.moldable
    assert spread.shards
