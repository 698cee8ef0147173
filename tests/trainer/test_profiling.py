"""What a profile measures: sizes, the model, its data, and how a point's files become its outcome."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import msgspec
import numpy as np
import pytest
import torch

from rlalloc.errors import ProfileError
from rlalloc.speed.profile_file import Size
from rlalloc_trainer.profiling import measured_steps
from rlalloc_trainer.profiling.gpt_shapes import NAMES, largest_that_fits, model_named
from rlalloc_trainer.profiling.made_up_text import make_up_text
from rlalloc_trainer.profiling.measured_steps import Stalls, batch_of_process
from rlalloc_trainer.profiling.point_files import (
    LOG,
    NodeEnd,
    PointTask,
    Speeds,
    has_ended,
    is_for,
    point_of,
    read_task,
    write_gpu_full,
    write_node_end,
    write_speeds,
    write_task,
)
from rlalloc_trainer.profiling.point_grid import check_batch, counts_of, grid, layouts_of, memories_of
from rlalloc_trainer.profiling.profiled_gpt import ProfiledGpt
from rlalloc_trainer.profiling.token_windows import TokenWindows
from tests.core.profiles import conditions_on_cpus, measured

CONDITIONS = conditions_on_cpus(model_named("gpt-1m", 32), global_batch=24, micro_batch=5, sequence=32)
TWO = Size(gpus=4, nodes=2, cpus_per_gpu=1)
SPEEDS = msgspec.convert(
    {**msgspec.structs.asdict(measured(1234.5678)), "accelerator": CONDITIONS.accelerator}, Speeds
)


@pytest.mark.parametrize("name", ["gpt-1m", "gpt-4m", "gpt-125m"])
def test_the_model_has_the_parameters_that_rlalloc_counts(name: str) -> None:
    """Counted by torch, and by the arithmetic that publishers' figures were compared with."""
    shape = model_named(name, 64)
    with torch.device("meta"):
        model = ProfiledGpt(shape, 64)
    assert sum(each.numel() for each in model.parameters()) == shape.parameters


def test_the_model_sees_no_future_and_learns() -> None:
    torch.manual_seed(0)
    shape = model_named("gpt-1m", 32)
    model = ProfiledGpt(shape, 32)
    windows = torch.randint(shape.vocabulary, (4, 33))
    first = model(windows)
    assert first.item() == pytest.approx(np.log(shape.vocabulary), rel=0.1)
    changed = windows.clone()
    changed[:, 20] = (changed[:, 20] + 1) % shape.vocabulary
    seen: list[torch.Tensor] = []
    hook = model.last.register_forward_hook(lambda _module, _given, states: seen.append(states.detach()))
    model(windows)
    model(changed)
    hook.remove()
    assert torch.equal(seen[0][:, :20], seen[1][:, :20])
    assert not torch.allclose(seen[0][:, 20:], seen[1][:, 20:])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(5):
        optimizer.zero_grad()
        torch.autograd.backward(model(windows))
        optimizer.step()
    assert model(windows).item() < first.item()


def test_the_largest_model_grows_with_the_memory() -> None:
    found = [NAMES.index(largest_that_fits(gib, 1024, 4, "bfloat16")) for gib in (2, 8, 24, 80)]
    assert found == sorted(found)
    assert len(set(found)) == 4
    with pytest.raises(ProfileError, match="--micro-batch"):
        largest_that_fits(0.01, 1024, 4, "bfloat16")
    with pytest.raises(ProfileError, match="gpt-25m"):
        model_named("gpt-5", 1024)


def test_the_largest_model_leaves_room_for_gradient_buckets() -> None:
    """On an H100, gpt-2.7b ran with micro-batches of 8 (70.9 GiB) and found the memory full with 16."""
    assert largest_that_fits(79.18, 512, 8, "bfloat16") == "gpt-2.7b"
    assert largest_that_fits(79.18, 512, 16, "bfloat16") == "gpt-1.3b"


class _Event:
    """A CUDA event; the GPU is idle for two seconds between any two."""

    recorded: ClassVar[list["_Event"]] = []

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.recorded.append(self)

    def elapsed_time(self, later: "_Event") -> float:
        assert self.recorded.index(self) < self.recorded.index(later)
        return 2000.0


def test_a_gpu_stalls_only_while_it_has_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process waits does not count: the GPU may be computing meanwhile."""
    monkeypatch.setattr(torch.cuda, "Event", _Event)
    stalls = Stalls(torch.device("cuda", 0))
    batches = (torch.tensor(len(_Event.recorded)) for _ in range(3))
    assert [int(stalls.next(batches)) for _ in range(3)] == [1, 3, 5]  # the first event of each pair is before
    assert stalls.seconds() == 6.0


def test_a_process_without_a_gpu_stalls_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 13.0, 20.0, 21.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    stalls = Stalls(torch.device("cpu"))
    for _ in range(2):
        stalls.next(iter([torch.zeros(1)]))
    assert stalls.seconds() == 4.0


def test_windows_are_tokens_of_the_text_and_the_same_each_time(tmp_path: Path) -> None:
    make_up_text(tmp_path / "text")
    windows = TokenWindows(tmp_path / "text", 32, 2048, 100)
    assert len(windows) == 100
    assert all(windows[number].shape == (33,) and windows[number].max() < 2048 for number in range(20))
    assert torch.equal(windows[3], TokenWindows(tmp_path / "text", 32, 2048, 7)[3])
    assert len({tuple(windows[number].tolist()) for number in range(20)}) == 20


def test_a_text_that_is_too_short_or_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("x" * 60)
    for name in ("short", "none"):
        with pytest.raises(ProfileError, match=rf"--data .*{name}"):
            TokenWindows(tmp_path / name, 32, 2048, 1)


@pytest.mark.parametrize(("world", "expected"), [(1, (4, 6)), (2, (4, 3)), (4, (3, 2)), (8, (3, 1)), (24, (1, 1))])
def test_the_global_batch_stays(world: int, expected: tuple[int, int]) -> None:
    micro, passes = batch_of_process(CONDITIONS, world)
    assert (micro, passes) == expected
    assert micro * passes * world == CONDITIONS.global_batch


def test_lists_of_sizes() -> None:
    assert layouts_of("1,16,2x4, 8", 8) == [(1, 1), (8, 1), (8, 2), (16, 2)]
    assert counts_of("--cpus-per-gpu", "4,1,4") == [1, 4]
    assert memories_of("") == [0]
    assert memories_of("8G,512M") == [512, 8192]
    sizes = grid([(1, 1), (8, 1)], [1, 2], [0])
    assert [(size.gpus, size.cpus_per_gpu) for size in sizes] == [(1, 2), (8, 2), (1, 1), (8, 1)]


@pytest.mark.parametrize("wrong", ["", "0", "1,,2", "a", "1x", "-1", "9"])
def test_wrong_lists_say_what_to_write(wrong: str) -> None:
    with pytest.raises(ProfileError, match="--gpus"):
        layouts_of(wrong, 8)
    if wrong != "9":
        with pytest.raises(ProfileError, match="--cpus-per-gpu"):
            counts_of("--cpus-per-gpu", wrong)
    if wrong:
        with pytest.raises(ProfileError, match="--mem-per-gpu"):
            memories_of(wrong)


def test_a_batch_that_cannot_be_shared_out_is_named() -> None:
    check_batch(CONDITIONS, grid([(1, 1), (8, 1)], [1], [0]))
    with pytest.raises(ProfileError, match=r"--global-batch 24 does not divide by 5, 16 GPUs"):
        check_batch(CONDITIONS, grid([(5, 1), (8, 1), (16, 2)], [1, 2], [0]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "point"
    write_task(folder, PointTask(conditions=CONDITIONS, size=TWO, text="/text", timeout_s=60.0))
    return folder


def end(folder: Path, *ends: NodeEnd) -> None:
    for node, each in enumerate(ends):
        write_node_end(folder, node, each)


def test_a_point_is_measured_once_all_nodes_have_ended_well(folder: Path) -> None:
    write_speeds(folder, SPEEDS)
    end(folder, NodeEnd(status=0, host_mem_mib=700))
    assert not has_ended(folder, TWO)
    assert point_of(folder, TWO).outcome == "failed"
    end(folder, NodeEnd(status=0, host_mem_mib=700), NodeEnd(status=0, host_mem_mib=900))
    assert has_ended(folder, TWO)
    point = point_of(folder, TWO)
    assert point.measured is not None
    assert (point.measured.tokens_per_s, point.measured.host_mem_mib) == (1234.6, 900)


ON_GPU = msgspec.structs.replace(CONDITIONS, device="cuda", backend="nccl")


@pytest.mark.parametrize(
    "said",
    [
        "CUDA out of memory. Tried to allocate 1.25 GiB.",
        "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in …",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "NCCL error: Failed to CUDA calloc async 16 bytes … Cuda failure 2 'out of memory'",
    ],
)
@pytest.mark.parametrize(("free_mib", "reserved_mib"), [(900, 78_000), (40_000, 40_000)])
def test_a_full_gpu_is_recognised_whoever_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, free_mib: int, reserved_mib: int
) -> None:
    """Also if most of it is free: one allocation can be larger than what is left."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (free_mib << 20, 81_000 << 20))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _device: reserved_mib << 20)
    _point_on_gpu(tmp_path, monkeypatch, said)
    assert measured_steps.main(tmp_path) == 1
    point = point_of(tmp_path, Size(gpus=1, nodes=1, cpus_per_gpu=1))
    assert point.outcome == "out-of-memory"
    assert point.why == f"the memory of a GPU was full: {said.splitlines()[0]}"


def test_a_gpu_that_others_hold_is_no_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The point fails, and the same command tries it again."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (700 << 20, 81_000 << 20))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _device: 0)
    _point_on_gpu(tmp_path, monkeypatch, "CUDA error: out of memory")
    with pytest.raises(ProfileError, match="other processes hold 80300 MiB"):
        measured_steps.main(tmp_path)
    monkeypatch.setattr(torch.cuda, "mem_get_info", _raising("CUDA error: out of memory"))
    with pytest.raises(ProfileError, match="CUDA cannot start"):
        measured_steps.main(tmp_path)
    assert point_of(tmp_path, Size(gpus=1, nodes=1, cpus_per_gpu=1)).outcome == "failed"


def test_another_error_of_a_gpu_is_not_taken_for_a_full_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _point_on_gpu(tmp_path, monkeypatch, "CUDA error: an illegal memory access was encountered")
    with pytest.raises(RuntimeError, match="illegal"):
        measured_steps.main(tmp_path)


def _point_on_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """A point whose first call of CUDA fails."""
    one = Size(gpus=1, nodes=1, cpus_per_gpu=1)
    write_task(folder, PointTask(conditions=ON_GPU, size=one, text="text", timeout_s=60))
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr(torch.cuda, "set_device", _raising(said))


def _raising(said: str) -> Callable[[torch.device], None]:
    def fail(_device: torch.device) -> None:
        raise RuntimeError(said)

    return fail


def test_full_memories_are_told_apart(folder: Path) -> None:
    end(folder, NodeEnd(status=1, host_mem_mib=9000, too_much_memory=True), NodeEnd(status=1, host_mem_mib=10))
    assert point_of(folder, TWO).outcome == "out-of-memory"
    assert "9000 MiB" in point_of(folder, TWO).why
    assert point_of(folder, TWO, "OUT_OF_MEMORY").outcome == "out-of-memory"
    write_gpu_full(folder, "Tried to allocate 2 GiB")
    assert "the memory of a GPU was full: Tried to allocate 2 GiB" in point_of(folder, TWO).why


def test_a_failure_names_the_log_and_its_error(folder: Path) -> None:
    (folder / LOG).write_text(
        "starts\n[rank12]: RuntimeError: no route to host\nChildFailedError: \nsrun: error: n1: exit 1\n"
    )
    end(folder, NodeEnd(status=1, host_mem_mib=10))
    point = point_of(folder, TWO, "NODE_FAIL")
    assert point.outcome == "failed"
    assert point.why == f"NODE_FAIL; {folder / LOG}: RuntimeError: no route to host"
    end(folder, NodeEnd(status=1, host_mem_mib=10, too_long=True))
    assert "it took too long" in point_of(folder, TWO).why
    (folder / LOG).unlink()
    assert "no log" in point_of(folder, TWO).why


def test_a_folder_belongs_to_one_task(folder: Path) -> None:
    task = read_task(folder)
    assert is_for(folder, task)
    assert not is_for(folder, msgspec.structs.replace(task, size=Size(gpus=2, nodes=1, cpus_per_gpu=1)))
    write_speeds(folder, SPEEDS)
    write_task(folder, task)
    assert [each.name for each in folder.iterdir()] == ["task.json"]
    (folder / "task.json").write_text(json.dumps({"size": 1}))
    with pytest.raises(ProfileError, match="missing or damaged"):
        read_task(folder)
