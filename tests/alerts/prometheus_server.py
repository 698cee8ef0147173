"""Debian's Prometheus, with the project's rules and one target."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final, Self

import yaml

from slurm_testbed import wait_until

_WITHIN_S: Final = 240.0
RULES: Final = Path(__file__).parents[2] / "etc" / "prometheus" / "rlalloc.rules.yml"


class PrometheusServer:
    """It scrapes ``target`` each few seconds, and lets an alert fire without its ``for``.

    What fires here would fire on a site, where the state lasts as long as the rule wants.
    """

    def __init__(self, folder: Path, target: str, port: int) -> None:
        folder.mkdir(parents=True)
        rules = re.sub(r"^( +for:) .*$", r"\1 0s", RULES.read_text(), flags=re.MULTILINE)
        (folder / "rules.yml").write_text(rules)
        (folder / "prometheus.yml").write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": "3s", "scrape_timeout": "3s", "evaluation_interval": "1s"},
                    "rule_files": ["rules.yml"],
                    "scrape_configs": [{"job_name": "rlallocd", "static_configs": [{"targets": [target]}]}],
                }
            )
        )
        self._address = f"http://127.0.0.1:{port}"
        self._log = (folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def __enter__(self) -> Self:
        wait_until(lambda: self.query("vector(1)"), what="Prometheus answers", timeout_s=60)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=60)
        self._log.close()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What an expression gives now; nothing while Prometheus is not up. Raises ValueError for a wrong one."""
        url = f"{self._address}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as err:
            if err.code == 400:
                raise ValueError(f"{expression}: {err.read().decode()}") from err
            return []
        except OSError:
            return []
        return found

    def firing(self) -> set[str]:
        """The names of the alerts that fire now, those about a check with its name, as ``Alert: check``."""
        labels = [each["metric"] for each in self.query('ALERTS{alertstate="firing"}')]
        return {": ".join([each["alertname"], *([each["check"]] if "check" in each else [])]) for each in labels}

    def wait_for(self, *alerts: str) -> None:
        """Wait until all of these fire, and print what fires then (``pytest -s``)."""
        wait_until(lambda: set(alerts) <= self.firing(), what=f"{', '.join(alerts)} fire", timeout_s=_WITHIN_S)
        test = os.environ["PYTEST_CURRENT_TEST"].split("::")[-1]
        sys.stdout.write(f"\n{test}: {', '.join(sorted(self.firing()))}\n")
