"""What is read from batch scripts of each framework, and that no text makes the reader raise or take long."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rlalloc.llm.facts import Facts, facts_of_words
from rlalloc.llm.named_files import MOST_FILE_CHARACTERS, facts_of_script, parse_configuration
from rlalloc.llm.script_options import OPTION_NAMES
from rlalloc.llm.shell_words import MOST_CHARACTERS, read_script

MEGATRON = """#!/bin/bash
#SBATCH --gres=gpu:a100:8 -N 2
export TP=${TP:-4}
PP=2   # pipeline stages
GPT_ARGS="
    --num-layers 24 --hidden-size 2048 \\
    --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 \\
    --micro-batch-size 4 --global-batch-size 64 --bf16 --use-distributed-optimizer --swiglu
"
MODEL_PARALLEL=(
  --tensor-model-parallel-size $TP
  --pipeline-model-parallel-size ${PP}   # as above
)
srun torchrun --nproc_per_node $SLURM_GPUS_ON_NODE pretrain_gpt.py $GPT_ARGS "${MODEL_PARALLEL[@]}" \\
    --recompute-granularity selective --num-query-groups 4
"""
DEEPSPEED = """MODEL='meta-llama/Llama-2-13b-hf'
cat > "ds_config.json" <<EOF
{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "none"}},
 "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 2}
EOF
deepspeed --num_gpus 4 train.py --model_name_or_path $MODEL --deepspeed ds_config.json \\
  --gradient_checkpointing True --max_seq_length=4096 --optim adamw_bnb_8bit
"""
TRL = """accelerate launch --config_file fsdp.yaml sft.py --model_name_or_path Qwen/Qwen2.5-7B \\
  --use_peft --lora_r 16 --lora_target_modules all-linear --load_in_4bit --per_device_train_batch_size 8 --bf16
"""
ACCELERATE = """distributed_type: FSDP
fsdp_config:
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_offload_params: false
mixed_precision: bf16
num_processes: 8
"""
FACTORY = """FORCE_TORCHRUN=1 llamafactory-cli train examples/lora.yaml
"""
FACTORY_YAML = """model_name_or_path: /models/Meta-Llama-3-8B-Instruct
finetuning_type: lora
lora_target: q_proj,v_proj
cutoff_len: 2048
per_device_train_batch_size: 1
pure_bf16: true
deepspeed: examples/deepspeed/ds_z3_config.json
"""
AXOLOTL = """module load cuda
if [ "$1" = "x" ]; then
    accelerate launch -m axolotl.cli.train config.yml
fi
"""
AXOLOTL_YAML = """base_model: NousResearch/Llama-2-7b-hf
adapter: qlora
load_in_4bit: true
lora_r: 32
sequence_len: 4096
micro_batch_size: 2
gradient_checkpointing: true
fsdp:
  - full_shard
  - auto_wrap
"""
CASES: list[tuple[str, str, Mapping[str, str], dict[str, Any], float]] = [
    (
        "megatron",
        MEGATRON,
        {},
        {
            "framework": "megatron",
            "layers": 24,
            "kv_heads": 4,
            "tensor_parallel": 4,
            "pipeline_parallel": 2,
            "micro_batch": 4,
            "global_batch": 64,
            "sequence": 2048,
            "precision": "16-bit",
            "distributed_optimizer": True,
            "checkpointing": "selective",
        },
        1.25,  # 24 x (2.5 x 2048² + 3 x 2048 x 5440) + 2 x 51200 x 2048
    ),
    (
        "deepspeed",
        DEEPSPEED,
        {},
        {
            "framework": "deepspeed",
            "zero_stage": 3,
            "offload_optimizer": True,
            "offload_weights": False,
            "micro_batch": 2,
            "sequence": 4096,
            "checkpointing": "full",
            "optimizer": "adamw-8bit",
        },
        13.0,
    ),
    (
        "trl",
        TRL,
        {"fsdp.yaml": ACCELERATE},
        {"zero_stage": 3, "lora_rank": 16, "lora_targets": "all-linear", "weights": "nf4", "micro_batch": 8},
        7.6,
    ),
    (
        "llamafactory",
        FACTORY,
        {
            "examples/lora.yaml": FACTORY_YAML,
            "examples/deepspeed/ds_z3_config.json": '{"zero_optimization": {"stage": 2}}',
        },
        {"zero_stage": 2, "lora_rank": 8, "sequence": 2048, "precision": "pure-16-bit", "framework": "deepspeed"},
        8.0,
    ),
    (
        "stage by name",
        FACTORY,
        {"examples/lora.yaml": FACTORY_YAML},
        {"zero_stage": 3, "framework": "deepspeed"},
        8.0,
    ),
    (
        "axolotl",
        AXOLOTL,
        {"config.yml": AXOLOTL_YAML},
        {
            "lora_rank": 32,
            "weights": "nf4",
            "sequence": 4096,
            "micro_batch": 2,
            "zero_stage": 3,
            "checkpointing": "full",
        },
        6.7,
    ),
    (
        "torchtune",
        "tune run --nproc_per_node 8 lora_finetune_distributed --config llama3_1/70B_lora batch_size=4",
        {},
        {"framework": "torchtune", "lora_rank": 8, "zero_stage": 3, "precision": "pure-16-bit"},
        70.6,
    ),
    (
        "vllm serve",
        """CUDA=1 srun vllm serve Qwen/Qwen2.5-72B-Instruct-AWQ --tensor-parallel-size=$SLURM_GPUS_ON_NODE \\
             --max-model-len 32768 --gpu-memory-utilization .95 &
           wait""",
        {},
        {"purpose": "serve", "tensor_parallel": 0, "max_length": 32768, "memory_fraction": 0.95, "weights": "4-bit"},
        72.7,
    ),
    (
        "vllm module",
        "apptainer exec --nv i.sif python -m vllm.entrypoints.openai.api_server --model mistralai/Mixtral-8x7B -tp 2",
        {},
        {"purpose": "serve", "framework": "vllm", "tensor_parallel": 2},
        46.7,
    ),
    (
        "sglang",
        "python -m sglang.launch_server --model-path DeepSeek-V3 --tp 8 --mem-fraction-static .9 --quantization fp8",
        {},
        {"purpose": "serve", "framework": "sglang", "tensor_parallel": 8, "memory_fraction": 0.9, "weights": "8-bit"},
        671.0,
    ),
    (
        "tgi",
        "text-generation-launcher --model-id bigscience/bloom --num-shard 8 --quantize eetq --max-total-tokens 2048",
        {},
        {"purpose": "serve", "framework": "tgi", "tensor_parallel": 8, "weights": "8-bit", "max_length": 2048},
        176.2,
    ),
    (
        "a script that it names",
        "source env.sh\nbash run.sh\n",
        {
            "env.sh": "MODEL=facebook/opt-13b",
            "run.sh": "python train.py --model $MODEL --fsdp 'full_shard auto_wrap'\n",
        },
        {"zero_stage": 3, "model": "facebook/opt-13b"},
        12.9,
    ),
    (
        "a local model",
        "python train.py --model_name_or_path /data/mine",
        {
            "/data/mine/config.json": '{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, '
            '"num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 128, '
            '"quantization_config": {"quant_method": "gptq", "bits": 4}}'
        },
        {"weights": "4-bit"},
        0.0000949,
    ),
]


@pytest.mark.parametrize(
    ("script", "files", "expected", "billions"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_facts(script: str, files: Mapping[str, str], expected: dict[str, Any], billions: float) -> None:
    found = facts_of_script(script, files.get)
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.architecture is not None
    assert found.architecture.parameters / 1e9 == pytest.approx(billions, rel=0.02)


TORCHTITAN = """
[model]
name = "llama3"
flavor = "70B"
[parallelism]
tensor_parallel_degree = 8
data_parallel_shard_degree = -1
[training]
local_batch_size = 2
seq_len = 8192
[activation_checkpoint]
mode = "full"
"""


@pytest.mark.parametrize(
    ("script", "files", "expected"),
    [
        ("vllm serve deepseek-ai/DeepSeek-R1 --tensor-parallel-size 8", {}, {"weights": "8-bit"}),
        ("vllm serve unsloth/DeepSeek-V3-bf16 --tensor-parallel-size 16", {}, {"weights": None}),
        ("vllm serve openai/gpt-oss-20b", {}, {"weights": "mxfp4"}),
        ("python sft.py --model_name_or_path meta-llama/Llama-3.1-8B --load_in_4bit", {}, {"lora_rank": 8}),
        ("vllm serve TheBloke/Llama-2-70B-AWQ", {}, {"lora_rank": None, "weights": "4-bit"}),
        (
            "deepspeed train.py --deepspeed_config ds.json",
            {"ds.json": '{"train_batch_size": 96, "train_micro_batch_size_per_gpu": 4}'},
            {"global_batch": 96, "micro_batch": 4},
        ),
        ("python train.py --config t.json", {"t.json": '{"train_batch_size": 96}'}, {"global_batch": None}),
        (
            'torchrun run.py --fsdp "full_shard auto_wrap offload"',
            {},
            {"zero_stage": 3, "offload_optimizer": True, "offload_weights": True},
        ),
        (
            "torchrun torchtitan/train.py --job.config_file llama3.toml",
            {"llama3.toml": TORCHTITAN},
            {"tensor_parallel": 8, "sequence": 8192, "micro_batch": 2, "zero_stage": 3, "checkpointing": "full",
             "framework": "torchtitan"},
        ),
        (
            "torchrun -m torchtitan.train --job.config_file none.toml --parallelism.tensor_parallel_degree=4",
            {},
            {"tensor_parallel": 4, "framework": "torchtitan"},
        ),
        ("srun python megatron_gpt.py model.encoder_seq_length=4096", {}, {"sequence": 4096}),
        ("vllm serve m/llama-70b --cpu-offload-gb 60", {}, {"offload_gib": 60.0}),
        ("bash -c 'vllm serve meta-llama/Llama-2-7b-hf -tp 2'", {}, {"tensor_parallel": 2}),
    ],
)  # fmt: skip
def test_what_single_options_and_files_tell(script: str, files: Mapping[str, str], expected: dict[str, Any]) -> None:
    found = facts_of_script(script, files.get)
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_torchtitan_file_names_the_model() -> None:
    found = facts_of_script("torchrun torchtitan/train.py --job.config_file l.toml", {"l.toml": TORCHTITAN}.get)
    assert found.architecture is not None
    assert found.architecture.parameters == pytest.approx(70.55e9, rel=0.01)


def test_facts_say_where_they_come_from() -> None:
    found = facts_of_script(FACTORY, {"examples/lora.yaml": FACTORY_YAML}.get)
    assert found.origin["model"] == "examples/lora.yaml"
    assert found.origin["zero_stage"] == "examples/lora.yaml, the name examples/deepspeed/ds_z3_config.json"


def test_options_win_over_files() -> None:
    script = "python train.py --deepspeed d.json --bf16 --per_device_train_batch_size 4 --model llama-2-7b"
    found = facts_of_script(script, {"d.json": '{"train_micro_batch_size_per_gpu": "1"}'}.get)
    assert found.micro_batch == 4


def test_the_command_that_tells_most_counts() -> None:
    script = "python prepare.py --model gpt2\npython train.py --model facebook/opt-13b --bf16 --seq-length 512\n"
    assert facts_of_script(script).model == "facebook/opt-13b"


def test_a_script_without_a_model_tells_nothing() -> None:
    assert facts_of_script("#!/bin/bash\nsrun hostname\n") == Facts()
    assert facts_of_script("") == Facts()


def test_comments_tell_nothing() -> None:
    assert facts_of_script("# python x.py --model facebook/opt-13b\necho done # --model gpt2\n").model is None


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("a 'b c' \"d $X\" e\\ f", ("a", "b c", "d 1", "e f")),
        ("a \\\n  b # c\nd", ("a", "b")),
        ("Y=2; a ${Y}${X:-3} ${Z:-4} $((1+1)) `date`", ("a", "21", "4", "\x00", "\x00")),
        ("A='x y'; a $A \"$A\"", ("a", "x", "y", "x y")),
        ('A=(x "y z")\na ${A[@]}', ("a", "x", "y", "z")),
        ("A=(x); A+=(y); a ${A[@]}", ("a", "x", "y")),
        ("A=x; A+=y; a $A", ("a", "xy")),
        ("a 'unclosed b", ("a", "unclosed", "b")),
        ("a > out.txt 2>&1", ("a", ">", "out.txt", "2>&", "1")),
    ],
)
def test_words_of_a_command(script: str, words: tuple[str, ...]) -> None:
    assert read_script(script, {"X": "1"}).commands[0] == words


def test_words_from_the_plugin_tell_the_same() -> None:
    words = """torchrun tensor-model-parallel-size=4 model-name-or-path=meta-llama/Llama-2-70b-hf bf16 unknown=1
               pipeline-model-parallel-size=$PP nproc-per-node=$SLURM_GPUS_ON_NODE load-in-4bit=false"""
    found = facts_of_words(words.split())
    assert (found.tensor_parallel, found.pipeline_parallel, found.precision, found.weights) == (4, 0, "16-bit", None)
    assert found.architecture is not None
    served = facts_of_words(["vllm", "serve=Qwen/Qwen2.5-7B", "max-model-len=4096"])
    assert (served.purpose, served.model, served.max_length) == ("serve", "Qwen/Qwen2.5-7B", 4096)


@pytest.mark.parametrize(
    "words",
    [
        *("teacher=a", "teacher-model-path=a", "teacher-name-or-path=$T", "ref-model-name-or-path=a"),
        *("reference-model-path=a", "reward-model-name=a", "critic-model-name-or-path=a", "judge=a", "draft-model=a"),
        *("model=$JUDGE", "vllm-serve=$JUDGE", "model-path=a"),
    ],
)
def test_a_further_model_is_noted_however_it_is_named(words: str) -> None:
    """Before and behind the first one; a model alone is none, whether its name is known or not."""
    trained = "model-name-or-path=Qwen/Qwen2.5-0.5B"
    assert facts_of_words([trained, words]).other_models
    assert facts_of_words([words, trained]).other_models
    assert facts_of_words(["model=$MODEL", "model-path=$MODEL"]).other_models is None
    assert facts_of_words([trained, "model=Qwen/Qwen2.5-0.5B", "tokenizer=$T", "model"]).other_models is None


PARTS = [
    "--", "-", "=", "'", '"', "$(", "`", "${", "}", "(", ")", "<<EOF\n", "EOF\n", "\\\n", "\n", " ", "#", ";", "&&",
    "A=", "$A", "A+=(", "\x00", "\xff", "vllm", "serve", "source x", "bash x", "x.yaml", "--config", "--model", "70b",
    "8x7b", "9" * 50, "1e400", "-1", "true", "./../..", *(f"--{name}" for name in OPTION_NAMES),
]  # fmt: skip
SCRIPTS = st.lists(st.sampled_from(PARTS) | st.text(max_size=12), max_size=60).map("".join)
ODD_FILES = [
    "",
    "[",
    "{",
    "a: *b",
    "- &a [*a, *a]",
    '{"a": {"a": [1, null, true]}}',
    "fsdp: [full_shard]",
    "\x00",
    "stage: 3",
    '{"num_hidden_layers": "x", "n_layer": 3}',
]
FILES = st.sampled_from(ODD_FILES) | SCRIPTS | st.none()


@settings(max_examples=400, deadline=None)
@given(SCRIPTS, FILES)
def test_no_script_and_no_file_raises(script: str, content: str | None) -> None:
    found = facts_of_script(script, lambda _name: content)
    assert msgspec.json.encode(msgspec.structs.replace(found, origin=dict(found.origin)))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=40) | st.sampled_from([f"{name}=$X" for name in OPTION_NAMES]), max_size=30))
def test_no_words_raise(words: list[str]) -> None:
    facts_of_words(words)


def _nested_aliases(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 9)}]" for number in range(1, levels)]
    return "\n".join(lines)


HOSTILE = {
    "quotes": '"' * MOST_CHARACTERS,
    "open substitutions": "$(" * (MOST_CHARACTERS // 2),
    "open arithmetic": "$((" * (MOST_CHARACTERS // 3),
    "open braces": "${A" * (MOST_CHARACTERS // 3),
    "here-documents": "<<A x\n" * (MOST_CHARACTERS // 6),
    "one long word": "x" * (4 * MOST_CHARACTERS),
    "doubling variables": "A=xxxxxxxx\n" + "".join("A=$A$A$A$A\n" for _ in range(20_000)),
    "options": "python x " + "--model 7b " * 20_000,
    "a script that names itself": "bash me\n" * 2_000,
    "many files": "python x " + " ".join(f"f{number}.yaml" for number in range(20_000)),
    "backslashes": "\\" * MOST_CHARACTERS,
    "brackets": "(A=(" * (MOST_CHARACTERS // 4),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_scripts_end(name: str) -> None:
    """A quarter of a megabyte of any kind; what takes the square of its length would not end here."""
    facts_of_script(HOSTILE[name], {"me": HOSTILE[name][:MOST_FILE_CHARACTERS], "f1.yaml": "a: 1"}.get)


@pytest.mark.parametrize(
    ("content", "is_read"),
    [
        ("[" * MOST_FILE_CHARACTERS, False),
        ("{" * MOST_FILE_CHARACTERS, False),
        ("- " * 30_000, False),
        ("a: " + "[" * 101 + "]" * 101, False),
        ("a: " + "[" * 99 + "]" * 99, True),
        (("[" * 99 + " #" + "]" * 99 + "\n") * 320, False),  # closed in comments only: 32,000 levels
        ('[ "]", ' * 9_000, False),
        ("x" * (MOST_FILE_CHARACTERS + 1), False),
        ("!!python/object/apply:os.system ['true']", True),  # a list of one text
        (_nested_aliases(12), True),
        ("a: " + "9" * 60_000, True),
        ('{"a": ' * 900 + "1" + "}" * 900, True),
        ("2024-99-99: 1", True),
        ("a: [1, 2\n", False),
        ("a: b: c", False),
    ],
    ids=range(15),
)
def test_hostile_files_are_texts_or_nothing(content: str, is_read: bool) -> None:
    """What is nested beyond sense is not parsed: the time of a parser grows with the square of the depth."""
    assert (parse_configuration(content) is not None) == is_read
    facts_of_script("python train.py --config a.yaml --model 7b", lambda _name: content)


def test_toml_with_a_key_of_too_many_parts_is_not_parsed() -> None:
    """The time of tomllib would be a quarter of a minute for a key of 30,000 parts."""
    assert isinstance(parse_configuration("a." * 300 + "a = 1"), dict)
    assert not isinstance(parse_configuration("a." * 301 + "a = 1"), dict)
    assert not isinstance(parse_configuration("a." * 30_000 + "a = 1"), dict)


def test_brackets_in_arithmetic_do_not_end_a_command() -> None:
    facts = facts_of_script("python t.py --model 7b --accum $((256/(4*(N+1)))) --bf16 --seq-length 4096\n")
    assert (facts.precision, facts.sequence) == ("16-bit", 4096)


def test_a_command_that_names_its_model_tells_more_than_an_environment() -> None:
    facts = facts_of_script("source activate vllm\npython generate.py --model google/gemma-2-9b-it\n")
    assert facts.model == "google/gemma-2-9b-it"
    assert facts.purpose != "serve"


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML without libyaml")
@given(
    st.recursive(
        st.text(max_size=8), lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=8), each)
    )
)
def test_both_loaders_of_yaml_read_the_same(value: object) -> None:
    text = yaml.safe_dump(value)
    assert parse_configuration(text) == yaml.load(text, Loader=yaml.BaseLoader)


@pytest.mark.parametrize(("dtype", "of_training"), [("float32", "fp32"), ("float", "fp32"), ("bfloat16", None)])
def test_beside_a_server_a_training_keeps_only_the_dtype_that_needs_more_memory(
    dtype: str, of_training: str | None
) -> None:
    """Nobody can tell which of the two programs has the option."""
    words = ("torchrun", "vllm", f"dtype={dtype}")
    assert facts_of_words(words, "train", beside=True).dtype == of_training
