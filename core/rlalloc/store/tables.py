"""The store's tables.

decisions      one row an answer for one job: inputs, shares, policy, allocation, or why it was left as submitted;
               ``awaits_outcome`` is 0 once one of its job's decisions has an outcome
feature_sets   the names of the features of decisions' observations, once for each set of features there ever was
applications   the journal: the original and the intent of each update, written before Slurm is touched; ``seal`` is
               rlallocd's (rlalloc.store.journal_seal)
outcomes       what sacct says became of a decided job, and its reward
policies       versions made by the trainer, and the gate's verdict
past_jobs      one row a job that has ended, any job of the site: what the run time is predicted from
leases         which of several rlallocd acts, where slurmctld has a backup: one row
history_reads  how far each source of past jobs has been read
schema_history which rlalloc brought the store to which revision

A change here needs a migration (rlalloc.store.migrations); a test compares the two.
"""

from typing import Final

from sqlalchemy import Column, Double, ForeignKey, Index, Integer, LargeBinary, MetaData, String, Table, Text
from sqlalchemy.dialects.mysql import VARCHAR

METADATA: Final = MetaData()

DECISIONS: Final = Table(
    "decisions",
    METADATA,
    Column("id", String(36), primary_key=True),
    Column("job_id", Integer, nullable=False),
    Column("submitted_s", Double, nullable=False),
    Column("decided_s", Double, nullable=False),
    Column("user", String(64), nullable=False),
    Column("account", String(64), nullable=False),
    Column("partition", String(64), nullable=False),
    Column("job_name", Text, nullable=False),
    Column("job_class", String(16), nullable=False),
    Column("rule", String(32), nullable=False),
    Column("mode", String(8), nullable=False),
    Column("reason", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("bounds", Text),
    Column("observation_schema", Integer),
    Column("observation", LargeBinary),
    Column("alternatives", Text),
    Column("queued", Integer),
    Column("dominant_share_requested", Double),
    Column("dominant_share_allocated", Double),
    Column("reference_s", Double),
    Column("shares", Text),
    Column("log_probability", Double),
    Column("policy_version", String(32)),
    Column("allocation", Text),
    Column("predicted_gain", Double),
    Column("circumstances", Text),
    Column("nice", Integer),
    Column("patience_s", Double),
    Column("run_time", Text),
    Column("slowdown", Text),
    Column("awaits_outcome", Integer, nullable=False, server_default="1"),
    Index("decisions_by_job", "job_id", "submitted_s"),
    Index("decisions_by_time", "decided_s", "id"),
    Index("decisions_awaiting_outcome", "awaits_outcome", "decided_s", "id"),
)

FEATURE_SETS: Final = Table(
    "feature_sets",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("names", Text, nullable=False),
)

APPLICATIONS: Final = Table(
    "applications",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("decision_id", String(36), ForeignKey("decisions.id"), nullable=False),
    Column("job_id", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("original", Text, nullable=False),
    Column("intended", Text, nullable=False),
    Column("begin_s", Double, nullable=False),
    Column("detail", Text, nullable=False),
    Column("changed_s", Double, nullable=False),
    Column("begins", Integer, nullable=False, server_default="1"),
    Column("record", Text),
    Column("own_nice", Integer),
    Column("added_nice", Integer),
    Column("seal", String(64)),
    Index("applications_by_state_and_time", "state", "changed_s"),
    Index("applications_by_job", "job_id"),
    Index("applications_by_decision", "decision_id"),
)

OUTCOMES: Final = Table(
    "outcomes",
    METADATA,
    Column("decision_id", String(36), ForeignKey("decisions.id"), primary_key=True),
    Column("state", String(24), nullable=False),
    Column("exit_code", String(16), nullable=False),
    Column("eligible_s", Double),
    Column("started_s", Double),
    Column("ended_s", Double, nullable=False),
    Column("nodes", Integer, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("cpus", Integer, nullable=False),
    Column("mem_mib", Double, nullable=False),
    Column("max_rss_mib", Double),
    Column("consumed_energy_j", Double),
    Column("executed_shares", Text),
    Column("reward", Double),
    Column("cpu_s_used", Double),
    Column("mem_mib_used", Double),
    Column("costs", Text),
    Column("our_doing", String(32)),
    Index("outcomes_of_our_doing", "our_doing"),
)

POLICIES: Final = Table(
    "policies",
    METADATA,
    Column("version", String(32), primary_key=True),
    Column("parent", String(32)),
    Column("created_s", Double, nullable=False),
    Column("promoted", Integer, nullable=False),
    Column("verdict", Text, nullable=False),
)


def _any_text(characters: int) -> String:
    """Any text, also where the database's own character set is narrower (MariaDB)."""
    wide = VARCHAR(characters, charset="utf8mb4", collation="utf8mb4_bin")
    return String(characters).with_variant(wide, "mysql", "mariadb")


PAST_JOBS: Final = Table(
    "past_jobs",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("job_id", _any_text(32), nullable=False),
    Column("user", _any_text(64), nullable=False),
    Column("submitted_s", Double, nullable=False),
    Column("started_s", Double, nullable=False),
    Column("ended_s", Double, nullable=False),
    Column("state", _any_text(24), nullable=False),
    Column("nodes", Integer, nullable=False),
    Column("cpus", Integer, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("mem_mib", Double, nullable=False),
    Column("limit_s", Double),
    Column("eligible_s", Double),
    Column("account", _any_text(64), nullable=False),
    Column("partition", _any_text(64), nullable=False),
    Column("qos", _any_text(64), nullable=False),
    Column("name", _any_text(128), nullable=False),
    Column("script", _any_text(64), nullable=False),
    Column("max_rss_mib", Double),
    Column("cpu_s_used", Double),
    Column("node_rss_mib", Double),
    Column("allotted", Text),
    Column("job_class", String(16), nullable=False, server_default=""),
    Index("past_jobs_of_job", "job_id", "submitted_s", unique=True),
    Index("past_jobs_by_end", "ended_s", "id"),
)

HISTORY_READS: Final = Table(
    "history_reads",
    METADATA,
    Column("source", String(64), primary_key=True),
    Column("position", Double, nullable=False),
)

LEASES: Final = Table(
    "leases",
    METADATA,
    Column("name", String(32), primary_key=True),
    Column("holder", String(255), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("renewals", Integer, nullable=False),
    Column("lasts_s", Double, nullable=False),
    Column("renewed_s", Double, nullable=False),
    Column("seal_key", String(64), nullable=False),
)

SCHEMA_HISTORY: Final = Table(
    "schema_history",
    METADATA,
    Column("revision", String(32), primary_key=True),
    Column("rlalloc", String(32), nullable=False),
    Column("applied_s", Double, nullable=False),
)
