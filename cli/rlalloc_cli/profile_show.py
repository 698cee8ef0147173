"""``rlalloc profile show``: the points of a profile in a table and a plot."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich import box
from rich.table import Table

from rlalloc.counted import counted
from rlalloc.job import Allocation
from rlalloc.local_times import local_time
from rlalloc.speed.longer_limits import slowdown_to_allow, slowdowns
from rlalloc.speed.profile_file import Profile, ProfilePoint
from rlalloc.speed.profiled_speeds import belief_of_named
from rlalloc.usage.profiled_needs import floors_of_profile
from rlalloc_cli.profile_install import spoken_for
from rlalloc_cli.terminal import CONSOLE, fail


def print_profile(profile: Profile) -> None:
    """Print conditions, points and what follows for jobs that the profile names."""
    conditions, model = profile.conditions, profile.conditions.model
    CONSOLE.print(
        f"{profile.name}: {model.name}, {model.parameters / 1e6:,.1f} million parameters, {conditions.global_batch} "
        f"sequences of {conditions.sequence} tokens a step, {conditions.precision}, {conditions.backend} on "
        f"{conditions.accelerator or conditions.device}; begun {local_time(profile.created_s)}",
        soft_wrap=True,
    )
    CONSOLE.print(f"applies to {' and '.join(spoken_for(profile)) or 'no job yet (applies_to)'}", soft_wrap=True)
    table = Table(title="Points", title_justify="left", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    columns = ("GPUs", "nodes", "CPUs/GPU", "MiB/GPU", "tokens/s", "±", "step", "stalled", "GPU MiB", "node MiB")
    for column in columns:
        table.add_column(column, justify="right")
    for point in profile.points:
        table.add_row(*_cells(point))
    CONSOLE.print(table)
    if conditions.device == "cpu":
        CONSOLE.print("Measured on CPUs: the GPU counts are numbers of processes.")
    for point in profile.points:
        if point.why:
            CONSOLE.print(f"{point.size.describe()}: {point.outcome}: {point.why}", soft_wrap=True)
    _print_slowdowns(profile)
    _print_cpus(profile)


def draw_or_fail(profile: Profile, path: Path) -> None:
    """Draw the points; ends the program if there is nothing to draw or the file cannot be written."""
    if all(point.measured is None for point in profile.points):
        fail("no point was measured: there is nothing to draw", code=1)
    try:
        _draw(profile, path)
    except (OSError, ValueError) as err:
        fail(f"cannot draw {path}: {err}; name a file that ends in .png, .svg or .pdf", code=1)


def _cells(point: ProfilePoint) -> tuple[str, ...]:
    size, measured = point.size, point.measured
    place = (str(size.gpus), str(size.nodes), str(size.cpus_per_gpu), str(size.mem_mib_per_gpu or "-"))
    if measured is None:
        return (*place, point.outcome)
    return (
        *place,
        f"{measured.tokens_per_s:,.0f}",
        f"{measured.noise:.1%}",
        f"{measured.step_s * 1e3:,.0f} ms",
        f"{measured.stalled:.1%}",
        f"{measured.gpu_mem_mib:,}" if measured.gpu_mem_mib else "-",
        f"{measured.host_mem_mib:,}",
    )


def _print_slowdowns(profile: Profile) -> None:
    """What a job that the profile names is expected to lose on fewer GPUs than the most that were measured."""
    layouts = {point.size.gpus: point.size.nodes for point in reversed(profile.points) if point.measured is not None}
    if len(layouts) < 2:
        CONSOLE.print("measured on fewer than two GPU counts: this does not show how jobs scale")
        return
    most = max(layouts)
    belief = belief_of_named(profile, most)
    table = Table(title=f"A job that it names, submitted with {counted(most, 'GPU')}", title_justify="left")
    for column in ("GPUs", "slowdown", "time limit allows for"):
        table.add_column(column, justify="right")
    for gpus in sorted(set(layouts) - {most}, reverse=True):
        asked, given = _sized(most, layouts[most]), _sized(gpus, layouts[gpus])
        median = float(np.median(slowdowns(asked, given, belief)))
        table.add_row(str(gpus), f"{median:.2f}", f"{slowdown_to_allow(asked, given, belief):.2f}")
    CONSOLE.print(table)


def _print_cpus(profile: Profile) -> None:
    """What several CPU counts show, on however many GPUs."""
    most = max((point.size.gpus for point in profile.points), default=1)
    fewest = floors_of_profile(profile, _sized(most, 1), 0.0).cpus_per_gpu
    if fewest is None:
        CONSOLE.print("measured with one number of CPUs per GPU: this does not show how many a GPU needs")
        return
    cpus = belief_of_named(profile, most).cpus
    low, high = (cpus.median * np.exp(sign * 1.645 * cpus.spread) for sign in (-1.0, 1.0))
    CONSOLE.print(
        f"CPUs that a GPU needs for full speed: {cpus.median:.1f} (90%: {low:.1f} to {high:.1f}); "
        f"fewest whose data loader stalls no longer than with more: {fewest}",
        soft_wrap=True,
    )


def _sized(gpus: int, nodes: int) -> Allocation:
    return Allocation(nodes, gpus // nodes, 1, 0, 1, 3600)


def _draw(profile: Profile, path: Path) -> None:
    """Speed, and the part of the time that was stalled, by GPU count; by CPUs where there is one GPU count."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    FigureCanvasAgg(figure)
    speeds, stalls = figure.subplots(1, 2)
    counts = sorted({point.size.gpus for point in profile.points if point.measured is not None})
    by_cpus = len(counts) == 1
    lines = _lines(profile, by_cpus=by_cpus)
    for label, points in lines.items():
        places = [point.size.cpus_per_gpu if by_cpus else point.size.gpus for point in points]
        measured = [point.measured for point in points if point.measured is not None]
        tokens = np.array([each.tokens_per_s for each in measured])
        spread = tokens * np.array([1.645 * each.noise for each in measured])
        speeds.errorbar(places, tokens, yerr=spread, marker="o", capsize=3, label=label)
        stalls.plot(places, [100.0 * each.stalled for each in measured], marker="o", label=label)
    axis = f"CPUs per GPU, on {counted(counts[0], 'GPU')}" if by_cpus else "GPUs"
    ticks = sorted({point.size.cpus_per_gpu for point in profile.points}) if by_cpus else counts
    if not by_cpus:
        first = min((point for points in lines.values() for point in points), key=lambda each: each.size.gpus)
        if first.measured is not None:
            ends = np.array([counts[0], counts[-1]], dtype=np.float64)
            speeds.plot(ends, first.measured.tokens_per_s * ends / ends[0], ":", color="grey", label="in proportion")
        speeds.set(yscale="log")
    speeds.set(xscale="log", xlabel=axis, ylabel="tokens/s", title=profile.name)
    stalls.set(xscale="log", xlabel=axis, ylabel="waiting for data [%]", ylim=(0.0, None))
    for axes in (speeds, stalls):
        axes.set_xticks(ticks, map(str, ticks))
        axes.minorticks_off()
    speeds.legend()
    figure.savefig(path)


def _lines(profile: Profile, *, by_cpus: bool) -> Mapping[str, list[ProfilePoint]]:
    """The measured points, by what tells the lines apart: CPUs and memory, or memory alone."""
    lines: dict[str, list[ProfilePoint]] = {}
    for point in profile.points:
        if point.measured is not None:
            size = point.size
            cpus = [] if by_cpus else [f"{counted(size.cpus_per_gpu, 'CPU')} per GPU"]
            memory = [f"{size.mem_mib_per_gpu} MiB"] if size.mem_mib_per_gpu else []
            lines.setdefault(", ".join([*cpus, *memory]) or "no memory limit", []).append(point)
    return lines
