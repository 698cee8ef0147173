"""The changelog has the version that is installed, a date for each, and what an administrator has to do."""

import re
import tomllib
from datetime import date
from pathlib import Path

from rlalloc import __version__

ROOT = Path(__file__).parents[2]
VERSIONS = re.findall(
    r"^## \[([\d.]+)\] - (\S+)$(.*?)(?=^## |\Z)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
)


def test_the_newest_version_is_this_one() -> None:
    assert VERSIONS[0][0] == __version__
    assert tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"] == __version__


def test_versions_descend_with_their_dates() -> None:
    numbers = [tuple(int(part) for part in version.split(".")) for version, _, _ in VERSIONS]
    days = [date.fromisoformat(day) for _, day, _ in VERSIONS]
    assert numbers == sorted(numbers, reverse=True)
    assert days == sorted(days, reverse=True)
    assert VERSIONS[-1][0] == "0.1.0"


def test_every_version_but_the_first_says_what_to_do_on_upgrade() -> None:
    assert not [version for version, _, text in VERSIONS[:-1] if "### On upgrade" not in text]
