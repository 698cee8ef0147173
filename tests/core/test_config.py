"""The configuration is strict, and says which key, what was found and what is allowed."""

import re
from pathlib import Path

import pytest

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
        ("commands: {hpc: [a]}", "Allowed: train, finetune, serve"),
        ("[1, 2]", "the file: Expected `object`"),
        ("{", "not valid YAML"),
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
