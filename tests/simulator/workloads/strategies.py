"""Wild but valid jobs and headers."""

from hypothesis import strategies as st

from rlalloc.job import JOB_CLASSES
from rlalloc.speed import CURVES
from rlalloc_simulator.workloads import (
    Checkpoint,
    ClusterDescription,
    Dependency,
    End,
    Header,
    Needs,
    NodeGroup,
    Partition,
    Request,
    Speed,
    WorkloadJob,
)

counts = st.integers(1, 2**31)
positive = st.floats(1e-6, 1e9)
seconds = st.floats(0, 1e9)
words = st.text("abcXYZ019_.@:+-", max_size=20)
ends = st.one_of(
    st.just(End()),
    st.builds(End, st.just("FAILED"), seconds),
    st.builds(End, st.just("CANCELLED"), seconds, st.booleans()),
)
constraints = st.sampled_from(["", "ib", "ib&big", "old|ib", "a,b"])
few = st.integers(0, 4)
asked = counts, st.integers(0, 16), counts, counts, counts, counts, words, st.booleans(), constraints
requests = st.builds(Request, *asked, few, few, st.booleans())
speeds = st.builds(Speed, st.sampled_from(list(CURVES)), positive)
directives = st.sampled_from(
    ["", "gpus=1-8", "gpus=2,4,16 launch=srun", "gpus=1-4 cpus-per-gpu=1.5-8 mem-per-gpu=8G-64G", "gpu-multiple=2"]
)


@st.composite
def workloads(draw: st.DrawFn) -> list[WorkloadJob]:
    """Jobs in order, with ids that ascend and dependencies that look back."""
    jobs: list[WorkloadJob] = []
    number, submit_s = 0, 0.0
    for _ in range(draw(st.integers(0, 6))):
        number += draw(st.integers(1, 5))
        submit_s += draw(seconds)
        kinds = st.sampled_from(["after", "afterany", "afterok", "afternotok"])
        earlier = [job.id for job in jobs]
        one = st.builds(Dependency, kinds, st.sampled_from(earlier or [1]))
        before = st.lists(one, max_size=2 if earlier else 0)
        jobs.append(
            WorkloadJob(
                id=number,
                submit_s=submit_s,
                user=draw(words),
                request=draw(requests),
                needs=draw(st.builds(Needs, positive, positive, positive, speeds)),
                end=draw(ends),
                account=draw(words),
                partition=draw(words),
                qos=draw(words),
                name=draw(words),
                job_class=draw(st.none() | st.sampled_from(JOB_CLASSES)),
                directives=draw(directives),
                dependency=tuple(draw(before)),
                priority=draw(st.none() | st.integers(0, 2**32)),
                nice=draw(st.integers(-1000, 1000)),
                checkpoint=draw(st.none() | st.builds(Checkpoint, positive, seconds)),
            )
        )
    return jobs


gres = st.sampled_from(["", "shard:16", "gpu:1g.10gb:7,shard:a100:8"])
features = st.lists(words, max_size=2).map(tuple)
ones = st.integers(0, 1)
groups = st.builds(NodeGroup, words, counts, st.integers(0, 16), counts, counts, words, gres, features, ones, ones)


@st.composite
def headers(draw: st.DrawFn) -> Header:
    nodes = tuple(draw(st.lists(groups, min_size=1, max_size=3)))
    names = st.sampled_from([group.name for group in nodes])
    partitions = st.builds(Partition, words, st.lists(names, max_size=2).map(tuple), st.none() | counts)
    return Header(
        origin=draw(st.text(max_size=50)),
        modelled=tuple(draw(st.lists(st.text(max_size=9), max_size=3))),
        time_zero_s=draw(st.none() | seconds),
        utc_offset_s=draw(st.integers(-43200, 43200)),
        cluster=draw(st.none() | st.just(ClusterDescription(nodes, tuple(draw(st.lists(partitions, max_size=2)))))),
    )
