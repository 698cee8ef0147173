"""One self-contained HTML page: figures as a table, pictures as data URIs."""

import base64
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Final

import msgspec

from rlalloc_simulator.report.figure_table import Row

_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 72rem;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.origin { color: #555; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .9rem; text-align: right; white-space: nowrap; }
thead th { border-bottom: 2px solid #1a1a1a; }
tbody th { font-weight: normal; text-align: left; }
tbody th.group { font-weight: 600; padding-top: .8rem; }
tbody tr:hover td, tbody tr:hover th { background: #f0f4f8; }
img { max-width: 100%; height: auto; }
dt { font-weight: 600; } dd { margin: 0 0 .5rem 1.2rem; }
"""

DEFINITIONS: Final = {
    "JCT": "from the submission to the end, of the jobs that ran; it contains the wait",
    "wait": "from the submission to the first start",
    "bounded slowdown": "JCT over the time that the job takes alone as its user asked for it, at least 10 s; never "
    "below 1",
    "held": "what jobs held over what all nodes have, from the first submission to the last end",
    "held while jobs come": "the same until the last submission, without the tail of the last long jobs",
    "fragmentation": "share of all GPU time in which GPUs were idle while a job waited that asked for no more GPUs, "
    "CPUs and memory than were free on all nodes together",
    "worst user over mean": "the largest of the users' mean bounded slowdowns over the mean of all jobs",
    "Jain's index": "of the users' mean bounded slowdowns: 1 if all fare alike, 1/users if one has it all",
}


class Picture(msgspec.Struct, frozen=True):
    """A PNG, its heading and its text alternative."""

    title: str
    alternative: str
    png: bytes


def page(
    title: str, facts: Sequence[str], policies: Sequence[str], rows: Sequence[Row], shown: Sequence[Picture]
) -> str:
    """Return the page. All text is escaped: it may come from anybody's file."""
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
        f"<h1>{escape(title)}</h1>",
        *(f'<p class="origin">{escape(fact)}</p>' for fact in facts),
        _table(policies, rows),
        *(_picture(picture) for picture in shown),
        _definitions(DEFINITIONS),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _table(policies: Sequence[str], rows: Sequence[Row]) -> str:
    head = "".join(f'<th scope="col">{escape(policy)}</th>' for policy in policies)
    body = []
    for group, members in groupby(rows, key=lambda row: row.group):
        body.append(f'<tr><th class="group" scope="rowgroup" colspan="{1 + len(policies)}">{escape(group)}</th></tr>')
        for row in members:
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in row.cells)
            body.append(f'<tr><th scope="row">{escape(row.label)}</th>{cells}</tr>')
    return (
        f'<div class="wide"><table>\n<thead><tr><th></th>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(body)
        + "\n</tbody>\n</table></div>"
    )


def _picture(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode()
    return (
        f"<h2>{escape(picture.title)}</h2>\n"
        f'<img alt="{escape(picture.alternative)}" src="data:image/png;base64,{data}">'
    )


def _definitions(texts: Mapping[str, str]) -> str:
    entries = "\n".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in texts.items())
    return f"<h2>What the figures mean</h2>\n<dl>\n{entries}\n</dl>"
