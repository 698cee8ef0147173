"""Many scripts through rlalloc.lua in one interpreter: what its tags say, and how much work each script was."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rlalloc.config import Config, Rule
from rlallocd.submissions.intercept import intercept_text

from .lua_slurm import NOW, PLUGIN, UPTIME, literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Instructions of the interpreter, calls of string functions, and bytes that a plain search went over.
READER = r"""
local work = {calls = 0, bytes = 0, instructions = 0}
local real = {}
for _, name in ipairs({"find", "match", "gmatch", "gsub", "sub", "byte"}) do
   real[name] = string[name]
   string[name] = function(text, ...)
      work.calls = work.calls + 1
      if name == "find" then
         local first, last = real.find(text, ...)
         work.bytes = work.bytes + (first or #text) - math.min(select(2, ...) or 1, #text)
         return first, last, select(3, real.find(text, ...))
      end
      return real[name](text, ...)
   end
end
slurm = {}
for _, level in ipairs({"log_error", "log_info", "log_debug", "log_user"}) do
   slurm[level] = function(...) if level == "log_error" then print("error " .. string.format(...)) end end
end
os.time = function() return NOW end
local real_open = io.open
io.open = function(path, mode) return real_open(path == "/proc/uptime" and UPTIME_FILE or path, mode) end
local rlalloc = dofile(arg[1])
for number = 0, COUNT do
   local file = real_open(FOLDER .. "/" .. number, "rb")
   local job = {script = file:read("*a"), tres_per_node = "gres:gpu:8", environment = {}}
   file:close()
   for name, value in pairs(FIELDS) do
      if name == "environment" then
         for each, text in pairs(value) do job.environment[each] = text end
      else
         job[name] = value
      end
   end
   work.calls, work.bytes, work.instructions = 0, 0, 0
   debug.sethook(function() work.instructions = work.instructions + 100 end, "", 100)
   rlalloc.job_submit(job, {gpu = {flag_default = 1}}, 1000)
   debug.sethook()
   print("work " .. string.format("%.0f %.0f %.0f", work.instructions, work.calls, work.bytes))
   print("tag " .. (job.admin_comment or ""))
end
print("end")
"""


class Read(NamedTuple):
    """What became of one script: the fields of its tag, empty where there is none, and the work that it was."""

    tag: dict[str, str]
    instructions: int
    calls: int
    bytes_searched: int
    errors: tuple[str, ...]


def read_scripts(
    interpreter: str,
    scripts: Sequence[bytes],
    config: Config | None = None,
    fields: Mapping[str, Any] | None = None,
) -> list[Read]:
    """Submit the scripts one after another, under the shipped rules or ``config``, each job with ``fields``."""
    shadow = Rule(name="llm", mode="shadow")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "intercept").write_text(intercept_text(config or Config(rules=(shadow,)), NOW, UPTIME))
        (folder / "uptime").write_text(f"{UPTIME}.00 0.00\n")
        (folder / "0").write_bytes(b"#RLALLOC class=train\n")  # reads the intercept file
        for number, script in enumerate(scripts, 1):
            (folder / str(number)).write_bytes(script)
        values = {
            "NOW": NOW,
            "UPTIME_FILE": f"{folder}/uptime",
            "FOLDER": name,
            "COUNT": len(scripts),
            "FIELDS": fields or {},
        }
        source = folder / "reader.lua"
        source.write_text("\n".join([*(f"{key} = {literal(value)}" for key, value in values.items()), READER]))
        done = subprocess.run(
            [interpreter, source, PLUGIN / "rlalloc.lua"],
            env={"RLALLOC_RUNTIME_DIRECTORY": name},
            capture_output=True,
            timeout=300,
            check=True,
        )
    lines = done.stdout.decode("latin-1").splitlines()
    assert lines.pop() == "end"
    found: list[Read] = []
    errors: list[str] = []
    work = (0, 0, 0)
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "error":
            errors.append(rest)
        elif kind == "work":
            first, second, third = rest.split()
            work = (int(first), int(second), int(third))
        else:
            tag = dict(part.partition("=")[::2] for part in rest.removeprefix("rlalloc:").split(";") if part)
            found.append(Read(tag, *work, tuple(errors)))
            errors = []
    return found[1:]
