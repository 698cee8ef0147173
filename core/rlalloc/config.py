"""The configuration: one YAML file, typed and strict, each key with its default and meaning here.

``load_config`` refuses an unknown key, a wrong type or a value out of range, and says which key, what was found and
what is allowed.
"""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import yaml

from rlalloc.bounds import MoldableBounds, SiteBounds
from rlalloc.config_mistakes import explain_mistake
from rlalloc.devices import is_slice
from rlalloc.errors import ConfigError
from rlalloc.heuristics import PriceConstants
from rlalloc.job import JOB_CLASSES, MODES, JobClass, Mode
from rlalloc.llm.script_options import OPTION_NAMES
from rlalloc.objective import PowerModel, Weights
from rlalloc.objective.terms import REWARDS, TERMS
from rlalloc.objective.weights import NotNegative
from rlalloc.scripts.script_class import CommandKind
from rlalloc.scripts.script_rules import ScriptRules
from rlalloc.scripts.script_words import WordTable
from rlalloc.speed.type_speeds import MEASURED_TYPES, TypeSpeeds
from rlalloc.strict_yaml import YamlError, read_yaml
from rlalloc.system.shared_files import read_regular_file
from rlalloc.urgency import UrgencyRules
from rlalloc.usage.trimming_rules import TrimmingSection

DEFAULT_PATH: Final = Path("/etc/rlalloc/rlalloc.yaml")
_ENDPOINT: Final = re.compile(
    r"ipc://(?=.{2,107}$)/[^\s\x00]+|tcp://(\*|[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}"
)

_LAST_PORT: Final = 65535
_LARGEST_BYTES: Final = 1 << 20

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86400)]
Pace = Annotated[float, msgspec.Meta(ge=0.1, le=86400)]
"""Seconds between two times that something is done: never so few that nothing else is done."""
Count = Annotated[int, msgspec.Meta(ge=1)]
Days = Annotated[int, msgspec.Meta(ge=90, le=36500)]
"""An outcome is looked for during 90 days."""
GpuGib = Annotated[float, msgspec.Meta(gt=0, le=4096)]
OverA100 = Annotated[float, msgspec.Meta(ge=0.001, le=1000)]
Fraction = Annotated[float, msgspec.Meta(gt=0, lt=1)]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all sections: immutable, no unknown keys."""


class SlurmSection(_Section, frozen=True):
    """How Slurm is spoken to. ``calls_per_minute`` is for reading; what jobs wait for is never delayed.

    ``will_run``: whether slurmctld is asked, where Slurm's Perl API is installed, if a resized job could start.
    """

    backend: Literal["auto", "pyslurm", "cli"] = "auto"
    will_run: Literal["auto", "off"] = "auto"
    command_timeout_s: Seconds = 10.0
    calls_per_minute: Annotated[int, msgspec.Meta(ge=10, le=6000)] = 240


class AgentSection(_Section, frozen=True):
    """Where the policy agent listens and how long the daemon waits for it.

    ``endpoint`` is the path of a socket with an owner and a mode, or TCP, which needs the keys in ``keys``
    (``rlalloc.curve_keys``): daemon and agent refuse to start without them.
    """

    endpoint: str = "ipc:///run/rlalloc/agent.sock"
    deadline_s: Seconds = 1.0
    torch_threads: Count = 1
    keys: Path = Path("/etc/rlalloc/keys")


class DaemonSection(_Section, frozen=True):
    """The pace of rlallocd. It also wakes whenever the plugin says that a job came in."""

    poll_s: Pace = 5.0
    outcomes_every_s: Pace = 30.0
    heartbeat_s: Pace = 10.0


class MetricsSection(_Section, frozen=True):
    """Where rlallocd serves its metrics over HTTP, as ``address:port``; empty: nowhere. And how often it checks."""

    listen: Annotated[str, msgspec.Meta(pattern=r"^$|^[A-Za-z0-9.-]+:[0-9]{1,5}$")] = "127.0.0.1:9373"
    checks_every_s: Annotated[float, msgspec.Meta(ge=10, le=86400)] = 300.0


class RedecisionSection(_Section, frozen=True):
    """When a pending job gets another decision (only where its rule enforces).

    ``change`` and ``min_gain`` are fractions; ``max_updates: 0`` turns re-decisions off, and then each job is decided
    once, when it comes.
    """

    every_s: Pace = 30.0
    head: Count = 20
    change: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    min_gain: Fraction = 0.05
    max_updates: Annotated[int, msgspec.Meta(ge=0, le=100)] = 3
    leave_alone_s: Annotated[float, msgspec.Meta(ge=0, le=86400)] = 60.0


class StoreSection(_Section, frozen=True):
    """Where decisions and outcomes are kept: an SQLAlchemy URL; and for how many days.

    With the key in ``key_file``, which nobody but rlallocd may read, it tells its journal from what others write.
    ``keep_experience_days`` is for decisions that the trainer can learn from, ``keep_days`` for all others, and
    ``keep_history_days`` for past jobs of all users.
    """

    url: str = "sqlite:////var/lib/rlalloc/store.sqlite"
    key_file: Path = Path("/var/lib/rlallocd/journal.key")
    keep_days: Days = 365
    keep_experience_days: Days = 1095
    keep_history_days: Days = 730


class HistorySection(_Section, frozen=True):
    """How jobs of the site that have ended are kept: all of them, ours or not.

    At its first start, rlallocd reads those of the last ``first_days``; 0: only those of the last day. With
    ``pseudonymize`` the names of users, accounts and jobs are replaced, by the key in ``key_file``.
    """

    every_s: Pace = 300.0
    first_days: Annotated[int, msgspec.Meta(ge=0, le=36500)] = 90
    pseudonymize: bool = False
    key_file: Path = Path("/var/lib/rlalloc/history.key")


class NodesSection(_Section, frozen=True):
    """Which compute nodes have the TaskProlog: those that a check has seen it on, or all (``trusted``)."""

    task_prolog: Literal["checked", "trusted"] = "checked"


class PolicySection(_Section, frozen=True):
    """Which policy decides. ``mean`` takes its answer; ``sample`` draws around it, for experiments only."""

    directory: Path = Path("/var/lib/rlalloc/policies")
    exploration: Literal["sample", "mean"] = "mean"


class SpeedSection(_Section, frozen=True):
    """What is known of how jobs scale beside their own runs: ``profiles`` is a folder of measured profiles."""

    profiles: Path = Path("/var/lib/rlalloc/profiles")


class ObjectiveSection(_Section, frozen=True):
    """What the site wants (docs/admin/objective.md): weights of the terms; the policy is conditioned on them.

    ``plugin_weights`` are of terms that plug-ins bring; they count in rewards, and policies are not conditioned on
    them. ``price`` is what a real job's GPUs are estimated to cost the others; the heuristics keep constants of their
    own (``rlalloc.heuristics.price``): policies were trained on them.
    """

    weights: Weights = Weights()
    plugin_weights: dict[str, NotNegative] = msgspec.field(default_factory=dict)
    power: PowerModel = PowerModel()
    price: PriceConstants = PriceConstants()


class TrainerSection(_Section, frozen=True):
    """How ``rlalloc train run`` learns and judges."""

    min_experience: Count = 20
    held_out_fraction: Fraction = 0.3
    steps: Count = 2000
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)] = 0
    confidence: Fraction = 0.9


class Rule(_Section, frozen=True):
    """Which jobs rlalloc looks at, in which mode, within which bounds. The first rule that matches a job counts.

    ``mode`` None is the file's mode. ``partitions`` and ``accounts`` are names; "*" stands for all.
    ``choose_gpu_types`` are types of GPUs, as in Slurm's GRES, of which rlalloc may choose one for a job that names
    none.
    """

    name: str
    mode: Mode | None = None
    partitions: tuple[str, ...] = ("*",)
    accounts: tuple[str, ...] = ("*",)
    classes: tuple[JobClass, ...] = JOB_CLASSES
    choose_gpu_types: tuple[str, ...] = ()
    bounds: SiteBounds = SiteBounds()

    def covers(self, partitions: str, account: str) -> bool:
        """Whether it is for jobs in all these partitions (separated by commas) and in the account."""
        accounts = {name.lower() for name in self.accounts}
        return ("*" in self.partitions or set(partitions.split(",")) <= set(self.partitions)) and (
            "*" in accounts or account.lower() in accounts
        )


DEFAULT_COMMANDS: Final[dict[CommandKind, tuple[str, ...]]] = {
    "serve": (
        "vllm serve",
        "vllm.entrypoints",
        "from vllm",
        "text-generation-launcher",
        "sglang.launch_server",
        "trtllm-serve",
        "lmdeploy serve",
        "ollama serve",
        "llama-server",
    ),
    "finetune": (
        "llamafactory-cli",
        "axolotl",
        "tune run",
        "trl ",
        "unsloth",
        "swift sft",
        "sft.py",
        "finetune",
        "finetuning",
    ),
    "train": (
        "torchrun",
        "torch.distributed",
        "deepspeed",
        "accelerate launch",
        "accelerate.commands",
        "composer ",
        "lightning",
        "trainer.devices",
        "verl.trainer",
        "litgpt",
        "megatron",
        "pretrain_",
        "train_llm",
        "train_gpt",
        "OLMo",
        "EasyLM",
        "MaxText",
        "maxtext",
        "model_name_or_path",
    ),
    "evaluate": ("lm_eval", "lm-evaluation-harness", "lighteval vllm", "lighteval accelerate"),
}


class Config(_Section, frozen=True):
    """The whole file. ``mode`` is every rule's; a rule's own ``mode`` can only lower it. One word switches all."""

    mode: Mode = "shadow"
    grace_s: Annotated[int, msgspec.Meta(ge=5, le=3600)] = 60
    runtime_directory: Path = Path("/run/rlalloc")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    slurm: SlurmSection = SlurmSection()
    nodes: NodesSection = NodesSection()
    agent: AgentSection = AgentSection()
    daemon: DaemonSection = DaemonSection()
    metrics: MetricsSection = MetricsSection()
    redecision: RedecisionSection = RedecisionSection()
    urgency: UrgencyRules = UrgencyRules()
    store: StoreSection = StoreSection()
    history: HistorySection = HistorySection()
    trimming: TrimmingSection = TrimmingSection()
    policy: PolicySection = PolicySection()
    speed: SpeedSection = SpeedSection()
    objective: ObjectiveSection = ObjectiveSection()
    trainer: TrainerSection = TrainerSection()
    gpu_memory: dict[str, GpuGib] = msgspec.field(default_factory=dict)
    gpu_speed: dict[str, OverA100] = msgspec.field(default_factory=dict)
    commands: dict[CommandKind, tuple[str, ...]] = msgspec.field(default_factory=lambda: dict(DEFAULT_COMMANDS))
    scripts: ScriptRules = ScriptRules()
    rules: tuple[Rule, ...] = (Rule(name="llm", bounds=SiteBounds(moldable=MoldableBounds(gpus_factor=(0.5, 2.0)))),)

    @property
    def word_table(self) -> WordTable:
        """The words of a script that the submit plugin collects: for consent, and for what its LLM needs."""
        return _word_table(self.scripts)

    @property
    def type_speeds(self) -> TypeSpeeds:
        """How fast types of GPU are: what rlalloc knows, and what the site sets."""
        return TypeSpeeds(tuple(self.gpu_speed.items()))

    def mode_of(self, rule: Rule) -> Mode:
        """The mode in force for ``rule``: the file's, or its own where that is lower."""
        return min(self.mode, rule.mode or self.mode, key=MODES.index)

    def rule(self, name: str) -> Rule | None:
        """The rule of that name, or None if the file no longer has it."""
        return next((rule for rule in self.rules if rule.name == name), None)


@functools.lru_cache(maxsize=16)
def _word_table(scripts: ScriptRules) -> WordTable:
    """Kept: each job's tag is compared with it."""
    return scripts.table(f"--{name}" for name in OPTION_NAMES)


def load_config(path: Path = DEFAULT_PATH) -> Config:
    """Read and check a configuration file. Raises ConfigError with all that a person needs to mend it."""
    try:
        text = read_regular_file(path, follow=True, largest_bytes=_LARGEST_BYTES).decode("utf-8")
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror}; name another file with --config") from err
    except UnicodeDecodeError as err:
        raise ConfigError(f"{path}: not UTF-8 text ({err.reason} at byte {err.start})") from err
    return parse_config(text, str(path))


def parse_config(text: str, source: str) -> Config:
    """Check the text of a configuration file; ``source`` names it in errors. Raises ConfigError."""
    try:
        tree = read_yaml(text)
    except YamlError as err:
        raise ConfigError(f"{source}: not valid YAML: {err}") from err
    for old, new in _RENAMED.items():
        if isinstance(tree, dict) and old in tree:
            raise ConfigError(f"{source}: {old}: this section is now {new}; rename it, its keys are the same")
    try:
        config = msgspec.convert({} if tree is None else tree, Config, dec_hook=_read_path)
    except msgspec.ValidationError as err:
        raise ConfigError(f"{source}: {explain_mistake(str(err), tree, Config)}") from err
    except UnicodeEncodeError as err:  # half of a pair of UTF-16, written as \ud800
        raise ConfigError(f"{source}: not text: {err.object!r}") from err
    _check_endpoint(config.agent.endpoint, source)
    for key, address in (("agent.endpoint", config.agent.endpoint), ("metrics.listen", config.metrics.listen)):
        _check_port(key, address, source)
    _check_objective(config.objective, source)
    _check_gpu_speed(config.gpu_speed, source)
    _check_rules(config, source)
    _check_words(config, source)
    return config


def config_as_yaml(config: Config) -> str:
    """Return the whole configuration in force, defaults included, as YAML."""
    plain = msgspec.to_builtins(config, enc_hook=str)
    return yaml.safe_dump(plain, sort_keys=False, width=110)


def _read_path(kind: type, value: Any) -> Path:
    """The one type in the file that msgspec does not know by itself."""
    if kind is not Path or not isinstance(value, str) or not Path(value).is_absolute() or not value.isprintable():
        raise ValueError("Expected an absolute path")
    return Path(value)


def _check_endpoint(endpoint: str, source: str) -> None:
    """Refuse what cannot be protected, by a file's mode or by keys (``rlalloc.curve_keys`` looks for those)."""
    if _ENDPOINT.fullmatch(endpoint) is None:
        raise ConfigError(
            f"{source}: agent.endpoint: found {endpoint!r}; write ipc:///PATH, or tcp://HOST:PORT with keys "
            "(docs/admin/two-hosts.md); a PATH has at most 107 characters"
        )


def _check_port(key: str, address: str, source: str) -> None:
    port = address.rpartition(":")[2]
    if not address.startswith("ipc:") and port.isdecimal() and int(port) > _LAST_PORT:
        raise ConfigError(f"{source}: {key}: found {address!r}; the last port is {_LAST_PORT}")


def _check_objective(objective: ObjectiveSection, source: str) -> None:
    if not any(msgspec.structs.astuple(objective.weights)):  # plug-ins' alone would leave nothing to tell the policy
        raise ConfigError(f"{source}: objective.weights: all are 0; give at least one term a weight")
    for name in objective.plugin_weights:
        if name in TERMS:
            raise ConfigError(f"{source}: objective.plugin_weights.{name}: write it in objective.weights")
        if name not in REWARDS.plugins():
            there = ", ".join(REWARDS.plugins()) or "none"
            raise ConfigError(
                f"{source}: objective.plugin_weights.{name}: no installed distribution provides it (rlalloc.rewards: "
                f"{there}); install it beside rlallocd, or remove the line"
            )


def _check_gpu_speed(gpu_speed: Mapping[str, float], source: str) -> None:
    for gpu_type in gpu_speed:
        if is_slice(gpu_type):
            raise ConfigError(f"{source}: gpu_speed: found {gpu_type!r}; write types of whole GPUs")


def _check_rules(config: Config, source: str) -> None:
    names, speeds = [rule.name for rule in config.rules], config.type_speeds
    for number, rule in enumerate(config.rules):
        if re.fullmatch(r"[A-Za-z0-9_-]{1,32}", rule.name) is None:
            raise ConfigError(f"{source}: rules[{number}].name: found {rule.name!r}; use letters, digits, - and _")
        if names.count(rule.name) > 1:
            raise ConfigError(
                f"{source}: rules[{number}].name: {rule.name!r} is given twice; each rule needs a name of its own"
            )
        _check_lists(rule, f"{source}: rules[{number}]")
        _check_factors(rule.bounds, f"{source}: rules[{number}].bounds")
        for gpu_type in rule.choose_gpu_types:
            if not speeds.knows(gpu_type):
                raise ConfigError(
                    f"{source}: rules[{number}].choose_gpu_types: found {gpu_type!r}, but rlalloc does not know "
                    f"its speed; write types of {', '.join(MEASURED_TYPES)}, or measure it and write "
                    f"gpu_speed: {{{gpu_type}: SPEED}}, relative to an A100"
                )


def _check_lists(rule: Rule, where: str) -> None:
    """Refuse a list that names nothing, and a name that the intercept file cannot have."""
    for what, words in (("partitions", rule.partitions), ("accounts", rule.accounts), ("classes", rule.classes)):
        if not words:
            raise ConfigError(f"{where}.{what}: the list is empty, so the rule would cover no job; write mode: off")
        for word in words:
            if re.fullmatch(r"\*|[^\s,=]+", word) is None:
                raise ConfigError(f'{where}.{what}: found {word!r}; write one name, or "*"')


def _check_factors(bounds: SiteBounds, where: str) -> None:
    for what, factors in (("gpus_factor", bounds.gpus_factor), ("moldable.gpus_factor", bounds.moldable.gpus_factor)):
        if factors is not None and factors[0] > factors[1]:
            raise ConfigError(f"{where}.{what}: found {list(factors)}; write the smaller number first")


def _check_words(config: Config, source: str) -> None:
    for kind, entries in msgspec.structs.asdict(config.scripts).items():
        for entry in entries:
            if kind == "shell_setup":
                pattern, what = r"[\w.$/:*-]+", "write one file or command, of letters, digits and _.$/:-*"
            else:
                pattern = r"[\w.$/:-]+( [\w.$/:-]+)?"
                what = "write one option, setting or command, of letters, digits and _.$/:-"
            if re.fullmatch(pattern, entry, re.ASCII) is None:
                raise ConfigError(f"{source}: scripts.{kind}: found {entry!r}; {what}")
    for kind_of_job, words in config.commands.items():
        for word in words:
            if not word.strip() or "\n" in word:
                raise ConfigError(f"{source}: commands.{kind_of_job}: found {word!r}; write a part of a command line")


_RENAMED: Final = {"waiting": "redecision"}
"""Sections by their names of before, and of now."""
