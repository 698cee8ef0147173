"""``rlalloc profile``: measure how a GPT trains on this site's machines, and let rlallocd use it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from rlalloc.config import DEFAULT_PATH, load_config
from rlalloc.errors import ProfileError, RlallocError
from rlalloc_cli.config_option import ConfigOption, exit_on_errors
from rlalloc_cli.terminal import CONSOLE, complain, fail

PlotOption = Annotated[Path | None, typer.Option(help="Also draw the points into this file (.png, .svg, .pdf).")]
ProfileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A profile.")]

profile_app = typer.Typer(no_args_is_help=True, help="Measure how a model trains in several sizes, and use it.")


@profile_app.command("run")
def profile_run(  # noqa: PLR0913 (the options of the command)
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where the profile goes (.yaml); an existing one is continued.")
    ],
    *,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="GPU counts, such as 1,2,8 or 2x4 (nodes x GPUs). Default: powers of two that fit."
        ),
    ] = None,
    cpus_per_gpu: Annotated[str, typer.Option(metavar="LIST", help="CPUs for each GPU, such as 1,2,4.")] = "1",
    mem_per_gpu: Annotated[
        str, typer.Option(metavar="LIST", help="Host memory for each GPU, such as 8G,16G. Default: no limit.")
    ] = "",
    model: Annotated[
        str, typer.Option(help="gpt-1m, gpt-4m, gpt-25m, gpt-125m, … gpt-6.7b, or largest: the largest that fits.")
    ] = "gpt-25m",
    global_batch: Annotated[int, typer.Option(min=1, help="Sequences per step, the same in every size.")] = 32,
    micro_batch: Annotated[int, typer.Option(min=1, help="The most sequences per GPU in one pass.")] = 8,
    sequence: Annotated[int, typer.Option(min=8, max=1 << 20, help="Tokens per sequence.")] = 512,
    steps: Annotated[int, typer.Option(min=5, max=100_000, help="Measured steps per point.")] = 20,
    warmup_steps: Annotated[int, typer.Option(min=1, max=10_000, help="Steps before the measured ones.")] = 3,
    loader_workers: Annotated[
        int, typer.Option(min=0, max=1024, help="Data loader processes per GPU; 0: as many as CPUs per GPU.")
    ] = 0,
    data: Annotated[
        Path | None, typer.Option(help="A text file to train on. Default: a generated one of 8 MiB.")
    ] = None,
    device: Annotated[
        Literal["auto", "cuda", "cpu"],
        typer.Option(
            help="cpu counts processes as GPUs. auto: cuda, unless this machine is measured and has no GPU."
        ),
    ] = "auto",
    backend: Annotated[
        Literal["auto", "nccl", "gloo"], typer.Option(help="How processes communicate. auto: nccl on GPUs.")
    ] = "auto",
    minutes: Annotated[int, typer.Option(min=1, max=1440, help="The most minutes that a point may take.")] = 10,
    slurm: Annotated[bool, typer.Option("--slurm", help="Measure by Slurm jobs, one job per point.")] = False,
    gpus_per_node: Annotated[int, typer.Option(min=1, max=1024, help="GPUs per node, with --slurm.")] = 8,
    gpu_type: Annotated[
        str, typer.Option(help="The type of GPU in Slurm's GRES. The profile then also applies to other jobs on it.")
    ] = "",
    at_once: Annotated[int, typer.Option(min=1, max=100, help="Jobs in the queue at once, with --slurm.")] = 1,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(metavar="OPTION", help="An option for sbatch, such as --sbatch=--exclusive; repeatable."),
    ] = None,
    jobs: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Names of jobs that train this model, such as 'train-7b*'; repeatable."),
    ] = None,
    users: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Only jobs of these users; repeatable.")
    ] = None,
    plot: PlotOption = None,
) -> None:
    """Train a GPT for a few steps in each size and write tokens per second, memory and stalls into FILE.

    Ctrl-C keeps what was measured and cancels the Slurm jobs. The same command continues and tries
    failed points again.
    """
    from rlalloc_cli.profile_run import RunOptions, run_profile
    from rlalloc_cli.profile_show import draw_or_fail, print_profile

    options = RunOptions(
        gpus=gpus,
        cpus_per_gpu=cpus_per_gpu,
        mem_per_gpu=mem_per_gpu,
        model=model,
        global_batch=global_batch,
        micro_batch=micro_batch,
        sequence=sequence,
        steps=steps,
        warmup_steps=warmup_steps,
        loader_workers=loader_workers,
        data=data,
        device=device,
        backend=backend,
        minutes=minutes,
        slurm=slurm,
        gpus_per_node=gpus_per_node,
        gpu_type=gpu_type,
        at_once=at_once,
        sbatch=tuple(sbatch or ()),
        jobs=tuple(jobs or ()),
        users=tuple(users or ("*",)),
    )
    try:
        profile = run_profile(file.absolute(), options)
    except KeyboardInterrupt:
        complain(f"interrupted: what was measured is in {file}; the same command goes on from there")
        raise
    except ProfileError as err:
        fail(str(err), code=2)
    except RlallocError as err:
        fail(str(err), code=1)
    print_profile(profile)
    if plot is not None:
        draw_or_fail(profile, plot)
    if any(point.outcome == "failed" for point in profile.points):
        fail("some points failed (see above); the same command tries them again", code=1)


@profile_app.command("show")
def profile_show(file: ProfileArgument, *, plot: PlotOption = None) -> None:
    """Print the points of a profile, and what rlallocd expects of the jobs that it names."""
    from rlalloc.speed.profile_file import read_profile
    from rlalloc_cli.profile_show import draw_or_fail, print_profile

    with exit_on_errors():
        profile = read_profile(file)
    print_profile(profile)
    if plot is not None:
        draw_or_fail(profile, plot)


@profile_app.command("install")
def profile_install(file: ProfileArgument, *, config: ConfigOption = DEFAULT_PATH) -> None:
    """Check a profile and copy it to speed.profiles. rlallocd uses it within a minute."""
    from rlalloc_cli.profile_install import install

    with exit_on_errors():
        CONSOLE.print(install(file, load_config(config).speed.profiles), soft_wrap=True)
