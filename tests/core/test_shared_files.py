"""Files in a directory that others may write, too."""

import os
import tempfile
from pathlib import Path

import pytest

from rlalloc.system.shared_files import open_shared, others_can_replace, read_regular_file, replace_file


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


@pytest.mark.parametrize("kind", ["link", "link to nothing", "hard link", "pipe"])
def test_only_a_file_of_one_name_is_opened(tmp_path: Path, kind: str) -> None:
    """A member of the group puts something else where root is about to append, or to read."""
    victim, path = tmp_path / "victim", tmp_path / "promotions.jsonl"
    victim.write_text("root's")
    match kind:
        case "link":
            path.symlink_to(victim)
        case "link to nothing":
            path.symlink_to(tmp_path / "new")
        case "hard link":
            path.hardlink_to(victim)
        case "pipe":
            os.mkfifo(path)
    for flags in (os.O_WRONLY | os.O_APPEND, os.O_RDONLY):
        with pytest.raises(OSError, match=r"symbolic links|regular file|No such device"):
            open_shared(path, flags)
    if kind != "hard link":
        with pytest.raises(OSError, match=r"symbolic links|regular file"):
            read_regular_file(path)
    assert victim.read_text() == "root's"
    assert not (tmp_path / "new").exists()


def test_a_missing_file_is_made_for_all_who_share_the_directory(tmp_path: Path) -> None:
    for mode, made in ((0o2770, 0o660), (0o755, 0o644)):
        folder = tmp_path / f"{mode:o}"
        folder.mkdir()
        folder.chmod(mode)
        os.close(open_shared(folder / "file", os.O_WRONLY | os.O_APPEND))
        assert (folder / "file").stat().st_mode & 0o777 == made


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give folders away")
def test_whether_others_can_replace_what_lies_somewhere() -> None:
    with tempfile.TemporaryDirectory() as name:
        outer = Path(name)
        outer.chmod(0o755)
        theirs, inside, link = outer / "theirs", outer / "theirs" / "roots", outer / "link"
        inside.mkdir(parents=True)
        link.symlink_to(inside)
        assert others_can_replace(inside) is None
        os.chown(theirs, 61_002, 0)
        assert {others_can_replace(each) for each in (inside, inside / "missing", link)} == {61_002}
        os.chown(theirs, 0, 0)
        assert others_can_replace(link / "missing") is None
        os.lchown(link, 61_003, 0)
        assert others_can_replace(link) == 61_003
        theirs.chmod(0o770)
        assert others_can_replace(inside) == 0
        theirs.chmod(0o1770)
        assert others_can_replace(inside) is None
        theirs.chmod(0o770)
        outer.chmod(0o700)
        assert others_can_replace(inside) is None
