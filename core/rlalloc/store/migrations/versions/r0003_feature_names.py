"""Decisions keep their features by name, and what the heuristics answered beside them.

The names of a set of features are kept once, under the number that decisions give. rlalloc 0.1 had one set, number 7,
which held answers of heuristics too: the last four were the baseline's.
"""

from typing import Final

import msgspec
import sqlalchemy as sa
from alembic import op

from rlalloc.store.migrations.additions import add_columns, add_table

revision = "0003"
down_revision = "0002"

FEATURE_SETS: Final = sa.Table(
    "feature_sets",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("names", sa.Text, nullable=False),
)
NAMES_OF_0_1: Final = (
    "class_train",
    "class_finetune",
    "class_serve",
    "requested_gpus",
    "least_gpus",
    "most_gpus",
    "gpu_count_choices",
    "requested_gpu_share",
    "requested_cpus_per_gpu",
    "least_cpus_per_gpu",
    "requested_mem_per_gpu",
    "least_mem_per_gpu",
    "time_limit",
    "waited",
    "task_per_gpu",
    "user_running_gpus",
    "urgency_counts",
    "cluster_gpus",
    "node_gpus",
    "free_gpus",
    "free_cpus",
    "free_mem",
    "idle_nodes",
    "largest_free_block",
    "queue_length",
    "queued_gpus",
    "backlog",
    "running_jobs",
    "freed_within_run_time",
    "wait_least",
    "run_time_least",
    "dominant_least",
    "wait_requested",
    "run_time_requested",
    "dominant_requested",
    "wait_most",
    "run_time_most",
    "dominant_most",
    "weight_jct",
    "weight_wait",
    "weight_slowdown",
    "weight_gpu_held",
    "weight_cpu_held",
    "weight_mem_held",
    "weight_gpu_waste",
    "weight_cpu_waste",
    "weight_mem_waste",
    "weight_energy",
    "weight_latency",
    "weight_network",
    "weight_fairness",
    "weight_out_of_memory",
    "weight_timeout",
    "price-ef+smallest-area-first:gpu_share",
    "price-ef+smallest-area-first:urgency",
    "capped-price+smallest-area-first:gpu_share",
    "capped-price+smallest-area-first:urgency",
    "marginal-gain+smallest-area-first:gpu_share",
    "marginal-gain+smallest-area-first:urgency",
    "efficiency-adaptive+smallest-area-first:gpu_share",
    "efficiency-adaptive+smallest-area-first:urgency",
    "equal-share+smallest-area-first:gpu_share",
    "equal-share+smallest-area-first:urgency",
    "price-by-order+smallest-area-first:gpu_share",
    "price-by-order+smallest-area-first:cpu_share",
    "price-by-order+smallest-area-first:mem_share",
    "price-by-order+smallest-area-first:urgency",
)


def upgrade() -> None:
    """Add the names, and the column of the answers."""
    add_table(FEATURE_SETS)
    add_columns("decisions", sa.Column("alternatives", sa.Text))
    connection = op.get_bind()
    if connection.execute(sa.select(FEATURE_SETS).where(FEATURE_SETS.c.id == 7)).first() is None:
        names = msgspec.json.encode(NAMES_OF_0_1).decode()
        connection.execute(sa.insert(FEATURE_SETS).values(id=7, names=names))
