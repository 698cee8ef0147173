"""Writing what ``rlalloc.bounds.parse_directives`` reads."""


def written_directives(
    *,
    gpus: tuple[int, int] | None = None,
    cpus_per_gpu: tuple[float, float] | None = None,
    mem_mib_per_gpu: tuple[float, float] | None = None,
    task_per_gpu: bool = False,
) -> str:
    """Write ranges as ``gpus=1-8 cpus-per-gpu=2-8 mem-per-gpu=8000M-64000M launch=srun``; empty if there are none.

    Memory is rounded to whole MiB, the least upwards.
    """
    words = []
    if gpus is not None:
        words.append(f"gpus={gpus[0]}-{gpus[1]}")
    if cpus_per_gpu is not None:
        words.append(f"cpus-per-gpu={_plain(cpus_per_gpu[0])}-{_plain(cpus_per_gpu[1])}")
    if mem_mib_per_gpu is not None:
        low, high = mem_mib_per_gpu
        least = max(1, -int(-low // 1))
        words.append(f"mem-per-gpu={least}M-{max(least, int(high))}M")
    if task_per_gpu and words:
        words.append("launch=srun")
    return " ".join(words)


def _plain(number: float) -> str:
    """Up to four digits behind the point, no exponent."""
    return f"{number:.4f}".rstrip("0").rstrip(".")
