"""How scripts are read, by slurmctld's Lua and by Python alike; what is concluded; that no script costs much."""

from __future__ import annotations

import re
import resource
import shutil
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlalloc.config import Config, config_as_yaml, parse_config
from rlalloc.job import Bounds, JobClass
from rlalloc.scripts.consent import Consent, consent_of
from rlalloc.scripts.script_class import class_of, directive_words
from rlalloc.scripts.script_reading import Reading
from rlalloc.scripts.script_rules import ScriptRules
from rlalloc.scripts.script_words import TOO_LONG, ScriptWords, read_long_script, read_script, words_from_tag
from rlalloc_cli.check import report_on
from rlalloc_cli.sbatch_request import sbatch_lines
from rlallocd.submissions.job_tag import read_tag

from .hostile_scripts import corpus, hostile_fields, hostile_scripts, not_all_searched_for
from .lua_reader import Read, read_scripts

ROOT: Final = Path(__file__).resolve().parents[2]
CONFIG: Final = Config()
WIDE: Final = parse_config(
    "rules: [{name: llm, bounds: {moldable: {gpus_factor: [0.5, 2], batch_may_change: true, "
    "fit_may_be_unknown: true}}}]",
    "wide",
)
FLOORS: Final = parse_config(
    "rules: [{name: llm, bounds: {min_cpus_per_gpu: 2, min_mem_mib_per_gpu: 8192, "
    "moldable: {gpus_factor: [0.5, 2]}}}]",
    "floors",
)
EXPECTED_DIRECTIVES: Final = {"directive-class": [1, 2, 4]}
"""The counts of scripts with a #RLALLOC line, which wins."""
SCRIPTS: Final = corpus()
EXPECTED: Final[dict[str, dict[str, Any]]] = tomllib.loads(
    (Path(__file__).parent / "scripts" / "expected.toml").read_text(encoding="utf-8")
)
INTERPRETERS: Final = [name for name in ("lua5.1", "lua5.4") if shutil.which(name)]


@pytest.fixture(params=INTERPRETERS)
def interpreter(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def consent_for(name: str) -> Consent:
    expected = EXPECTED[name]
    job_class: JobClass = expected["class"] if expected["class"] != "none" else "train"
    words = read_long_script(SCRIPTS[name], CONFIG.word_table).words
    return consent_of(words, CONFIG.scripts, job_class=job_class, task_per_gpu=expected.get("task_per_gpu", False))


def gpus_of(consent: Consent) -> str:
    if consent.moldable:
        return "kept" if consent.batch_sign else "moldable"
    return "unknown" if consent.sign == "the script does not show where its size comes from" else "rigid"


def bounds_under(config: Config, name: str) -> Bounds:
    """The bounds of the script's job on nodes of 8 A100; without #SBATCH lines, it asks for one of them.

    With --exclusive or --overcommit, it would keep its request, whatever the script shows.
    """
    script = re.sub(rb" --(?:exclusive|overcommit)\b", b"", SCRIPTS[name])
    if not sbatch_lines(script):
        tasks = 8 if EXPECTED[name].get("task_per_gpu") else 1
        script = b"#!/bin/sh\n#SBATCH --gpus-per-node=8 --ntasks-per-node=%d\n" % tasks + script
    bounds = report_on(script, config, 8, "a100-80").bounds
    assert bounds is not None
    return bounds


def test_the_corpus_is_whole() -> None:
    assert set(EXPECTED) == set(SCRIPTS)
    assert len(SCRIPTS) >= 140


@pytest.mark.parametrize("name", EXPECTED)
def test_consent(name: str) -> None:
    """Every line of the table holds; of a script that takes its size from Slurm, what is not named is not there."""
    expected, consent = EXPECTED[name], consent_for(name)
    assert gpus_of(consent) == expected["gpus"], consent.sign
    absent: dict[str, Any] = {"cpus_fixed": False, "memory_fixed": False, "states_workers": False}
    absent |= {"parallel": 1, "experts": 1, "whole_batch": [], "gpu_batch": None, "accumulation": None}
    told = expected if not consent.moldable else absent | expected
    batch = consent.batch
    read = msgspec.structs.asdict(consent)
    read |= {"whole_batch": list(batch.whole), "gpu_batch": batch.gpu, "accumulation": batch.accumulation}
    for key in set(told) & set(read):
        assert read[key] == told[key], key


CLASSED: Final = [name for name, expected in EXPECTED.items() if expected["class"] != "none"]


@pytest.mark.parametrize("name", CLASSED)
def test_the_counts_that_its_job_may_get(name: str) -> None:
    """Under the shipped rule, and where a site lets batches change and models be unknown."""
    expected = EXPECTED[name]
    shipped, wide = bounds_under(CONFIG, name), bounds_under(WIDE, name)
    asked = EXPECTED_DIRECTIVES.get(name)
    if asked is not None:
        assert list(shipped.gpu_counts) == asked
    elif expected["gpus"] == "moldable":
        assert list(shipped.gpu_counts) == expected["counts"], shipped.script
        assert list(wide.gpu_counts) == expected["wide"], wide.script
    else:
        assert shipped.gpus.minimum_from == shipped.gpus.maximum_from == "request", shipped.script
        assert len(shipped.gpu_counts) == 1
        if expected["gpus"] == "kept":
            assert list(wide.gpu_counts) == expected.get("wide", [4, 8]), wide.script
        else:
            assert wide.gpu_counts == shipped.gpu_counts, wide.script


@pytest.mark.parametrize("name", CLASSED)
def test_the_cpus_and_memory_that_its_job_may_get(name: str) -> None:
    """The shipped rule lowers none; a site's floor holds where the script names no CPUs and no workers."""
    if name in EXPECTED_DIRECTIVES:
        return
    shipped, floors = bounds_under(CONFIG, name), bounds_under(FLOORS, name)
    consent = consent_for(name)
    for bound in (shipped.cpus_per_gpu, shipped.mem_mib_per_gpu):
        assert bound.minimum == bound.maximum
    kept = EXPECTED[name].get("cpus_fixed", False) or EXPECTED[name].get("states_workers", False)
    if consent.moldable or kept:
        asked = floors.cpus_per_gpu.maximum
        assert floors.cpus_per_gpu.minimum == (asked if kept else min(2.0, asked))
    if consent.moldable:
        asked = floors.mem_mib_per_gpu.maximum
        assert floors.mem_mib_per_gpu.minimum == (
            asked if EXPECTED[name].get("memory_fixed", False) else min(8192.0, asked)
        )


def test_how_much_of_the_corpus_consents() -> None:
    """As docs/admin/rules.md says it, so that an administrator knows what to expect."""
    kinds = Counter(EXPECTED[name]["gpus"] for name in CLASSED)
    text = " ".join((ROOT / "docs" / "admin" / "rules.md").read_text(encoding="utf-8").split())
    assert f"{kinds['moldable']} of the {len(CLASSED)} LLM scripts in our tests consent" in text
    assert f"{kinds['kept']} more take their size from Slurm, but do not state their global batch" in text


def test_lua_and_python_read_alike(interpreter: str) -> None:
    """Class, words and fingerprint of the corpus; a script of no class is left alone."""
    for (name, script), read in zip(SCRIPTS.items(), read_scripts(interpreter, list(SCRIPTS.values())), strict=True):
        assert read.errors == ()
        assert read.tag.get("class", "none") == EXPECTED[name]["class"], name
        if read.tag:
            assert_alike(read, read_script(script, CONFIG.word_table))


EVALUATIONS: Final = {
    b"lm_eval --model hf --model_args pretrained=allenai/OLMo-7B": "serve",
    b"accelerate launch --multi_gpu \\\n  -m lm_eval --model hf": "serve",
    b"accelerate launch --multi_gpu \\\r\n  -m lm_eval": "serve",
    b"srun accelerate launch -m lighteval accelerate 'pretrained=OLMo' 'a|b'": "serve",
    b"python lm_eval/main.py": "serve",
    b"vllm serve OLMo & lm_eval --model local-completions": "serve",
    b"torchrun a.py && accelerate launch -m lm_eval": "train",
    b"torchrun a.py\nlm_eval": "train",
    b"torchrun a.py\r\nlm_eval\r": "train",
    b"source lm_eval/bin/activate; torchrun a.py": "train",
    b"torchrun a.py --output lm_eval_7b": "train",
    b"torchrun a.py --x " + b"y" * 400 + b" lm_eval": "train",
    b"lm_eval a\n" * 8 + b"torchrun -m lm_eval": "train",
}
"""The program of an evaluation, and what launches it, show no training."""


def test_the_class_of_an_evaluation(interpreter: str) -> None:
    for (script, job_class), read in zip(
        EVALUATIONS.items(), read_scripts(interpreter, list(EVALUATIONS)), strict=True
    ):
        assert read.tag.get("class") == class_of(script, CONFIG.commands) == job_class, script


def test_python_finds_the_same_class_and_directives(interpreter: str) -> None:
    scripts = [
        *SCRIPTS.values(),
        *hostile_scripts().values(),
        b"#RLALLOC gpus=1-4\r\n#RLALLOC\tlaunch=srun\n#RLALLOCx\n",
        *(b"#RLALLOC gpus=4\n" * lines for lines in (16, 17)),
        *(b"#RLALLOC class=serve\n" + b'echo "#RLALLOC gpus=1"\n' * lines for lines in (16, 31, 32)),
        *(b"#RLALLOC class=serve\n" * lines + b"#RLALLOC off\n" for lines in (15, 16)),
        *(b"#RLALLOCx\n" * lines + b"#RLALLOC off" for lines in (31, 32)),
        *(b"grep '^#RLALLOC' *.sh\n" * lines for lines in (32, 33)),
        b"cat > job.sh <<EOF\n  #RLALLOC gpus=1\nEOF\n" * 17,
        b"#RLALLOC " + b" " * 900 + b"class=serve\n#RLALLOC " + b" " * 100 + b"class=finetune\n",
        b"#RLALLOC " + b"a" * 390 + b" class=serve class=finetune\n",
        b"#RLALLOC " + b"a " * 12 + b"class=serve off\n",
    ]
    for script, read in zip(scripts, read_scripts(interpreter, scripts), strict=True):
        assert read.tag.get("class") == class_of(script, CONFIG.commands)
        if read.tag:
            assert read.tag["ask"] == "+".join(directive_words(script) or ())


@pytest.mark.parametrize(
    ("command", "job_class"),
    [
        (b"ollama serve &", "serve"),
        (b"srun llama-server -m model.gguf --port 8080", "serve"),
        (b"python lm-evaluation-harness/main.py --model hf-causal", "serve"),
        (b"srun python examples/finetuning.py --base-model llama", "finetune"),
        (b"srun python3 -m maxtext.trainers.pre_train.train run_name=x", "train"),
        (b"srun python simulate.py", None),
    ],
)
def test_a_command_shows_the_class(interpreter: str, command: bytes, job_class: JobClass | None) -> None:
    script = b"#!/bin/sh\n" + command + b"\n"
    (read,) = read_scripts(interpreter, [script])
    assert read.tag.get("class") == class_of(script, CONFIG.commands) == job_class


def assert_alike(read: Read, python: ScriptWords) -> None:
    assert read.tag["table"] == CONFIG.word_table.stamp
    assert words_from_tag(read.tag["words"]) == python.words
    assert read.tag["script"] == python.fingerprint


LAUNCH: Final = b"#RLALLOC class=train\n"


def read_alike(interpreter: str, lines: Sequence[bytes]) -> Iterator[tuple[bytes, tuple[str, ...]]]:
    """Each line, and the words of a script that has it, which Lua and Python read alike."""
    scripts = [LAUNCH + line + b"\n" for line in lines]
    for line, script, read in zip(lines, scripts, read_scripts(interpreter, scripts), strict=True):
        words = read_script(script, CONFIG.word_table)
        assert_alike(read, words)
        assert words.words is not None
        yield line, tuple(words.words)


PIECES: Final = st.sampled_from(
    [
        *(b"torchrun ", b"srun ", b"-n ", b"-n4 ", b"--nproc_per_node", b"--nproc-per-node=", b"=", b" ", b"\n"),
        *(b"$SLURM_GPUS_ON_NODE", b"${N}", b"$N", b"N=", b"4", b"$((", b"))", b"$(nvidia-smi -L", b")", b"`", b'"'),
        *(b"'", b"#", b"# ", b"\t", b"WORLD_SIZE=", b"trainer.devices=", b"-tp ", b"vllm serve ", b"gpu", b"{", b"}"),
        *(b"N=($(", b"N=($A)", b"${#N[@]}", b"A=( $(ls) )"),
        *(b",", b"]", b"A*B", b"A=$N ", b"--gpus ", b"--", b"-", b"\0", b"\xff", b"%", b"train_batch_size: ", b";"),
        *(b"|", b"\\\n", b"\\\r\n", b"echo ", b"\necho 'a'\n", b'\necho "$N"\n', b"\n" + b" " * 70 + b"#"),
        *(
            b"[ ",
            b"[ $N -ne 4 ]",
            b"[ -z $N ]",
            b"((N<4))",
            b"case $N in",
            b"test ",
            b"world_size == 4",
            b"for N in 1",
        ),
        *(
            b"device_count() != 4",
            b'int(os.environ["N"])',
            b'os.environ["N"]) == 4',
            b"os.environ[k] = v",
            b"os.environ.update(k ",
            b'env "$k=',
            b"getenv('N', 1) <",
            b"--a.devices ",
            b"a.num_nodes=",
            b"${N:-4}",
            b"_size=",
        ),
        *(b"conf.yaml ", b" > conf.yaml", b"tee a.json ", b".toml", b"deepspeed --", b"srun -n $N "),
        *(b"a.num_gpus=", b"--vllm_tensor_parallel_size ", b"WORLD: ", b"gpu_mem", b"cuda:", b"replicas", b"${gpus:"),
        *(
            b"let ",
            b'let "N-=1"',
            b"let N--\n",
            b"read ",
            b"read -r N <",
            b"mpirun -n 4 ",
            b"mpirun -n $N ",
            b"mpiexec ",
            b"orterun --np 4 ",
            b"\nN+=1",
            b"(--N",
            b"++N",
            b"N--",
            b"N -= 1",
            b"N[0]=4",
            b"mapfile -t N ",
            b"printf -v N ",
            b"export N\n",
            b'"N": ',
            b"['N']",
            b"$((N *",
            b" N + 4",
            b"ref=N ",
        ),
        *(
            b"\nsource ",
            b"\n. ",
            b"; . ",
            b"then . ",
            b"N=4 source ",
            b"'. ",
            b'" . ',
            b" eval ",
            b'eval "$(',
            b"eval `",
        ),
        *(
            b"export $(",
            b"export `",
            b"env $(",
            b'export "$N=',
            b"declare -n N=$",
            b"; local a b=",
            b"\nread -r ",
            b"printf -v ",
            b"$'",
            b"`cat`",
            b"/bin/activate",
            b"conda.sh",
            b"conda shell.bash hook",
            b"<(",
            b"()",
        ),
        *(b"run.sh ", b"source ", b" . ", b"$@", b"${*", b"\n#RLALLOC ", b"echo #RLALLOC ", b"#RLALLOCx"),
    ]
)


SETUPS: Final = {
    b"source a.sh": "sources=a.sh",
    b"[ -f x ] && . x": "sources=x",
    b"if . 'x'; then": "sources=x",
    b"set -a; source .env; set +a": "sources=.env",
    b'srun bash -c "source ~/x; python a.py"': "sources=_/x",
    b"N=4 source x": "sources=x",
    b"  then source x": "sources=x",
    b"case $1 in a) . x ;; esac": "sources=x",
    b"(. x)": "sources=x",
    b'source "$(conda info --base)/etc/profile.d/conda.sh" a': "sources=$/etc/profile.d/conda.sh",
    b"source `dirname $0`/env.sh": "sources=$/env.sh",
    b"source $(dirname $(realpath $0))/env.sh": "sources=$/env.sh",
    b"source $(a $(b $(c)))/env.sh": "sources=$",
    b'source "$V"/bin/activate > /dev/null': "sources=$V/bin/activate",
    b"S=/x/env.sh; source $S": "sources=/x/env.sh",
    b"source <(python sizes.py)": "sources=_",
    b"source " + b"a" * 200: "sources=_",
    b"source activate\x0bx.env": "sources=activate_x.env",
    b'eval "$(conda shell.bash hook)"': "evals=conda",
    b"eval `ssh-agent -s`": "evals=ssh-agent",
    b'eval $("${HOME}/bin/micromamba" shell hook)': "evals=HOME/bin/micromamba",
    b'eval "$CMD"': "evals=CMD",
    b"eval torchrun a.py": "evals=torchrun",
    b"srun env $(cat .env) python a.py": "evals=cat",
}
ASSIGNMENTS: Final = {
    b"while IFS='=' read -r k v; do export \"$k=$v\"; done < cluster.env": "export",
    b"while read line; do export $line; done < .env": "export",
    b"export ${k^^}=$v": "export",
    b"export A=1 B=2 NCCL_$k=$v": "export",
    b"export $(grep -v '^#' .env | xargs)": "export",
    b"export `cat .env`": "export",
    b'declare -gx "$k"=4': "declare",
    b"if declare -n ref=$k; then": "declare",
    b'f() { local -n ref="$1"; ref=4; }': "local",
    b"typeset -x $k=$v": "typeset",
    b'readonly "$k=$v"': "readonly",
    b'printf -v "$k" %s 4': "printf",
    b'printf -v "N_${k}" %s 4': "printf",
    b'read -r a "$k" < sizes': "read",
    b"mapfile -t $k < sizes": "mapfile",
    b'readarray "$k"': "readarray",
    b'let "$k=4"': "let",
    b"srun bash -c 'export $k=$v; python a.py'": "export",
    b'env "$k=$v" python a.py': "env",
    b'srun env -i A=1 NCCL_${k}="$v" python a.py': "env",
    b"/usr/bin/env `k`=4 python a.py": "env",
    b'env A=$B C=${D}/e "$k=$v" python a.py': "env",
    b'env A=$B "C=$D" python a.py --x=$y': None,
    b"env A=1 $PYTHON a.py --x=$y": None,
    b'conda env create -n "$k=$v"; apptainer run --env "$k=$v" a': None,
    b'export PATH=$HOME/bin:$PATH A="$B" C=`nproc`': None,
    b"export A B=1 C=$D && ls $E": None,
    b"declare -a LIST=($A $B); declare -n ref=OTHER": None,
    b'local n=${1:-4} "a=$b"': None,
    b'printf -v A %s "$B"': None,
    b'printf "$format" a': None,
    b"printf -v -n ref=$k": None,
    b"while IFS= read -r -d $'\\0' f; do ls; done < $FILES": None,
    b'read -ra PARTS <<< "$LIST"': None,
    b"python a.py --mode local $A --spread $B --read $C": None,
    b"let A=$B*2": None,
}
"""A line, and the command that sets a variable whose name the script computes; None where none does."""
IN_PYTHON: Final = {
    b"python - <<E\nfor k, v in sizes.items(): os.environ[k] = str(v)\nE": True,
    b"python - <<E\n    os.environ[f'N_{k}']='4'\nE": True,
    b"python - <<E\nfor i in 0, 1: os.environ[names[i]] = sizes[i]\nE": True,
    b"python - <<E\nos.environ.update(sizes)\nE": True,
    b"python - <<E\nos.environ.update( **load())\nE": True,
    b"python - <<E\nos.environ.update({k: v for k, v in x})\nE": True,
    b"python - <<E\nos.environ.setdefault(k, v)\nE": True,
    b"python - <<E\nos.environ['A'] = k\nos.environ.update({'A': k})\nos.environ.update(A=k)\nE": False,
    b"python - <<E\nif os.environ[k] == v or os.environ.get(k): pass\nE": False,
    b"python - <<E\nx = os.environ[k]\ny = os.environ.pop(k)\nE": False,
    b"python - <<E\nos.environ[k" + b"x" * 120 + b"] = v\nE": False,
}
"""A program, and whether it sets a variable whose name it computes."""
NO_SETUPS: Final = (
    *(b"find . -name x", b'cp "$X" . && ls', b"pip install -e .", b"cd $(pwd) . && ls", b"cat README. Then stop"),
    *(
        b"python cli.py eval --n 1",
        b"--text-column source \\\n  --x",
        b"lm_eval --tasks x",
        b"--do_eval True",
        b"eval; ls",
    ),
)


def test_files_for_the_shell_and_what_it_evaluates(interpreter: str) -> None:
    """What may set any variable, wherever a command may stand; a dot or a word elsewhere is none."""
    for line, words in read_alike(interpreter, [*SETUPS, *NO_SETUPS]):
        assert [word for word in words if word.startswith(("sources", "evals"))] == (
            [SETUPS[line]] if line in SETUPS else []
        ), line


def test_commands_that_set_a_variable_whose_name_is_computed(interpreter: str) -> None:
    """It may be any variable; a value may be computed."""
    for line, words in read_alike(interpreter, list(ASSIGNMENTS)):
        command = ASSIGNMENTS[line]
        assert [word for word in words if word.startswith("assigns")] == (
            [f"assigns={command}"] if command else []
        ), line


HOSTS: Final = b"scontrol show hostnames $SLURM_JOB_NODELIST"
LISTS: Final = (
    b"NODES=($(%s))" % HOSTS,
    b"NODES=( $( %s ) )\necho ${NODES[0]}" % HOSTS,
    b"nodes=`%s`\nNODES=($nodes)\nHEAD=${NODES[0]}" % HOSTS,
)
"""Arrays of all nodes of the job."""
NO_LISTS: Final = (
    b"NODES=($(%s | grep gpu))" % HOSTS,
    b'NODES=("$(%s)")' % HOSTS,
    b"NODES=($(%s) extra)" % HOSTS,
    *(b"NODES=($(%s))\n%s" % (HOSTS, more) for more in (b"NODES+=(extra)", b"unset NODES[0]", b"NODES=(a b)")),
    *(b"NODES=($((4)))", b"NODES=($OTHERS)", b"NODES=$SLURM_NNODES", b"mapfile -t NODES < hosts"),
)


@pytest.mark.parametrize("length", [b"--nnodes=${#NODES[@]}", b'N=${#NODES[*]}\n--nnodes "$N"'])
def test_the_length_of_an_array_is_that_of_the_list_that_fills_it(interpreter: str, length: bytes) -> None:
    """Once, a script that counts its job's nodes in this way was rigid."""
    lines = {array + b"\n" + length: array in LISTS for array in (*LISTS, *NO_LISTS)}
    for line, words in read_alike(interpreter, list(lines)):
        assert Reading(words, CONFIG.scripts, task_per_gpu=False).nodes_follow() == lines[line], (line, words)


def test_programs_that_set_a_variable_whose_name_is_computed(interpreter: str) -> None:
    """In Python, too."""
    for line, words in read_alike(interpreter, list(IN_PYTHON)):
        assert ("compares=os.environ" in words) == IN_PYTHON[line], line


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(PIECES | st.binary(max_size=6), max_size=60).map(b"".join), min_size=1, max_size=20))
@example([b"N=${N}\n--gpus $N", b"N=$N --gpus $N"])
@example([b"x" * 20_000, b"\n" * 2000, b"--gpus=$A " * 100, b"a" * 5000, b" #--gpus 4\n" * 100])
def test_lua_and_python_read_generated_scripts_alike(scripts: list[bytes]) -> None:
    for interpreter in INTERPRETERS:
        for script, read in zip(
            scripts, read_scripts(interpreter, [LAUNCH + script for script in scripts]), strict=True
        ):
            assert read.errors == ()
            assert_alike(read, read_script(LAUNCH + script, CONFIG.word_table))


OF_EVALUATIONS: Final = (
    *(
        b"accelerate launch ",
        b"-m lm_eval ",
        b"lm_eval",
        b"lm-evaluation-harness",
        b"lighteval vllm ",
        b"torchrun x ",
    ),
    *(
        b"lighteval accelerate",
        b"deepspeed ",
        b"finetune",
        b"vllm serve m ",
        b"/olmo ",
        b" a ",
        b"x" * 50,
        b"y" * 390,
    ),
    *(b"\n", b";", b"&", b"|", b"\\\n", b" "),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from(OF_EVALUATIONS), max_size=60).map(b"".join), min_size=1, max_size=20))
def test_lua_and_python_leave_out_the_same_evaluations(scripts: list[bytes]) -> None:
    for interpreter in INTERPRETERS:
        for script, read in zip(scripts, read_scripts(interpreter, scripts), strict=True):
            assert read.tag.get("class") == class_of(script, CONFIG.commands)


def test_a_fingerprint_forgets_digits_comments_and_blanks() -> None:
    """Runs of one script have the same; another program has another."""

    def fingerprint(text: str) -> str:
        return read_script(text.encode(), CONFIG.word_table).fingerprint

    first = fingerprint("#!/bin/sh\n# run 1\ntorchrun train.py --seed 1 --lr 1e-4\n")
    assert fingerprint("#!/bin/bash\r\n#SBATCH -t 60\r\ntorchrun  train.py --seed 23 --lr 5e-5\r\n") == first
    assert fingerprint("#!/bin/sh\ntorchrun eval.py --seed 1 --lr 1e-4\n") != first


def test_what_was_not_read_gives_no_consent(interpreter: str) -> None:
    """A count could stand in the rest."""
    long = b"#!/bin/sh\ntorchrun --nproc_per_node=gpu train.py\n" + b"echo abcdefgh\n" * 800
    (read,) = read_scripts(interpreter, [long])
    assert read.tag["words"] == TOO_LONG
    consent = consent_of(words_from_tag(read.tag["words"]), CONFIG.scripts, job_class="train", task_per_gpu=True)
    assert not consent.moldable


# Most of the instructions are those of the counting functions. bench/plugin_speed.py shows the time.
MOST_INSTRUCTIONS: Final = 30_000
MOST_CALLS: Final = 800
MOST_BYTES: Final = 200_000


def test_no_script_is_much_work(interpreter: str) -> None:
    """Whatever stands in it, and however long it is: slurmctld waits for it."""
    scripts = hostile_scripts()
    for name, read in zip(scripts, read_scripts(interpreter, list(scripts.values())), strict=True):
        assert read.errors == (), name
        assert read.instructions <= MOST_INSTRUCTIONS, name
        assert read.calls <= MOST_CALLS, name
        assert read.bytes_searched <= MOST_BYTES, name


@pytest.mark.parametrize("blank", [b" ", b"\t", b" \t"])
def test_blanks_behind_an_echo_take_no_time(interpreter: str, blank: bytes) -> None:
    """One such script held slurmctld for 0.4 s: a pattern tried every way to split the blanks."""
    script = LAUNCH + b"echo " + blank * (6000 // len(blank)) + b"x;\n"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    read_scripts(interpreter, [script] * 10)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime - before.ru_utime < 1.0
    began_s = time.process_time()
    read_long_script(LAUNCH + (b"echo " + blank * (6000 // len(blank)) + b"x;\n") * 16, CONFIG.word_table)
    assert time.process_time() - began_s < 1.0


@pytest.mark.parametrize("option", [b"", b"-n ", b"-", b"-ne\t ", b"e ", b" -n", b"-x ", b"n -", b"- n"])
@pytest.mark.parametrize("quoted", [b'"a"', b"'a'", b'"$(a)"', b"a"])
def test_what_echo_prints_is_left_out_alike(option: bytes, quoted: bytes) -> None:
    scripts = [LAUNCH + b"echo " + before + option + quoted + b" \ntorchrun a.py\n" for before in (b"", b"\t ")]
    for interpreter in INTERPRETERS:
        for script, read in zip(scripts, read_scripts(interpreter, scripts), strict=True):
            assert_alike(read, read_script(script, CONFIG.word_table))


def test_scripts_with_as_much_as_is_read_are_read() -> None:
    """Else they would cost little, and say nothing about the worst case."""
    scripts = {name: text for name, text in hostile_scripts().items() if name.startswith("as much as is read")}
    assert len(scripts) >= 20
    for name, text in scripts.items():
        assert read_script(text, CONFIG.word_table).words is not None, name


def test_no_field_is_much_work(interpreter: str) -> None:
    """Beside a script that is as much work as a script can be, either."""
    scripts = [text for name, text in hostile_scripts().items() if "comments" in name or name.startswith("more")]
    for name, fields in hostile_fields().items():
        for read in read_scripts(interpreter, [LAUNCH, *scripts], fields=fields):
            assert read.errors == (), name
            assert ("mode" in read.tag) == (name != "too long"), name
            assert read.instructions <= MOST_INSTRUCTIONS, name
            assert read.calls <= MOST_CALLS, name


def test_words_are_not_read_beside_long_fields(interpreter: str) -> None:
    """What they cost counts as an effort. rlallocd reads such a script itself."""
    script = hostile_scripts()["as much as is read, conditions, letters"]
    (alone,) = read_scripts(interpreter, [script])
    (beside,) = read_scripts(interpreter, [script], fields={"partition": "a" * 900})
    assert alone.tag["words"] != TOO_LONG == beside.tag["words"]


def test_words_are_not_read_where_not_all_texts_are_searched_for(interpreter: str) -> None:
    """Other places are sampled each time, and not all samples show which byte is frequent."""
    reads = read_scripts(interpreter, [not_all_searched_for()] * 20)
    assert TOO_LONG in {read.tag["words"] for read in reads}


def test_an_ordinary_comment_may_be_long(interpreter: str) -> None:
    """It is no directive; one that is, and of which not all is looked at, is too long."""
    (ordinary, directive) = (
        read_scripts(interpreter, [b"#RLALLOC gpus=1-4\n"], fields={"comment": comment})[0]
        for comment in ("a" * 5_000, "rlalloc:" + " " * 5_000 + "gpus=2")
    )
    assert ordinary.tag["ask"] == "gpus=1-4"
    assert directive.tag["ask"] == TOO_LONG


ODD: Final = st.sampled_from(
    [b"%", b"(.-)*", b"[", b"\n", b"\xff", b"gpu", b":", b",", b"=", b";", b"rlalloc:", b" "]
)


@settings(max_examples=20, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["partition", "account", "comment", "tres_per_node", "tres_per_job", "default_account"]),
        st.tuples(st.lists(ODD, min_size=1, max_size=4).map(b"".join), st.integers(1, 30_000)),
    )
)
@example({"partition": (b"a,", 60_000), "tres_per_task": (b"a,", 60_000), "comment": (b"rlalloc: a", 30_000)})
def test_no_name_raises_or_is_much_work(repeated: dict[str, tuple[bytes, int]]) -> None:
    fields = {name: (part * times)[:120_000] for name, (part, times) in repeated.items()}
    for interpreter in INTERPRETERS:
        (read,) = read_scripts(interpreter, [LAUNCH], fields=fields)
        assert read.errors == ()
        assert read.instructions <= MOST_INSTRUCTIONS
        assert read.calls <= MOST_CALLS


ENTRIES: Final = st.from_regex(r"srun -[a-zA-Z]|(--|-|)[a-zA-Z0-9_.$/:-]{1,12}( [a-z-]{1,8})?", fullmatch=True)


@settings(max_examples=20, deadline=None)
@given(st.lists(ENTRIES, max_size=30), st.lists(ENTRIES, max_size=8), st.data())
def test_any_table_that_the_configuration_accepts_is_read_alike(
    counts: list[str], finds_gpus: list[str], data: st.DataObject
) -> None:
    """Words of a site's own, however odd: what stands in them is text, and no pattern."""
    rules = ScriptRules(counts=tuple(counts), finds_gpus=tuple(finds_gpus))
    config = parse_config(config_as_yaml(Config(scripts=rules)), "generated")
    words = st.sampled_from([entry.encode() for entry in (*counts, *finds_gpus, "x", "\n")]) | PIECES
    script = LAUNCH + b"".join(data.draw(st.lists(words, max_size=40)))
    for interpreter in INTERPRETERS:
        (read,) = read_scripts(interpreter, [script], config)
        assert read.errors == ()
        python = read_script(script, config.word_table)
        assert words_from_tag(read.tag["words"]) == python.words
        assert read.tag["table"] == config.word_table.stamp


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(PIECES | st.binary(min_size=1, max_size=12), PIECES, st.integers(1, 20_000)), min_size=1, max_size=8
    )
)
def test_no_repeated_text_is_much_work(parts: list[tuple[bytes, bytes, int]]) -> None:
    scripts = [LAUNCH + ((first + second) * times)[:200_000] for first, second, times in parts]
    for interpreter in INTERPRETERS:
        for read in read_scripts(interpreter, scripts):
            assert read.errors == ()
            assert read.instructions <= MOST_INSTRUCTIONS
            assert read.calls <= MOST_CALLS
            assert read.bytes_searched <= MOST_BYTES
            tag = read_tag("rlalloc:" + ";".join(f"{key}={value}" for key, value in read.tag.items()))
            assert tag is not None
