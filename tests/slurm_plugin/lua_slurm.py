"""A stand-in for job_submit/lua: one submission under an interpreter of its own.

For what the real one cannot be made to do: broken files and fields, a clock of ours, several Lua versions.
test_on_slurm.py runs the same module in slurmctld.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

PLUGIN = Path(__file__).parents[2] / "slurm_plugin"
NOW = 1_795_236_640
UPTIME = 5_000

# Reads go to the fields, writes are recorded: "untouched" means that there is no write at all.
HARNESS = r"""
local function show(kind, name, value)
   print(kind .. "\t" .. name .. "\t" .. (tostring(value):gsub("\n", "\\n")))
end
local function number(value)
   return type(value) == "number" and string.format("%.0f", value) or value
end
slurm = {SUCCESS = 0, ERROR = -1, FAILURE = -1}
for _, level in ipairs({"log_error", "log_info", "log_debug", "log_user"}) do
   slurm[level] = function(...) show("log", level, string.format(...)) end
end
local now = tonumber(arg[2])
os.time = function() return now end
local real_open = io.open
io.open = function(path, mode) return real_open(path == "/proc/uptime" and UPTIME_FILE or path, mode) end
local function recorder(kind, fields)
   return setmetatable({}, {
      __index = fields,
      __newindex = function(_, name, value)
         if name == REFUSED then error("no such field: " .. name) end
         show(kind, name, number(value))
         rawset(fields, name, value)
      end,
   })
end
local rlalloc = dofile(arg[1])
local environment = recorder("environment", type(JOB) == "table" and JOB.environment or {})
for round = 1, ROUNDS do
   local job_desc = recorder("write", JOB)
   if type(JOB) == "table" then JOB.environment = environment else job_desc = JOB end
   local returned = select("#", rlalloc.job_submit(job_desc, PARTITIONS, 1000))
   if returned ~= 0 then show("returned", "count", returned) end
end
print("end")
"""


@dataclass
class Submitted:
    """What one submission did."""

    writes: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    logs: list[tuple[str, str]] = field(default_factory=list)

    @property
    def untouched(self) -> bool:
        return not self.writes and not self.environment

    @property
    def tag(self) -> dict[str, str]:
        """The fields of the tag, as rlallocd reads them."""
        (word,) = [word for word in self.writes["admin_comment"].split() if word.startswith("rlalloc:")]
        return dict(part.partition("=")[::2] for part in word.removeprefix("rlalloc:").split(";"))

    def messages(self, level: str) -> list[str]:
        return [text for found, text in self.logs if found == level]


def literal(value: Any) -> str:
    """Write a value as Lua does."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, bytes | str):
        raw = value if isinstance(value, bytes) else value.encode()
        return '"' + "".join(f"\\{byte:03d}" for byte in raw) + '"'
    return "{" + ",".join(f"[{literal(key)}]={literal(entry)}" for key, entry in value.items()) + "}"


def submit(
    interpreter: str,
    runtime: Path,
    job: Mapping[str, Any] | Any,
    *,
    partitions: Any = None,
    now: float = NOW,
    uptime: float | None = UPTIME,
    rounds: int = 1,
    refused: str = "",
) -> Submitted:
    """Submit a job; `refused` is a field that cannot be written; without `uptime` the system does not show it."""
    uptime_file = runtime / "uptime"
    uptime_file.unlink(missing_ok=True)
    if uptime is not None:
        uptime_file.write_text(f"{uptime:.2f} 0.00\n")
    values = {"JOB": job, "PARTITIONS": partitions or {"gpu": {"flag_default": 1}, "cpu": {"flag_default": 0}}}
    lines = [f"{name} = {literal(value)}" for name, value in values.items()]
    program = "\n".join(
        [
            *lines,
            f"ROUNDS = {rounds}",
            f"REFUSED = {literal(refused)}",
            f"UPTIME_FILE = {literal(str(uptime_file))}",
            HARNESS,
        ]
    )
    source = runtime / "harness.lua"
    source.write_text(program)
    completed = subprocess.run(
        [interpreter, source, PLUGIN / "rlalloc.lua", str(now)],
        env={**os.environ, "RLALLOC_RUNTIME_DIRECTORY": str(runtime)},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    result = Submitted()
    lines = completed.stdout.splitlines()
    assert lines[-1] == "end", completed.stdout
    for line in lines[:-1]:
        kind, name, text = line.split("\t", 2)
        if kind == "log":
            result.logs.append((name, text))
        else:
            {"write": result.writes, "environment": result.environment}[kind][name] = text
    return result
