"""``rlalloc profile run``: from the options to the conditions, the sizes and the runner, with a progress bar."""

import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rlalloc.errors import ProfileError
from rlalloc.speed.profile_file import SUFFIX, AppliesTo, Conditions, Device, Profile, Size
from rlalloc_trainer.profiling.gpt_shapes import LARGEST, largest_that_fits, model_named
from rlalloc_trainer.profiling.local_points import LocalPoints, Machine, this_machine
from rlalloc_trainer.profiling.point_grid import check_batch, counts_of, grid, layouts_of, memories_of
from rlalloc_trainer.profiling.profile_session import PointRunner, Session, opened

_SLURM_TIMEOUT_S: Final = 30.0
_SLURM_GPUS: Final = "1,2,4,8"


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command."""

    gpus: str | None
    cpus_per_gpu: str
    mem_per_gpu: str
    model: str
    global_batch: int
    micro_batch: int
    sequence: int
    steps: int
    warmup_steps: int
    loader_workers: int
    data: Path | None
    device: Literal["auto", "cuda", "cpu"]
    backend: Literal["auto", "nccl", "gloo"]
    minutes: int
    slurm: bool
    gpus_per_node: int
    gpu_type: str
    at_once: int
    sbatch: tuple[str, ...]
    jobs: tuple[str, ...]
    users: tuple[str, ...]


def run_profile(path: Path, options: RunOptions) -> Profile:
    """Measure what is missing of the profile at ``path`` and return it. Raises ProfileError, SlurmError."""
    if path.suffix != SUFFIX:
        raise ProfileError(f"{path.name}: name a file that ends in {SUFFIX}")
    if importlib.util.find_spec("torch") is None:
        raise ProfileError("there is no torch (torchrun) here: pip install 'rlalloc[trainer]'")
    machine = None if options.slurm else this_machine(with_gpus=options.device != "cpu")
    device = _device(options, machine)
    sizes = _sizes(options, device, machine)
    conditions = _conditions(options, device, machine)
    check_batch(conditions, sizes)
    wanted = Profile(
        name=path.stem,
        created_s=float(round(time.time())),
        applies_to=AppliesTo(
            jobs=options.jobs, users=options.users, gpu_types=(options.gpu_type,) if options.gpu_type else ()
        ),
        conditions=conditions,
    )
    session = Session(path, opened(path, _checked(wanted)), sizes)
    if options.data is not None and not options.data.is_file():
        raise ProfileError(f"--data {options.data}: no such file")
    runner = LocalPoints(machine, device) if machine is not None else _slurm_points(options, device)
    with _bar(session) as report:
        session.run(runner, options.data, options.minutes * 60.0, report)
    return session.profile


def _checked(profile: Profile) -> Profile:
    """The same, if its file could be read back. Raises ProfileError for a name or a pattern that cannot be kept."""
    try:
        return msgspec.convert(msgspec.to_builtins(profile), Profile)
    except msgspec.ValidationError as err:
        raise ProfileError(f"{err}: use letters, digits, . _ and - in names, and no empty patterns") from err


def _device(options: RunOptions, machine: Machine | None) -> Device:
    if options.device != "auto":
        return options.device
    return "cpu" if machine is not None and not machine.gpus else "cuda"


def _sizes(options: RunOptions, device: Device, machine: Machine | None) -> list[Size]:
    per_node = options.gpus_per_node if machine is None else 1 << 20
    text = options.gpus or (_SLURM_GPUS if machine is None else _powers(machine, device))
    return grid(
        layouts_of(text, per_node),
        counts_of("--cpus-per-gpu", options.cpus_per_gpu),
        memories_of(options.mem_per_gpu),
    )


def _powers(machine: Machine, device: Device) -> str:
    most = machine.gpus if device == "cuda" else machine.cpus
    return ",".join(str(1 << power) for power in range(20) if 1 << power <= max(1, most))


def _conditions(options: RunOptions, device: Device, machine: Machine | None) -> Conditions:
    precision: Literal["bfloat16", "float32"] = "bfloat16" if device == "cuda" else "float32"
    name = options.model
    if name == LARGEST:
        if machine is None or device != "cuda":
            raise ProfileError(f"--model {LARGEST}: only for GPUs of this machine; name a model")
        name = largest_that_fits(machine.gpu_memory_gib, options.sequence, options.micro_batch, precision)
    if options.backend == "nccl" and device == "cpu":
        raise ProfileError("--backend nccl: needs GPUs; use gloo")
    return Conditions(
        model=model_named(name, options.sequence),
        global_batch=options.global_batch,
        micro_batch=options.micro_batch,
        sequence=options.sequence,
        precision=precision,
        device=device,
        backend=options.backend if options.backend != "auto" else "nccl" if device == "cuda" else "gloo",
        loader_workers=options.loader_workers,
        warmup_steps=options.warmup_steps,
        steps=options.steps,
    )


def _slurm_points(options: RunOptions, device: Device) -> PointRunner:
    from rlalloc_cli.profile_on_slurm import SlurmOptions, SlurmPoints
    from rlallocd.slurm import BatchJobs, Commands

    return SlurmPoints(
        BatchJobs(Commands(_SLURM_TIMEOUT_S)),
        SlurmOptions(
            device=device,
            gpu_type=options.gpu_type,
            minutes=options.minutes,
            at_once=options.at_once,
            sbatch=options.sbatch,
        ),
    )


@contextmanager
def _bar(session: Session) -> Iterator[Callable[[str, int], None]]:
    """A progress bar on a terminal's stderr; elsewhere a line for each point."""
    console = Console(stderr=True, highlight=False, markup=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    said = -1

    def tell(what: str, done: int) -> None:
        nonlocal said
        bar.update(task, description=what, completed=done)
        if not console.is_terminal and done > said:
            said = done
            console.print(f"{done} of {session.total} points; {what}", soft_wrap=True)

    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("profile", total=session.total, completed=session.done)
        yield tell
