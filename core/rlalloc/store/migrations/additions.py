"""What revisions are made of: each adds what is missing, and leaves alone what is there.

MariaDB commits each change of a table at once: a migration that was cut short is run again from its beginning.
"""

import sqlalchemy as sa
from alembic import op


def add_table(table: sa.Table) -> None:
    """Create a table, or the columns and indexes that it lacks."""
    if not sa.inspect(op.get_bind()).has_table(table.name):
        table.create(op.get_bind())
        return
    add_columns(table.name, *table.columns)
    for index in table.indexes:
        index.create(op.get_bind(), checkfirst=True)


def add_columns(table: str, *columns: sa.Column[object]) -> None:
    """Add columns that a table lacks; each may be NULL or has a default in the database."""
    present = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}
    for column in columns:
        if column.name not in present:
            op.add_column(table, column)


def add_index(name: str, table: str, *columns: str) -> None:
    """Add an index, unless there is one of that name."""
    if name not in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}:
        op.create_index(name, table, list(columns))


def drop_index(name: str, table: str) -> None:
    """Drop an index that another one makes superfluous, if it is there."""
    if name in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}:
        op.drop_index(name, table)
