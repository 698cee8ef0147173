"""Reading what Slurm's commands print of limits. Pure functions; all versions print them alike.

``scontrol show assoc_mgr --oneliner`` has the limits that slurmctld applies together with their use; a QOS's flags
and factors are only in ``sacctmgr show qos``. Raises UnexpectedAnswer for anything that cannot be read: a limit that
is not understood must not be taken for no limit.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from rlallocd.slurm.license_text import license_counts
from rlallocd.slurm.limit_records import AssociationRecord, Counts, Limits, Pool, QosRecord, ReservationRecord
from rlallocd.slurm.slurm_errors import UnexpectedAnswer

_Read = TypeVar("_Read")

QOS_FIELDS: Final = "Name,Flags,UsageFactor,LimitFactor,MaxTRESPU,MaxTRESPA,Preempt"
_NO_FACTOR: Final = 1.0
_NAME_AND_ID: Final = re.compile(r"(.*?)\((\d+)\)")
_OWNER: Final = re.compile(r"([^={}\s][^={}]*)=\{([^}]*)\}")
_TRES: Final = re.compile(r"([^=,]+)=(N|\d+)(?:\((\d+)\))?")


def read_associations(text: str) -> tuple[AssociationRecord, ...]:
    """The associations in ``scontrol show assoc_mgr --oneliner``."""
    return tuple(_read(_association, line) for line in text.splitlines() if line.startswith("ClusterName="))


def read_qos(text: str, sacctmgr_text: str) -> dict[str, QosRecord]:
    """The QOS in the same text, and in ``sacctmgr show qos --parsable2 --noheader format=`` + QOS_FIELDS."""
    rows = _rows(sacctmgr_text)
    records = {}
    for line in text.splitlines():
        if line.startswith("QOS="):
            record = _read(lambda words: _qos(words, rows), line)
            records[record.name] = record
    return records


def read_preempts(sacctmgr_text: str) -> dict[str, frozenset[str]]:
    """For each QOS those whose jobs its jobs may preempt, from what sacctmgr printed as above."""
    return {name: frozenset(row[-1].split(",")) - {""} for name, row in _rows(sacctmgr_text).items()}


def read_reservations(text: str, expand: Callable[[str], frozenset[str]]) -> tuple[ReservationRecord, ...]:
    """The reservations of ``scontrol show reservation --oneliner``, times in epoch seconds.

    ``expand`` turns ``n[1-3]`` into names of nodes.
    """
    return tuple(
        _read(lambda words: _reservation(words, expand), line)
        for line in text.splitlines()
        if line.startswith("ReservationName=")
    )


def _rows(sacctmgr_text: str) -> dict[str, list[str]]:
    width = QOS_FIELDS.count(",") + 1
    return {row[0]: row for line in sacctmgr_text.splitlines() if len(row := line.split("|")) == width}


def _association(line: str) -> AssociationRecord:
    words = _words(line)
    user, user_id = _name_and_id(words["UserName"])
    parent, _ = _name_and_id(words["ParentAccount"])
    return AssociationRecord(
        account=words["Account"],
        user=user,
        user_id=user_id,
        partition=words["Partition"],
        parent=parent,
        limits=_limits(words),
    )


def _qos(line: str, rows: Mapping[str, list[str]]) -> QosRecord:
    own, _, owners = line.partition(" Account Limits")
    by_account, _, by_user = owners.partition(" User Limits")
    words = _words(own)
    name, _ = _name_and_id(words["QOS"])
    _, flags, usage_factor, limit_factor, per_user, per_account, _ = rows[name]
    accounts = {owner: _words(body) for owner, body in _OWNER.findall(by_account)}
    users = {_user_id(owner): _words(body) for owner, body in _OWNER.findall(by_user)}
    return QosRecord(
        name=name,
        flags=frozenset(flag for flag in flags.split(",") if flag),
        usage_factor=float(usage_factor or _NO_FACTOR),
        limit_factor=float(limit_factor or _NO_FACTOR),
        limits=_limits(words),
        min_tres=_counts(words["MinTRESPJ"]),
        limits_accounts=bool(per_account),
        limits_users=bool(per_user),
        per_account={owner: _pool(body["MaxTRESPA"]) for owner, body in accounts.items()},
        per_user={owner: _pool(body["MaxTRESPU"]) for owner, body in users.items()},
        # slurmctld prints these where it enforces them; earlier versions do neither (scontrol's info_assoc_mgr.c).
        per_account_running_minutes={o: _pool(body.get("MaxTRESRunMinsPA", "")) for o, body in accounts.items()},
        per_user_running_minutes={o: _pool(body.get("MaxTRESRunMinsPU", "")) for o, body in users.items()},
    )


def _reservation(line: str, expand: Callable[[str], frozenset[str]]) -> ReservationRecord:
    words = _words(line)
    nodes = words["Nodes"]
    return ReservationRecord(
        name=words["ReservationName"],
        nodes=expand(nodes) if nodes not in ("", "(null)") else frozenset(),
        start_s=int(words["StartTime"]),
        end_s=int(words["EndTime"]),
        licenses=license_counts(words.get("Licenses", "").removeprefix("(null)")),
    )


def _limits(words: Mapping[str, str]) -> Limits:
    return Limits(
        group=_pool(words["GrpTRES"]),
        group_minutes=_pool(words["GrpTRESMins"]),
        group_running_minutes=_pool(words["GrpTRESRunMins"]),
        group_wall_min=_minutes(words["GrpWall"].partition("(")[0]),
        max_tres=_counts(words["MaxTRESPJ"]),
        max_tres_per_node=_counts(words["MaxTRESPN"]),
        max_tres_minutes=_counts(words["MaxTRESMinsPJ"]),
        max_wall_min=_minutes(words["MaxWallPJ"]),
    )


def _words(line: str) -> dict[str, str]:
    """The fields of a line; names of accounts and QOS may have blanks."""
    words: dict[str, str] = {}
    name = ""
    for part in line.split():
        if "=" in part:
            name, _, words[name] = part.partition("=")
        elif name:
            words[name] += f" {part}"
    return words


def _pool(text: str) -> Pool:
    parts = list(_parts(text))
    return Pool(
        limits={name: int(limit) for name, limit, _ in parts if limit != "N"},
        used={name: int(used) for name, _, used in parts if used},
    )


def _counts(text: str) -> Counts:
    return _pool(text).limits


def _parts(text: str) -> Iterator[tuple[str, str, str]]:
    """``cpu=32(4),mem=N(0)`` as name, limit and use. Raises ValueError for any part that does not look like that."""
    for part in text.split(",") if text else ():
        match = _TRES.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not a count of a TRES")
        yield match[1], match[2], match[3] or ""


def _minutes(text: str) -> int | None:
    return None if text in ("", "N") else int(text)


def _name_and_id(text: str) -> tuple[str, int]:
    match = _NAME_AND_ID.fullmatch(text)
    return (match[1], int(match[2])) if match else (text, -1)


def _user_id(owner: str) -> int:
    """``1001`` or ``alice(1001)``, as the version prints it; neither can be taken for the other."""
    return int(owner) if owner.isdigit() else _name_and_id(owner)[1]


def _read(read: Callable[[str], _Read], line: str) -> _Read:
    try:
        return read(line)
    except (KeyError, ValueError) as err:
        raise UnexpectedAnswer(f"cannot read a limit ({err!r}) in {line[:120]!r}") from err
