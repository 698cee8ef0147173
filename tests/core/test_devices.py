"""What a node's GRES say of its devices, as Slurm 22.05 and 24.11 print them."""

import pytest

from rlalloc.devices import Device, NodeDevices, gpu_device, node_devices

A100, V100, SLICE = Device("gpu", "a100"), Device("gpu", "v100"), Device("mig", "1g.10gb")


@pytest.mark.parametrize(
    ("gres", "used", "found"),
    [
        ("gpu:a100:8(S:0-1)", "gpu:a100:3(IDX:0-2),shard:0", (NodeDevices(A100, 8, 3),)),
        ("gpu:8", "gpu:0", (NodeDevices(Device("gpu"), 8),)),
        ("gpu:1080:8,nic:1", "", (NodeDevices(Device("gpu", "1080"), 8),)),
        (
            "gpu:a100:4,gpu:1g.10gb:28",
            "gpu:a100:0(IDX:N/A),gpu:1g.10gb:2(IDX:2-3),shard:0",
            (NodeDevices(A100, 4), NodeDevices(SLICE, 28, 2)),
        ),
        ("gpu:a100:4,gpu:v100:2", "gpu:a100:4(IDX:0-3)", (NodeDevices(A100, 4, 4), NodeDevices(V100, 2))),
        ("gpu:a100:8", "gpu:5", (NodeDevices(A100, 8, 5),)),
        ("(null)", "(null)", ()),
        ("gpu:0", "gpu:0", ()),
    ],
)
def test_devices_are_told_apart(gres: str, used: str, found: tuple[NodeDevices, ...]) -> None:
    assert node_devices(gres, used) == found


@pytest.mark.parametrize(
    ("used", "whole", "shards"),
    [
        ("gpu:a100:1(IDX:2),shard:a100:6(4/4,2/4,0/4,0/4)", 3, 10),
        ("gpu:a100:1(IDX:2),shard:a100:2(IDX:0-1)", 3, 12),  # 22.05: shards in use on two GPUs, nobody knows how many
        ("gpu:a100:0(IDX:N/A),shard:a100:0(0/4,0/4,0/4,0/4)", 0, 0),
        ("gpu:a100:0(IDX:N/A),shard:a100:0(IDX:N/A)", 0, 0),
        ("", 0, 0),
    ],
)
def test_a_gpu_is_free_as_a_whole_or_in_shards(used: str, whole: int, shards: int) -> None:
    assert node_devices("gpu:a100:4,shard:a100:16", used) == (
        NodeDevices(A100, 4, whole),
        NodeDevices(Device("shard", "a100"), 16, shards, per_gpu=4),
    )


@pytest.mark.parametrize("name", ["1g.10gb", "a100_3g.20gb", "nvidia_a100_1g.10gb", "H100-1g-12gb"])
def test_a_mig_profile_is_no_whole_gpu(name: str) -> None:
    assert gpu_device(name) == Device("mig", name)


@pytest.mark.parametrize("name", ["", "a100", "mi300x", "nvidia_h100_80gb_hbm3", "max_1550", "1080"])
def test_any_other_type_is_a_whole_gpu(name: str) -> None:
    assert gpu_device(name) == Device("gpu", name)


def test_devices_in_words() -> None:
    assert [device.describe(count) for device, count in ((A100, 4), (Device("gpu"), 1), (SLICE, 2))] == [
        "4 a100 GPUs",
        "1 GPU",
        "2 slices 1g.10gb",
    ]
