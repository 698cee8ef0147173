"""What rlalloc.lua costs slurmctld for one script: processor time of a submission, beside the bound of the design.

    python bench/plugin_speed.py [--all]

Submits each script of tests/slurm_plugin/scripts and tests/slurm_plugin/hostile_scripts.py 200 times to the plugin,
without slurmctld, under the shipped rules, by each installed Lua. Shown are the slowest (``--all``: all) in
microseconds, the best of ten rounds, and the bound: 200 microseconds and 1 millisecond a megabyte. Exits 1 if one is
above it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.slurm_plugin.hostile_scripts import corpus, hostile_scripts  # noqa: E402

from rlalloc.config import Config  # noqa: E402
from rlallocd.intercept import intercept_text  # noqa: E402

SHOWN: Final = 8
PROGRAM: Final = """
slurm = {log_error = function(...) error(string.format(...)) end, log_info = print, log_user = function() end}
local rlalloc = dofile(arg[1])
for number = 0, tonumber(arg[3]) - 1 do
   local file = io.open(arg[2] .. "/" .. number, "rb")
   local script, best = file:read("*a"), math.huge
   file:close()
   for _ = 1, 10 do
      local start = os.clock()
      for _ = 1, 20 do
         rlalloc.job_submit({script = script, tres_per_node = "gres:gpu:8", environment = {}}, {}, 0)
      end
      best = math.min(best, (os.clock() - start) / 20)
   end
   print(string.format("%.1f", best * 1e6))
end
"""


def main() -> int:
    """Print a table for each Lua."""
    parser = argparse.ArgumentParser(description="What rlalloc.lua costs slurmctld for one script.")
    parser.add_argument("--all", action="store_true", help="show all scripts, not the slowest")
    everything = parser.parse_args().all
    scripts = {f"corpus: {name}": text for name, text in corpus().items()} | hostile_scripts()
    above = 0
    for interpreter in filter(shutil.which, ("lua5.1", "lua5.4")):
        spent = sorted(zip(times(interpreter, list(scripts.values())), scripts, strict=True), reverse=True)
        usual = sorted(took for took, name in spent if name.startswith("corpus"))
        print(
            f"{interpreter}: corpus of {len(usual)}: median {usual[len(usual) // 2]:.0f} us, most {usual[-1]:.0f} us"
        )
        for took, name in spent[: None if everything else SHOWN]:
            bound = 200 + len(scripts[name]) / 1000
            print(f"  {took:6.0f} us, bound {bound:6.0f}  {name}")
        above += sum(took > 200 + len(scripts[name]) / 1000 for took, name in spent)
    return 1 if above else 0


def times(interpreter: str, scripts: list[bytes]) -> list[float]:
    """Microseconds of processor time for one submission of each script."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "intercept").write_text(intercept_text(Config(), time.time() + 1e6, 1e9))
        (Path(folder) / "wake").touch()
        (Path(folder) / "program.lua").write_text(PROGRAM)
        for number, script in enumerate(scripts):
            (Path(folder) / str(number)).write_bytes(script)
        plugin = str(ROOT / "slurm_plugin" / "rlalloc.lua")
        command = [interpreter, f"{folder}/program.lua", plugin, folder, str(len(scripts))]
        environment = {**os.environ, "RLALLOC_RUNTIME_DIRECTORY": folder}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


if __name__ == "__main__":
    sys.exit(main())
