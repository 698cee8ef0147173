"""Files in a directory that others may write, too."""

from pathlib import Path

import pytest

from rlalloc.shared_files import replace_file


@pytest.mark.parametrize("link", ["symbolic", "hard"])
def test_no_link_leads_elsewhere(tmp_path: Path, link: str) -> None:
    """A member of the group puts a link where the new file is about to be written."""
    victim, path = tmp_path / "victim", tmp_path / "intercept"
    victim.write_text("slurmctld's")
    aside = tmp_path / "intercept.new"
    if link == "symbolic":
        aside.symlink_to(victim)
    else:
        aside.hardlink_to(victim)
    replace_file(path, b"ours", 0o644)
    assert (victim.read_text(), path.read_text()) == ("slurmctld's", "ours")
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o644


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "intercept"
    replace_file(path, b"old", 0o644)
    (tmp_path / "intercept.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_file(path, b"new", 0o644)
    assert path.read_bytes() == b"old"
