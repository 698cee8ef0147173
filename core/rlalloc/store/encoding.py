"""From structs to rows and back: plain values as they are, structures as JSON text."""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from rlalloc.errors import StoreError

Row = TypeVar("Row", bound=msgspec.Struct)
_PLAIN = (str, int, float, bytes, bool, type(None))


class UnreadableRow(StoreError):
    """A row that is not of the form which this rlalloc writes."""

    remedy = "another version of rlalloc wrote it, or it is damaged: install that version, or delete the row"


def to_row(struct: msgspec.Struct) -> dict[str, Any]:
    """A struct as values of the columns of the same names."""
    return {
        name: value if isinstance(value, _PLAIN) else msgspec.json.encode(value).decode()
        for name, value in msgspec.structs.asdict(struct).items()
    }


def from_row(row: Mapping[Any, Any], kind: type[Row]) -> Row:
    """The struct of a row, which may have more columns. Raises UnreadableRow, without a word on which row it is."""
    values = {}
    column = ""
    try:
        for column, structure in _columns(kind).items():
            value = row[column]
            is_json = value is not None and structure is not None
            values[column] = msgspec.json.decode(value, type=structure) if is_json else value
        column = ""
        return msgspec.convert(values, kind, strict=False)
    except (msgspec.MsgspecError, TypeError, ValueError) as err:
        raise UnreadableRow(f"{column}: {err}" if column else str(err)) from err


@cache
def _columns(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Each column of a class: its type if it is JSON, else None. Computed once: that takes longer than a query."""
    return {column: hint if _is_structure(hint) else None for column, hint in get_type_hints(kind).items()}


def _is_structure(hint: Any) -> bool:
    parts = (hint,) if get_origin(hint) is dict else get_args(hint) or (hint,)
    kinds = [get_origin(part) or part for part in parts]
    return any(kind is dict or (isinstance(kind, type) and issubclass(kind, msgspec.Struct)) for kind in kinds)
