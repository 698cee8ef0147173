"""What a batch script and the files that it names say of an LLM job: model, parallel sizes, batch, precision.

Understood are the options of Megatron-LM, Hugging Face's Trainer, TRL and Accelerate, LLaMA-Factory, axolotl,
DeepSpeed, torchtune, vLLM, SGLang and TGI, on command lines and in YAML or JSON files. What is not said stays None.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from rlalloc.llm.architecture import Architecture, architecture_of_config
from rlalloc.llm.known_models import architecture_named, own_weights
from rlalloc.llm.script_options import (
    FILE_OPTIONS,
    FLAGS,
    MODEL_OPTIONS,
    OF_ENGINES,
    OPTION_NAMES,
    OPTIONS,
    PEFT_OPTIONS,
    QUANTISATION,
    SERVERS,
    TRAINER_PARTS,
    TRAINERS,
    Value,
    read_flag,
    read_whole,
    server_of,
)
from rlalloc.llm.shell_words import OF_THE_PLAN, PLAN_MARK, UNKNOWN

Purpose = Literal["train", "serve"]


class Facts(msgspec.Struct, frozen=True):
    """What was found; None where nothing was. Sizes count GPUs, sequences or tokens; ``zero_stage`` 3 is FSDP's full.

    ``precision`` names the arithmetic: fp32, 16-bit (mixed), pure-16-bit. ``dtype`` is what the weights are loaded
    in: fp32 or 16-bit. ``weights`` is a key of BYTES_PER_WEIGHT for a quantised model. ``origin`` says for each fact
    where it was found: the script or a file's name. ``other_models``: the script names further models, such
    as a teacher.
    """

    purpose: Purpose | None = None
    framework: str = ""
    model: str | None = None
    other_models: bool | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    intermediate: int | None = None
    vocabulary: int | None = None
    gated: bool | None = None
    experts: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    context_parallel: int | None = None
    expert_parallel: int | None = None
    data_parallel: int | None = None
    data_parallel_attention: bool | None = None
    sequence_parallel: bool | None = None
    zero_stage: int | None = None
    offload_optimizer: bool | None = None
    offload_weights: bool | None = None
    distributed_optimizer: bool | None = None
    micro_batch: int | None = None
    global_batch: int | None = None
    accumulation: int | None = None
    sequence: int | None = None
    precision: str | None = None
    dtype: str | None = None
    optimizer: str | None = None
    checkpointing: str | None = None
    flash_attention: bool | None = None
    fused_loss: bool | None = None
    lora_rank: int | None = None
    lora_targets: str | None = None
    weights: str | None = None
    kv_cache: str | None = None
    max_length: int | None = None
    max_sequences: int | None = None
    memory_fraction: float | None = None
    offload_gib: float | None = None
    architecture: Architecture | None = None
    origin: Mapping[str, str] = {}


_STAGE_IN_NAME: Final = re.compile(r"(?i)(?<![a-z])(?:zero|stage|z)[-_]?([0-3])(?![0-9])")
_RECIPE: Final = re.compile(r"([a-z0-9_]+)/([0-9.]+B)_(\w+)")
"""A recipe of torchtune: llama3_1/8B_qlora_single_device."""
_LORA_WORDS: Final = frozenset({"lora", "qlora", "dora"})
_DEFAULT_LORA_RANK: Final = 8
_IN_DEEPSPEED: Final = frozenset({"zero-optimization", "train-micro-batch-size-per-gpu"})
"""Words that only a DeepSpeed configuration has; the script writes it."""


_OF_TRAINER: Final = "per-device-train-batch-size"
"""An option of Hugging Face's Trainer alone."""
_SCRIPT: Final = "script"
"""Where a fact is from, if a word of the script says it."""


def facts_of_words(words: Iterable[str], purpose: Purpose | None = None, *, beside: bool = False) -> Facts:
    """Return the facts in words that the submit plugin collected: ``name=value``, ``name``, or a program's name.

    ``purpose`` is that of the program whose facts are wanted; if it is None, the words tell it. ``beside``: the
    script also has a program of the other purpose. Then OF_ENGINES are options of the server, all others those of the
    training, and a model can be either's. A value with ``$`` is a variable that nobody resolved. ``vllm-serve=MODEL``
    and ``serve=MODEL`` name the model of the server.
    """
    finder = FactFinder()
    if purpose == "serve":
        finder.note("purpose", "serve", _SCRIPT)
    if beside:
        finder.note("other_models", True, _SCRIPT)  # noqa: FBT003 (a value)
    pairs = [word.partition("=") for word in words]
    if any(name in _IN_DEEPSPEED for name, _, _ in pairs):
        finder.batch_of_deepspeed(pairs)
    of_others = _options_of_others(pairs, purpose) if beside else frozenset()
    for name, equals, text in pairs:
        value = _known_part(text)
        option = name.rpartition(".")[2]  # NeMo and verl: model.micro-batch-size
        if option in OPTION_NAMES and (option == name or equals):
            if option not in of_others or _is_32_bits(option, value):
                finder.take(option, value, _SCRIPT)
        elif _is_served(name) or server_of(name) is not None:
            if purpose != "train":
                finder.server(name, value if equals else "", alone=not beside)
        elif not beside or purpose == "train":
            finder.words([name])
    return finder.facts()


def _is_32_bits(option: str, value: str) -> bool:
    return option == "dtype" and any(read(value) == "fp32" for _, read in OPTIONS[option])


def _known_part(value: str) -> str:
    """A value, or a mark for one with a variable: of the plan, or one that nobody resolved."""
    if "$" not in value:
        return value
    return PLAN_MARK if any(variable in value for variable in OF_THE_PLAN) else UNKNOWN


def _options_of_others(pairs: Iterable[tuple[str, str, str]], purpose: Purpose | None) -> frozenset[str]:
    """The options that are not those of the program with this purpose, where the script has another one, too."""
    if purpose == "train":
        return OF_ENGINES
    its_own = any(_is_served(name) and architecture_named(value) for name, _, value in pairs)
    return frozenset(OPTION_NAMES) - OF_ENGINES - (frozenset() if its_own else MODEL_OPTIONS)


def _is_served(name: str) -> bool:
    """Whether the value of a word is the model that a server serves."""
    return name == "serve" or (name.endswith("serve") and server_of(name) is not None)


def key_of(name: str) -> str:
    """The key of OPTIONS for an option's name, without its parts before the last dots where those are not known."""
    key = name.lstrip("-").lower().replace("_", "-")
    parts = key.split(".")
    tails = (key, ".".join(parts[-2:]), parts[-1])
    return next((tail for tail in tails if tail in OPTIONS), parts[-1])


class FactFinder:
    """Collects facts of one command and its files.

    A later value of an option wins, as in argparse. Of several models, the largest does: it needs the most memory.
    """

    def __init__(self) -> None:
        self.found: dict[str, Value] = {}
        self.origin: dict[str, str] = {}
        self.architecture: Architecture | None = None
        self._unknown_model = ""
        self._is_trainer = False

    def take(self, name: str, value: str, where: str) -> None:
        """Note an option and its value; an option that is not known is left out."""
        key = key_of(name)
        for field, read in OPTIONS.get(key, ()):
            read_value = read(value.strip())
            if read_value is not None:
                self.note(field, read_value, where)
            elif field == "model" and UNKNOWN in value:
                self._unknown_model = where
        self._is_trainer |= key == _OF_TRAINER
        if key in FILE_OPTIONS and "deepspeed" in key:
            self.note("framework", "deepspeed", where)
        if key in FILE_OPTIONS and (stage := _STAGE_IN_NAME.search(value.rpartition("/")[2])) is not None:
            self.default("zero_stage", int(stage[1]), f"{where}, the name {value[:80]}")
        if key == "config" and (recipe := _RECIPE.fullmatch(value)) is not None:
            self._take_recipe(recipe, where)
        if key in PEFT_OPTIONS and (value.lower() in _LORA_WORDS or (key.startswith("use-") and read_flag(value))):
            self.default("lora_rank", _DEFAULT_LORA_RANK, where)
            if value.lower() == "qlora":
                self.default("weights", "nf4", where)

    def note(self, field: str, value: Value, where: str) -> None:
        """Note a fact."""
        if field == "model" and self.found.get(field, value) != value:
            self.note("other_models", True, where)  # noqa: FBT003 (a value)
            if _parameters_of(value) < _parameters_of(self.found[field]):
                return
        self.found[field] = value
        self.origin[field] = where

    def batch_of_deepspeed(self, pairs: Iterable[tuple[str, str, str]]) -> None:
        """Note the global batch of a configuration of DeepSpeed; elsewhere its name is that of a batch of one GPU."""
        for name, _, value in pairs:
            if name == "train-batch-size" and (batch := read_whole(value)) is not None:
                self.note("global_batch", batch, _SCRIPT)

    def server(self, name: str, value: str, *, alone: bool) -> None:
        """Note a server, by a word that names it. It has all GPUs if it is ``alone``."""
        self.note("purpose", "serve", _SCRIPT)
        if alone:
            self.note("framework", server_of(name) or "vllm", _SCRIPT)
        if value and _is_served(name) and not value.startswith("-"):
            self.take("model", value, _SCRIPT)

    def default(self, field: str, value: Value, where: str) -> None:
        """Note a fact unless it is known."""
        if field not in self.found:
            self.note(field, value, where)

    def words(self, words: Iterable[str]) -> None:
        """Read the words of one command: ``--name value``, ``--name=value`` and ``name=value``."""
        listed = list(words)
        for number, word in enumerate(listed):
            following = listed[number + 1] if number + 1 < len(listed) else "--"
            if word.startswith("-"):
                name, equals, value = word.partition("=")
                if not equals and (not following.startswith("-") or read_whole(following[1:]) is not None):
                    value = following
                key = key_of(name)
                is_flag = key in FLAGS and read_flag(value) is None and not _known(key, value)
                self.take(name, "" if is_flag else value, _SCRIPT)
            elif re.match(r"[A-Za-z][\w.\-]*=", word):
                name, _, value = word.partition("=")
                tail = name.lower().replace("_", "-").rpartition(".")[2]
                if len(tail) > 4:
                    self.take(tail, value, _SCRIPT)
            else:
                self._program(word, following)

    def config(self, config: Mapping[str, Any], where: str) -> None:
        """Take a Hugging Face style config.json."""
        self.architecture = architecture_of_config(config) or self.architecture
        if self.architecture is not None:
            self.origin["architecture"] = where
        quantised = config.get("quantization_config")
        if isinstance(quantised, Mapping):
            method = str(quantised.get("quant_method", ""))
            bits = str(quantised.get("bits", ""))
            if kind := QUANTISATION("fp8" if method == "fp8" else f"int{bits}" if bits in ("4", "8") else method):
                self.default("weights", kind, where)

    def facts(self) -> Facts:
        """What was found."""
        if self._unknown_model and "model" in self.found:
            self.note("other_models", True, self._unknown_model)  # noqa: FBT003 (a value)
        if self.found.get("optimizer") == "sgd" and not self._is_trainer:
            self.found["optimizer"] = "sgd-momentum"  # another program may have one
        found = dict(self.found)
        model = found.get("model")
        architecture = self.architecture
        if architecture is None and isinstance(model, str):
            architecture = architecture_named(model)
            if re.search(r"(?i)(awq|gptq|int4|w4a16|4bit|nf4)", model):
                self.default("weights", "4-bit", self.origin["model"])
            elif re.search(r"(?i)(fp8|int8|w8a8|8bit)", model):
                self.default("weights", "8-bit", self.origin["model"])
            if self.found.get("purpose") == "serve" and (kind := own_weights(model)) is not None:
                self.default("weights", kind, self.origin["model"])
        if architecture is None:
            architecture = _stated_dimensions(found)
            if architecture is not None:
                self.default("framework", "megatron", self.origin["layers"])
        if self.found.get("purpose") != "serve" and "weights" in self.found:
            # Quantised weights are not trained: adapters are.
            self.default("lora_rank", _DEFAULT_LORA_RANK, self.origin["weights"])
        return msgspec.convert(
            {**self.found, "architecture": architecture, "origin": self.origin}, Facts, strict=False
        )

    def _take_recipe(self, recipe: re.Match[str], where: str) -> None:
        """Note what the name of torchtune's recipe says: its defaults are 16 bits, checkpoints and rank 8."""
        method = recipe[3]
        self.default("framework", "torchtune", where)
        self.default("model", f"{recipe[1]}-{recipe[2]}", where)
        self.default("precision", "pure-16-bit", where)
        self.default("checkpointing", "full", where)
        self.default("fused_loss", value=True, where=where)
        if "lora" in method:
            self.default("lora_rank", _DEFAULT_LORA_RANK, where)
        if "qlora" in method:
            self.default("weights", "nf4", where)
        if "single_device" not in method:
            self.default("zero_stage", 3, where)

    def _program(self, word: str, following: str) -> None:
        name = word.rpartition("/")[2].lower()
        module = name.partition(".")[0]
        if name in SERVERS or module in SERVERS:
            self.note("purpose", "serve", _SCRIPT)
            self.note("framework", SERVERS.get(name) or SERVERS[module], _SCRIPT)
        elif name == "serve" and not following.startswith("-") and self.found.get("framework") == "vllm":
            self.take("model", following, _SCRIPT)
        else:
            known = TRAINERS.get(name) or next((each for part, each in TRAINER_PARTS.items() if part in name), None)
            if known is not None and "purpose" not in self.found:
                self.default("framework", known, _SCRIPT)


def _parameters_of(model: Value) -> int:
    """The parameters of a model by its name; 0 of one that is not known."""
    architecture = architecture_named(str(model))
    return 0 if architecture is None else architecture.parameters


def _known(key: str, value: str) -> bool:
    return any(read(value) is not None for _, read in OPTIONS.get(key, ()))


def _stated_dimensions(found: Mapping[str, Value]) -> Architecture | None:
    """A model that the command describes by its dimensions, as Megatron-LM's options do.

    With --swiglu, Megatron-LM makes the MLP two thirds as wide, in multiples of 64 (arguments.py).
    """
    hidden, intermediate = found.get("hidden"), found.get("intermediate")
    if intermediate is None and found.get("gated") and isinstance(hidden, int):
        intermediate = hidden * 8 // 3 // 64 * 64
    dimensions = {
        "model_type": "llama" if found.get("gated") else "megatron",
        "num_hidden_layers": found.get("layers"),
        "hidden_size": hidden,
        "num_attention_heads": found.get("heads"),
        "num_key_value_heads": found.get("kv_heads"),
        "intermediate_size": intermediate,
        "vocab_size": found.get("vocabulary", 51200),
        "max_position_embeddings": found.get("sequence"),
        "num_local_experts": found.get("experts"),
    }
    return architecture_of_config(dimensions)
