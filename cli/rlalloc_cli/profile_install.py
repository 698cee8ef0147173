"""``rlalloc profile install``: a profile goes where rlallocd reads it."""

from pathlib import Path

from rlalloc.errors import ProfileError
from rlalloc.speed.profile_file import SUFFIX, Profile, read_profile, write_profile
from rlalloc.system.run_as_owner import become_owner_of


def install(file: Path, folder: Path) -> str:
    """Copy a profile under its own name; returns what it speaks for. Raises ProfileError.

    Root works as the owner of the folder from then on.
    """
    profile = read_profile(file)
    sizes = {point.size.gpus for point in profile.points if point.measured is not None}
    if len(sizes) < 2:
        raise ProfileError(
            f"{file}: measured on {len(sizes)} GPU counts: rlallocd needs two to know how a job scales; rlalloc "
            "profile run FILE with the same options and more --gpus adds them"
        )
    says = spoken_for(profile)
    if not says:
        raise ProfileError(
            f"{file}: applies to no job; give jobs, or gpu_types if it was measured on GPUs, under applies_to"
        )
    target = folder / f"{profile.name}{SUFFIX}"
    become_owner_of(folder)
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True)
            folder.chmod(0o755)
        write_profile(profile, target)
        target.chmod(0o644)  # rlallocd is another user, and reads it whatever our umask is
    except OSError as err:
        raise ProfileError(f"cannot write to {folder}: {err.strerror}; run this as root") from err
    return f"{target}: applies to {' and '.join(says)}"


def spoken_for(profile: Profile) -> list[str]:
    """The jobs that a profile speaks for, in words."""
    to = profile.applies_to
    said = []
    if to.jobs:
        users = "" if to.users == ("*",) else f" of {', '.join(to.users)}"
        said.append(f"jobs named {', '.join(to.jobs)}{users}")
    if to.gpu_types and profile.conditions.device == "cuda":
        said.append(f"in part other jobs on {', '.join(to.gpu_types)}")
    return said
