"""Wild but valid requests, bounds and clusters for property tests."""

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for
from rlalloc.errors import DirectiveError
from rlalloc.job import JOB_CLASSES, Allocation, JobView, Shares
from rlalloc.view import ClusterView

SHAPE = NodeShape(gpus=8, cpus=64, mem_mib=512_000)
unit = st.floats(0, 1)
shares = st.builds(Shares, unit, unit, unit, unit)


@st.composite
def requests(draw: st.DrawFn) -> Allocation:
    nodes = draw(st.integers(1, 4))
    gpus = 8 if nodes > 1 else draw(st.integers(1, 8))
    tasks = draw(st.sampled_from([1, gpus]))
    return Allocation(
        nodes=nodes,
        gpus_per_node=gpus,
        tasks_per_node=tasks,
        cpus_per_task=draw(st.integers(1, 64 // tasks)),
        mem_mib_per_node=draw(st.integers(1024, 512_000)),
        time_limit_s=60 * draw(st.integers(1, 10_000)),
    )


@st.composite
def directives(draw: st.DrawFn) -> Directives:
    low = draw(st.integers(1, 8))
    cpus = draw(st.floats(0.5, 4))
    mem = draw(st.floats(1024, 32_000))
    return Directives(
        gpus=draw(st.none() | st.just((low, low * draw(st.sampled_from([1, 2, 4]))))),
        cpus_per_gpu=draw(st.none() | st.just((cpus, cpus * draw(st.floats(1, 8))))),
        mem_mib_per_gpu=draw(st.none() | st.just((mem, mem * draw(st.floats(1, 8))))),
        task_per_gpu=draw(st.none() | st.booleans()),
    )


@st.composite
def job_views(draw: st.DrawFn) -> JobView:
    request = draw(requests())
    try:
        bounds = bounds_for(request, draw(directives()), SiteBounds(), SHAPE)
    except DirectiveError:
        reject()  # its tasks cannot share any count of the range
    return JobView(
        job_class=draw(st.sampled_from(JOB_CLASSES)),
        request=request,
        bounds=bounds,
        waited_s=draw(st.floats(0, 1e6)),
        user_running_gpus=draw(st.integers(0, 64)),
    )


@st.composite
def cluster_views(draw: st.DrawFn) -> ClusterView:
    nodes = draw(st.integers(1, 8))
    whole = np.array([SHAPE.gpus, SHAPE.cpus, SHAPE.mem_mib], dtype=np.float64)
    used = np.array([draw(unit) for _ in range(nodes * 3)]).reshape(nodes, 3)
    running = sorted(draw(st.lists(st.tuples(st.floats(0, 1e5), st.integers(0, 8)), max_size=5)))
    queued = draw(st.lists(st.tuples(st.integers(1, 64), st.floats(0, 1e5)), max_size=20))
    return ClusterView(
        time_s=1e9,
        shape=SHAPE,
        free=np.floor(whole * (1 - used)),
        totals=whole * nodes,
        releases=np.array([(left, gpus, 4 * gpus, 1e4) for left, gpus in running]).reshape(-1, 4),
        queued=np.array(queued, dtype=np.float64).reshape(-1, 2),
        urgency_counts=draw(st.booleans()),
    )
