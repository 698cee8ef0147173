"""The alert rules, by promtool: each fires on what it is for, none on a healthy site, each has its section."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from .prometheus_server import RULES

ROOT: Final = Path(__file__).parents[2]
RUNBOOK: Final = ROOT / "docs" / "admin" / "runbook.md"
DASHBOARD: Final = ROOT / "etc" / "grafana" / "rlalloc.json"
ALERTS: Final[dict[str, dict[str, Any]]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}
TARGET: Final = 'instance="site:9373",job="rlallocd"'
MINUTES: Final = 100
DAYS: Final = 4
SLOW: Final = {"RlallocTrainingNeverSucceeded", "RlallocTrainingOverdue"}
"""Alerts that take days; they are evaluated each quarter of an hour."""
HEALTHY: Final = {
    "up{}": "1",
    "rlallocd_connected{}": "1",
    "rlallocd_standby{}": "0",
    "rlallocd_last_success_timestamp_seconds{}": "now",
    "rlallocd_failed_cycles_total{}": "0",
    "rlallocd_store_errors_total{}": "0",
    'rlallocd_filesystem_available_bytes{directory="store"}': "2e9",
    'rlallocd_filesystem_available_bytes{directory="runtime"}': "2e7",
    "rlallocd_intercept_expires_timestamp_seconds{}": "soon",
    "rlallocd_intercept_errors_total{}": "0",
    "rlallocd_agent_up{}": "1",
    "rlallocd_agent_failures_total{}": "0",
    "rlallocd_agent_policy_unusable{}": "0",
    'rlallocd_policy_changes_total{kind="rollback"}': "2",
    'rlallocd_training_last_result{result="failed"}': "0",
    "rlallocd_training_last_success_timestamp_seconds{}": "now",
    "rlallocd_training_last_end_timestamp_seconds{}": "now",
    'rlallocd_configured_mode{mode="enforce"}': "1",
    'rlallocd_mode{mode="enforce"}': "1",
    "rlallocd_configuration_in_force{}": "1",
    "rlallocd_stale_tables_total{}": "0",
    'rlallocd_begin_seconds_bucket{le="2.0"}': "0+1",
    'rlallocd_begin_seconds_bucket{le="60.0"}': "0+1",
    'rlallocd_begin_seconds_bucket{le="+Inf"}': "0+1",
    "rlallocd_grace_seconds{}": "60",
    'rlallocd_skipped_total{code="late"}': "0",
    "rlallocd_open_applications{}": "0",
    'rlallocd_applications_total{state="lost"}': "0",
    'rlallocd_ends_of_our_doing_total{cause="timeout"}': "0",
    'rlallocd_decided_total{mode="enforce"}': "0+1",
    'rlallocd_decided_total{mode="skipped"}': "0+0.1",
    "rlallocd_time_seconds{}": "now",
    'rlallocd_log_messages_total{level="error"}': "0",
    'rlallocd_check_level{check="submit plugin"}': "0",
    'rlallocd_check_level{check="accounting"}': "0",
    "rlallocd_checks_timestamp_seconds{}": "now",
}
"""Series of a site on which nothing should fire: a value, or start and growth a minute; now and soon are times."""
FAULTS: Final = {
    "RlallocdDown": {"up{}": "0"},
    "RlallocdNotConnected": {"rlallocd_connected{}": "0"},
    "RlallocdAllStandBy": {"rlallocd_standby{}": "1", "rlallocd_connected{}": "0"},
    "RlallocdNoCycle": {"rlallocd_last_success_timestamp_seconds{}": "0"},
    "RlallocSlurmFailing": {"rlallocd_failed_cycles_total{}": "0+1"},
    "RlallocStoreFailing": {"rlallocd_store_errors_total{}": "0+1"},
    "RlallocDiskFull": {'rlallocd_filesystem_available_bytes{directory="runtime"}': "1e6"},
    "RlallocInterceptExpired": {"rlallocd_intercept_expires_timestamp_seconds{}": "0"},
    "RlallocAgentDown": {"rlallocd_agent_up{}": "0"},
    "RlallocAgentFailing": {"rlallocd_agent_failures_total{}": "0+1"},
    "RlallocPolicyUnusable": {"rlallocd_agent_policy_unusable{}": "1"},
    "RlallocPolicyRolledBack": {'rlallocd_policy_changes_total{kind="rollback"}': "0+1"},
    "RlallocTrainingFailed": {'rlallocd_training_last_result{result="failed"}': "1"},
    "RlallocTrainingNeverSucceeded": {"rlallocd_training_last_success_timestamp_seconds{}": "0"},
    "RlallocTrainingOverdue": {"rlallocd_training_last_end_timestamp_seconds{}": "1"},
    "RlallocNotEnforcing": {'rlallocd_mode{mode="enforce"}': "0"},
    "RlallocConfigurationNotInForce": {"rlallocd_configuration_in_force{}": "0"},
    "RlallocPluginTableStale": {"rlallocd_stale_tables_total{}": "0+1"},
    "RlallocJobsWaitTooLong": {'rlallocd_begin_seconds_bucket{le="2.0"}': "0"},
    "RlallocJournalUnfinished": {"rlallocd_open_applications{}": "1"},
    "RlallocUpdateLost": {'rlallocd_applications_total{state="lost"}': "0+1"},
    "RlallocJobsKilled": {'rlallocd_ends_of_our_doing_total{cause="timeout"}': "0+1"},
    "RlallocManyJobsSkipped": {'rlallocd_decided_total{mode="skipped"}': "0+2"},
    "RlallocClockWrong": {"rlallocd_time_seconds{}": "soon"},
    "RlallocErrorsLogged": {'rlallocd_log_messages_total{level="error"}': "0+1"},
    "RlallocPluginNotCalled": {'rlallocd_check_level{check="submit plugin"}': "2"},
    "RlallocCheckFailed": {'rlallocd_check_level{check="accounting"}': "2"},
    "RlallocCheckWarns": {'rlallocd_check_level{check="accounting"}': "1"},
}
"""What makes each alert fire, and no other."""


def series(values: dict[str, str], samples: int, every_s: int) -> list[dict[str, str]]:
    """Promtool's input; its clock begins at zero."""
    notations = {"now": f"0+{every_s}x{samples}", "soon": f"30+{every_s}x{samples}"}
    found = []
    for name, value in values.items():
        labels = name.replace("{}", f"{{{TARGET}}}") if "{}" in name else name.replace("{", f"{{{TARGET},")
        growth = value if "+" in value.replace("e+", "") else f"{value}+0"
        found.append({"series": labels, "values": notations.get(value, f"{growth}x{samples}")})
    return found


def names_that_fire(
    folder: Path, values: dict[str, str], *, every_minutes: int = 1, samples: int = MINUTES
) -> set[str]:
    """Which alerts fire in the end, as promtool finds them.

    It is asked to find none, and names in its complaint what it got.
    """
    shutil.copy(RULES, folder)
    (folder / "test.yml").write_text(
        yaml.safe_dump(
            {
                "rule_files": [RULES.name],
                "evaluation_interval": f"{every_minutes}m",
                "tests": [
                    {
                        "interval": f"{every_minutes}m",
                        "input_series": series(values, samples, 60 * every_minutes),
                        "alert_rule_test": [
                            {
                                "eval_time": f"{(samples - 1) * every_minutes}m",
                                "alertname": name,
                                "exp_alerts": [],
                            }
                            for name in ALERTS
                        ],
                    }
                ],
            }
        )
    )
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=folder, capture_output=True, text=True, check=False
    )
    text = done.stdout + done.stderr
    fires = set(re.findall(r"alertname:\s*(\w+), time: \S+,\s*exp:\[\s*\],\s*got:\[\s*\S", text))
    assert (done.returncode == 0) == (not fires), text
    return fires


def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_fires_on_a_healthy_site(tmp_path: Path) -> None:
    assert names_that_fire(tmp_path, HEALTHY) == set()


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_fires_on_its_fault_and_no_other_does(alert: str, tmp_path: Path) -> None:
    if alert in SLOW:
        samples = DAYS * 24 * 4
        assert names_that_fire(tmp_path, HEALTHY | FAULTS[alert], every_minutes=15, samples=samples) == {alert}
    else:
        assert names_that_fire(tmp_path, HEALTHY | FAULTS[alert]) == {alert}


def test_checks_that_are_not_done_any_more_are_told(tmp_path: Path) -> None:
    stale = HEALTHY | {"rlallocd_checks_timestamp_seconds{}": "1"}
    assert names_that_fire(tmp_path, stale, every_minutes=15, samples=MINUTES) == {"RlallocCheckFailed"}


def test_a_check_with_an_alert_of_its_own_fires_no_second_one(tmp_path: Path) -> None:
    full = HEALTHY | {'rlallocd_check_level{check="disk"}': "2", 'rlallocd_check_level{check="training"}': "1"}
    assert names_that_fire(tmp_path, full) == set()


def test_a_target_that_is_not_configured_is_a_daemon_that_is_down(tmp_path: Path) -> None:
    assert names_that_fire(tmp_path, {}) == {"RlallocdDown"}


def test_alerts_and_sections_of_the_runbook_match_one_to_one() -> None:
    text = RUNBOOK.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == list(ALERTS)
    for name, section in sections.items():
        for part in ("**Check**\n\n    ", "**Remedy.**", "**How urgent:**", "**Jobs at risk:**"):
            assert part in section, f"{name} lacks {part}"
        assert ALERTS[name]["annotations"]["runbook_url"] == f"docs/admin/runbook.md#{name.lower()}"
        assert ALERTS[name]["labels"]["severity"] in ("critical", "warning", "info")


def test_metrics_of_rules_and_dashboard_exist() -> None:
    table = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^\| `(rlallocd_\w+)", table, re.MULTILINE))
    named = set(re.findall(r"\brlallocd_\w+", RULES.read_text() + DASHBOARD.read_text()))
    stems = {re.sub(r"_(bucket|count|sum)$", "", name) for name in named}
    assert stems <= known


def test_the_dashboards_panels_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)
