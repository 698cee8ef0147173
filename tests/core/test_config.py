"""The configuration is strict, and says which key, what was found and what is allowed."""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from rlalloc.config import Config, config_as_yaml, load_config, parse_config
from rlalloc.errors import ConfigError

ROOT = Path(__file__).parents[2]


def test_an_empty_file_is_the_defaults_and_those_are_shadow() -> None:
    assert parse_config("", "x") == Config()
    assert Config().mode == "shadow"


@pytest.mark.parametrize(
    "endpoint",
    ["ipc:///run/rlalloc/agent.sock", "ipc:///" + 106 * "x", "tcp://*:5555", "tcp://[::1]:1", "tcp://a-1.org:9"],
)
def test_the_agent_may_listen_where_keys_or_a_mode_protect_it(endpoint: str) -> None:
    assert parse_config(f"agent: {{endpoint: '{endpoint}'}}", "x").agent.endpoint == endpoint


def test_what_is_shown_can_be_read_again() -> None:
    config = parse_config("mode: off\nrules: [{name: a, bounds: {gpus_factor: [0.5, 2]}}]", "x")
    assert parse_config(config_as_yaml(config), "x") == config


def test_the_shipped_file_is_valid_and_names_every_key() -> None:
    shipped = ROOT / "etc" / "rlalloc.yaml"
    assert load_config(shipped).mode == "shadow"
    assert load_config(shipped) == Config()
    named = set(re.findall(r"^\s*(?:- )?(\w+):", shipped.read_text(), re.MULTILINE))
    assert set(re.findall(r"^\s*(?:- )?(\w+):", config_as_yaml(Config()), re.MULTILINE)) == named


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mod: shadow", "mod: unknown key; did you mean 'mode'"),
        ("agent: {deadline: 3}", "agent.deadline: unknown key; did you mean 'deadline_s'"),
        ("agent: {endpoint: 'tcp://0.0.0.0'}", "agent.endpoint: found 'tcp://0.0.0.0'; write ipc:///PATH, or tcp"),
        ("agent: {endpoint: 'udp://127.0.0.1:5555'}", "agent.endpoint: .*with keys"),
        ("agent: {endpoint: 'tcp://eth0;127.0.0.1:5555'}", "agent.endpoint"),
        ("agent: {endpoint: agent.sock}", "agent.endpoint"),
        ("agent: {endpoint: 'ipc:///" + 107 * "x" + "'}", "agent.endpoint: .*at most 107 characters"),
        ("agent: {endpoint: 'tcp://a:65536'}", "agent.endpoint: found 'tcp://a:65536'; the last port is 65535"),
        ("metrics: {listen: '127.0.0.1:99999'}", "metrics.listen: .*the last port is 65535"),
        ("metrics: {checks_every_s: 0.001}", "metrics.checks_every_s: Expected `float` >= 10"),
        ("daemon: {poll_s: 0.000001}", "daemon.poll_s: Expected `float` >= 0.1; found 1e-06"),
        ("rules: [{name: a, bounds: {foo: 1}}]", r"rules\[0\].bounds.foo: unknown key. Allowed: min_cpus_per_gpu"),
        ("mode: on", "mode: .*'on'. Allowed: off, shadow, enforce"),
        ("grace_s: soon", "grace_s: Expected `int`, got `str`; found 'soon'"),
        ("grace_s: 1", "grace_s: Expected `int` >= 5; found 1"),
        ("waiting: {every_s: 10}", "waiting: this section is now redecision; rename it"),
        ("grace_s: 10\ngrace_s: 20", "is given twice"),
        ("rules: [{name: a}, {name: a}]", "each rule needs a name of its own"),
        ("rules: [{name: 'a b'}]", "use letters, digits"),
        ("rules: [{name: a, partitions: ['gpu, cpu']}]", r"rules\[0\].partitions"),
        ("runtime_directory: run", "Expected an absolute path"),
        ("objective: {price: {queue_power: -1}}", "objective.price.queue_power: Expected `float` >= 0.0; found -1"),
        ("objective: {weights: {jtc: 1}}", "objective.weights.jtc: unknown key; did you mean 'jct'"),
        ("objective: {weights: {jct: -1}}", "objective.weights.jct: Expected `float` >= 0.0; found -1"),
        (
            "objective: {weights: {jct: 0, out_of_memory: 0, timeout: 0}}",
            "all are 0; give at least one term a weight",
        ),
        (
            "objective: {weights: {jct: 0, out_of_memory: 0, timeout: 0}, plugin_weights: {gold: 1}}",
            "all are 0; give at least one term a weight",
        ),
        ("objective: {plugin_weights: {energy: 1}}", "write it in objective.weights"),
        ("objective: {plugin_weights: {gold: 1}}", "gold: no installed distribution provides it .*rlalloc.rewards"),
        ("commands: {hpc: [a]}", "Allowed: serve, finetune, train, evaluate"),
        ("[1, 2]", "the file: Expected `object`"),
        ("{", "not valid YAML"),
        # What PyYAML takes for something else, or cannot read at all.
        ("grace_s: 0100", "found '0100'. Write a decimal number"),
        ("mode: !!bool maybe", "a tag .* does not fit its value"),
        ("mode: !!timestamp x", "a tag .* does not fit its value"),
        ("grace_s: 1:30", "found '1:30'. Write a decimal number"),
        ("grace_s: 2026-13-45", "found '2026-13-45'"),
        ("grace_s: " + 4400 * "9", "not valid YAML: Exceeds the limit"),
        ("gpu_memory: {a100: 80GB}", "Write a decimal number, without quotes and without a unit"),
        ("gpu_memory: {100: 80}", "gpu_memory: 100: a key has to be a word; write it in quotes"),
        ("gpu_speed: {h200: 0}", r"gpu_speed\[...\]: Expected `float` >= 0.001"),
        ("gpu_speed: {a100_1g.10gb: 0.1}", "gpu_speed: found 'a100_1g.10gb'; write types of whole GPUs"),
        (
            "rules: [{name: a, choose_gpu_types: [mi300x]}]\ngpu_speed: {mi300: 2.8}",
            r"does not know its speed; .*gpu_speed: \{mi300x: SPEED\}, relative to an A100",
        ),
        ("? [a, b]\n: 1", r"a list or a section cannot be a key \(line 1\)"),
        ("agent:\n\tdeadline_s: 1", "indent with blanks, not with tabs"),
        ("mode: " + 500 * "[", "nested too deeply"),
        ('mode: "\\ud800"', "not text"),
        ('"\\e[2Jx": 1', r"\\x1b\[2Jx: unknown key"),
        ("mode: Off", "did you mean 'off'\\? Allowed: off, shadow, enforce"),
        ("mode: False", "found False. Allowed: off, shadow, enforce"),
        ("mode: \N{LEFT DOUBLE QUOTATION MARK}off\N{RIGHT DOUBLE QUOTATION MARK}", "did you mean 'off'"),
        ("history: {pseudonymize: yes}", "found 'yes'. Allowed: true, false"),
        ("agent:\nmode: off", "agent: nothing is written for it; write a value, or remove the line"),
        ("deadline_s: 3", "deadline_s: unknown key; it is a key of agent. Allowed"),
        ("Mode: off", "Mode: unknown key; did you mean 'mode'"),
        ("commands: {trian: [a]}", "did you mean 'train'"),
        ("rules: [{name: a, accounts: [1001]}]", r"rules\[0\].accounts\[0\]: .*Write it in quotes"),
        ("rules: [{name: a, accounts: []}]", "the list is empty, so the rule would cover no job"),
        ("rules: [{name: a, bounds: {gpus_factor: [2, 0.5]}}]", "write the smaller number first"),
        ("rules: [{name: a, bounds: {moldable: {gpus_factor: [2, 0.5]}}}]", "write the smaller number first"),
        ("rules: [{name: a, bounds: {gpus_factor: [.nan, .inf]}}]", "gpus_factor.*found nan"),
        ("trainer: {seed: -1}", "trainer.seed: Expected `int` >= 0"),
        ('runtime_directory: "/run/\\0x"', "Expected an absolute path"),
    ],
)
def test_a_wrong_file_is_explained(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_config(text, "rlalloc.yaml")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing.yaml: No such file.*--config"):
        load_config(tmp_path / "nothing.yaml")


def test_the_top_mode_is_every_rules_and_a_rule_can_only_lower_it() -> None:
    rules = "rules: [{name: a, mode: enforce}, {name: b, mode: off}, {name: c}, {name: d, mode: null}]"
    for mode, modes in {
        "shadow": ["shadow", "off", "shadow", "shadow"],
        "enforce": ["enforce", "off", "enforce", "enforce"],
        "off": ["off", "off", "off", "off"],
    }.items():
        config = parse_config(f"mode: {mode}\n{rules}", "x")
        assert [config.mode_of(rule) for rule in config.rules] == modes


def test_one_word_of_the_shipped_file_switches_enforcing_on() -> None:
    shipped = Path("etc/rlalloc.yaml").read_text().replace("\nmode: shadow", "\nmode: enforce")
    config = parse_config(shipped, "etc/rlalloc.yaml")
    assert [config.mode_of(rule) for rule in config.rules] == ["enforce"]


def test_words_are_words_and_what_else_editors_leave_in_a_file_does_no_harm() -> None:
    """Line ends of Windows, a byte order mark, True, names that begin like a value, a rule made from another."""
    rules = """rules:
 - &base {name: trueish, accounts: [on, 'no', falsework, 1e5, 0x1f], mode: off}
 - {<<: *base, name: nullable}
"""
    text = "\N{ZERO WIDTH NO-BREAK SPACE}history: {pseudonymize: True}\n" + rules
    config = parse_config(text.replace("\n", "\r\n"), "x")
    assert config.history.pseudonymize
    assert [(rule.name, rule.mode, rule.accounts[0]) for rule in config.rules] == [
        ("trueish", "off", "on"),
        ("nullable", "off", "on"),
    ]
    assert config.rules[0].accounts[2:4] == ("falsework", "1e5")
    assert parse_config(config_as_yaml(config), "x") == config


def _texts_with(garbage: str) -> Iterator[str]:
    """For each section and key of the shipped file, a file in which it has this value, and nothing else is set."""
    for path in _paths(yaml.safe_load((ROOT / "etc" / "rlalloc.yaml").read_text())):
        text = garbage
        for key in reversed(path):
            text = f"[{text}]" if isinstance(key, int) else f"{{{key}: {text}}}"
        yield text.replace("{rules: [{", "{rules: [{name: a, ").replace("name: a, name: ", "name: ")


def _paths(tree: object) -> Iterator[tuple[str | int, ...]]:
    children = tree.items() if isinstance(tree, dict) else enumerate(tree[:1]) if isinstance(tree, list) else ()
    for key, value in children:
        yield (key,)
        yield from ((key, *rest) for rest in _paths(value))


@pytest.mark.parametrize("garbage", [".nan", ".inf", "~", "[[]]", "{0: 1}", '"\\ud800"', "9" * 30, "2026-01-01"])
def test_whatever_stands_in_place_of_a_value_is_read_or_explained(garbage: str) -> None:
    """Nothing else than ConfigError is raised, and no number without a value comes through."""
    for text in _texts_with(garbage):
        with contextlib.suppress(ConfigError):
            config = msgspec.to_builtins(parse_config(text, "x"), enc_hook=str)
            json.dumps(config, allow_nan=False)


def test_only_a_regular_file_of_a_sensible_size_is_read(tmp_path: Path) -> None:
    """No reading command, and no start, waits for a pipe or reads a log of gigabytes."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "large").write_text("#" * (1 << 20) + "\nmode: off")
    for name, says in {
        "pipe": "not a regular file",
        "loop": "Too many levels",
        "large": "too large",
        "": "directory",
    }.items():
        with pytest.raises(ConfigError, match=says):
            load_config(tmp_path / name)
    (tmp_path / "right").write_text("mode: off")
    (tmp_path / "link").symlink_to(tmp_path / "right")
    assert load_config(tmp_path / "link").mode == "off"
