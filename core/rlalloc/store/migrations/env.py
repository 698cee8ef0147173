"""What alembic runs for every command: the connection comes from ``rlalloc.store.migrate``."""

import time
from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo

from rlalloc import __version__
from rlalloc.store.tables import METADATA, SCHEMA_HISTORY


def note(ctx: MigrationContext, step: MigrationInfo, heads: Collection[Any], run_args: Mapping[str, Any]) -> None:
    """Keep which rlalloc brought the store to a revision, so that an older one can say so."""
    del heads, run_args
    connection = ctx.connection
    if connection is not None and step.up_revision_id is not None:
        row = {"revision": step.up_revision_id, "rlalloc": __version__, "applied_s": time.time()}
        connection.execute(sa.delete(SCHEMA_HISTORY).where(SCHEMA_HISTORY.c.revision == step.up_revision_id))
        connection.execute(sa.insert(SCHEMA_HISTORY), [row])


context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA, on_version_apply=note)
with context.begin_transaction():
    context.run_migrations()
