"""What rlalloc.lua costs slurmctld for one job: processor time of a submission, beside the bound of the design.

    python bench/plugin_speed.py [--all]

Submits each script of tests/slurm_plugin/scripts and tests/slurm_plugin/hostile_scripts.py 200 times to the plugin,
without slurmctld, under the shipped rules, by each installed Lua. Then a short script with each of the hostile fields
(names, lists, comments), and the hostile scripts with all of these fields together. Shown are the slowest (``--all``:
all) in microseconds, and the bound: 200 microseconds and 1 millisecond a megabyte. Exits 1 if one is above it.

Other work on the machine slows everything down. So each round also times a fixed loop, and what counts is a script's
time over the loop's in the same round (the median of ten rounds), times the loop's best time in this run. Each round
goes through all scripts, so a short disturbance falls into one round of a script, not into all ten. The first line
shows how much slower than its best the loop usually was: figures of a run with a factor above 2 say little.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.slurm_plugin.hostile_scripts import corpus, hostile_fields, hostile_scripts  # noqa: E402
from tests.slurm_plugin.lua_slurm import literal  # noqa: E402

from rlalloc.config import Config  # noqa: E402
from rlallocd.submissions.intercept import intercept_text  # noqa: E402

SHOWN: Final = 8
SHORT: Final = b"#!/bin/sh\ntorchrun --nproc_per_node=gpu train.py\n"
Job = tuple[bytes, dict[str, Any]]  # a script, and the fields beside it
PROGRAM: Final = """
local function fail(...) io.stderr:write(string.format(...)) os.exit(1) end
slurm = {log_error = fail, log_info = function() end, log_user = function() end}
local rlalloc = dofile(arg[1])
local text = string.rep("python train.py --model gpt --tokens 4 ", 100)
local best, ratios = {}, {}
for number = 1, tonumber(arg[3]) do
   ratios[number], best[number] = {}, math.huge
end
for round = 1, 10 do
   for number = 1, #ratios do
      local file = io.open(arg[2] .. "/" .. number, "rb")
      local script, fields, jobs = file:read("*a"), dofile(arg[2] .. "/fields" .. number), {}
      file:close()
      local start = os.clock()
      for _ = 1, 100 do
         text:find("torchrun", 1, true)
         text:match("^[^%s;|&]+")
         text:sub(1, 40):gsub("[^a-z]", "_")
      end
      local loop = os.clock() - start
      for each = 1, 20 do
         local environment = {}
         for name, value in pairs(fields.environment or {}) do environment[name] = value end
         jobs[each] = {script = script, tres_per_node = "gres:gpu:8"}
         for name, value in pairs(fields) do jobs[each][name] = value end
         jobs[each].environment = environment
      end
      start = os.clock()
      for each = 1, 20 do
         rlalloc.job_submit(jobs[each], {}, 0)
      end
      ratios[number][round] = (os.clock() - start) / 20 / loop
      best[number] = math.min(best[number], loop)
   end
end
for number = 1, #ratios do
   table.sort(ratios[number])
   print(string.format("%.6g %.6g", best[number] * 1e6, ratios[number][5]))
end
"""


def main() -> int:
    """Print a table for each Lua."""
    parser = argparse.ArgumentParser(description="What rlalloc.lua costs slurmctld for one script.")
    parser.add_argument("--all", action="store_true", help="show all scripts, not the slowest")
    everything = parser.parse_args().all
    hostile, fields = hostile_scripts(), hostile_fields()
    jobs: dict[str, Job] = {f"corpus: {name}": (text, {}) for name, text in corpus().items()}
    jobs |= {name: (text, {}) for name, text in hostile.items()}
    jobs |= {f"fields: {name}": (SHORT, each) for name, each in fields.items()}
    jobs |= {f"all fields, and {name}": (text, fields["all together"]) for name, text in hostile.items()}
    above = 0
    for interpreter in filter(shutil.which, ("lua5.1", "lua5.4")):
        took_each, slower = times(interpreter, list(jobs.values()))
        spent = sorted(zip(took_each, jobs, strict=True), reverse=True)
        usual = sorted(took for took, name in spent if name.startswith("corpus"))
        print(
            f"{interpreter}: corpus of {len(usual)}: median {usual[len(usual) // 2]:.0f} us, most {usual[-1]:.0f} us"
            f"; the machine was {slower:.2f} times slower than at its best"
        )
        for took, name in spent[: None if everything else SHOWN]:
            bound = 200 + len(jobs[name][0]) / 1000
            print(f"  {took:6.0f} us, bound {bound:6.0f}  {name}")
        above += sum(took > 200 + len(jobs[name][0]) / 1000 for took, name in spent)
    return 1 if above else 0


def times(interpreter: str, jobs: list[Job]) -> tuple[list[float], float]:
    """Microseconds of processor time for one submission of each job, and how much slower the loop usually was."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "intercept").write_text(intercept_text(Config(), time.time() + 1e6, 1e9))
        (Path(folder) / "wake").touch()
        (Path(folder) / "program.lua").write_text(PROGRAM)
        for number, (script, fields) in enumerate(jobs, 1):
            (Path(folder) / str(number)).write_bytes(script)
            (Path(folder) / f"fields{number}").write_text(f"return {literal(fields)}")
        plugin = str(ROOT / "slurm_plugin" / "rlalloc.lua")
        command = [interpreter, f"{folder}/program.lua", plugin, folder, str(len(jobs))]
        environment = {**os.environ, "RLALLOC_RUNTIME_DIRECTORY": folder}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    rounds = [[float(number) for number in line.split()] for line in done.stdout.splitlines()]
    loops = sorted(loop for loop, _ in rounds)
    return [ratio * loops[0] for _, ratio in rounds], loops[len(loops) // 2] / loops[0]


if __name__ == "__main__":
    sys.exit(main())
