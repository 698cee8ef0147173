"""Faults between the real rlallocd and the real scontrol: a program of the same name that stands first in PATH.

For each job a test may leave small shell scripts: ``update1`` takes the place of the first update of that job,
``update2`` of the second (the restoration), ``begin1`` of the call that lets it go. A script gets scontrol's words
and may call ``real`` with all of them, with some, or not at all, and do anything else before and after.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rlalloc_testbed import USER
from slurm_testbed import Site

PRELUDE: Final = """
real() { "$REAL_SCONTROL" "$@"; }
really() { exec "$REAL_SCONTROL" "$@"; }  # where the caller may give up: then it is scontrol itself that ends

# All words but those of these fields: without "NumCPUs MinCPUsNode" "$@"
without() {
   fields=" $1 "; shift
   for word; do
      shift
      case "$fields" in *" ${word%%=*} "*) ;; *) set -- "$@" "$word" ;; esac
   done
   real "$@"
}

# Only the words of these fields, beside "update JobId=7"
only() {
   fields=" update JobId $1 "; shift
   for word; do
      shift
      case "$fields" in *" ${word%%=*} "*) set -- "$@" "$word" ;; esac
   done
   real "$@"
}

refuse() { echo "slurm_update error: refused by the test" >&2; exit 1; }
become() { real update "JobId=$JOB" "$@"; }
as_user() { runuser -u llm-alice -- "$REAL_SCONTROL" update "JobId=$JOB" "$@"; }
wait_for() { until real --oneliner show job "$JOB" | grep -Eq "$1"; do sleep 0.1; done; }
started() { become StartTime=now; wait_for 'JobState=(RUNNING|COMPLETING|COMPLETED)'; }
requeued() {  # once its script runs, not while slurmd may still be launching it
   become StartTime=now; until [ -s "$OUTPUT/slurm-$JOB.out" ]; do sleep 0.1; done
   real requeue "$JOB"; wait_for 'JobState=PENDING'
}

# The caller gives up: nothing may keep its pipes open, or it would wait for more than its time limit.
no_answer() { exec sleep 600 </dev/null >/dev/null 2>&1; }
kill_daemon() { kill -KILL "$DAEMON"; exit 0; }
slurmctld() { kill "-$1" "$(cat "$SLURMCTLD_PID")"; }
slurmctld_ends() {
   process=$(cat "$SLURMCTLD_PID"); kill "-$1" "$process"
   while kill -0 "$process" 2>/dev/null; do sleep 0.1; done
}
"""

WRAPPER: Final = """#!/bin/sh
# In place of scontrol: {scripts}/<job>/update1, update2, …, begin1, … take the place of these calls for a job.
export REAL_SCONTROL='{real}' SLURMCTLD_PID='{slurmctld_pid}' OUTPUT='{output}' DAEMON="${{DAEMON:-$PPID}}"
if [ $# -eq 0 ]; then  # it reads commands, as scontrol does
   set -f
   while IFS= read -r line; do
      case $line in "update "*) "$0" $line </dev/null ;; *) echo "invalid keyword: $line" >&2 ;; esac
   done
   exit
fi
case "$*" in
"update JobId="*" CPUsPerTask="*) step=update ;;
"update JobId="*" StartTime="*) step=begin ;;
*) exec "$REAL_SCONTROL" "$@" ;;
esac
jobs=${{2#JobId=}}
SCRIPTS="{scripts}/$jobs" JOB=$jobs
if ! [ -d "$SCRIPTS" ]; then
   # Several jobs in one call: those with a script for it go on their own.
   status=0 others=
   for JOB in $(echo "$jobs" | tr , ' '); do
      shift 2
      set -- update "JobId=$JOB" "$@"
      if [ -d "{scripts}/$JOB" ]; then "$0" "$@" || status=1; else others=${{others:+$others,}}$JOB; fi
   done
   shift 2
   if [ -n "$others" ]; then "$REAL_SCONTROL" update "JobId=$others" "$@" || status=1; fi
   exit $status
fi
export SCRIPTS JOB
echo x >>"$SCRIPTS/$step.count"
script="$SCRIPTS/$step$(wc -l <"$SCRIPTS/$step.count" | tr -d ' ')"
[ -e "$script" ] || exec "$REAL_SCONTROL" "$@"
touch "$script.ran"
. {prelude}
. "$script"
"""


class FaultyScontrol:
    """The program in PATH, and the scripts that it runs."""

    def __init__(self, site: Site) -> None:
        self._scripts = site.directory / "faults"
        self._job_state = _state_directory(site) / "job_state"
        self._scripts.mkdir(exist_ok=True)
        directory = site.directory / "faulty"
        directory.mkdir(exist_ok=True)
        environment = site.environment()
        real = shutil.which("scontrol", path=environment["PATH"])
        prelude = directory / "prelude.sh"
        prelude.write_text(PRELUDE)
        program = directory / "scontrol"
        program.write_text(
            WRAPPER.format(
                real=real,
                scripts=self._scripts,
                prelude=prelude,
                slurmctld_pid=site.run_directory / "slurmctld.pid",
                output=site.home(USER),
            )
        )
        program.chmod(0o755)
        self.environment = {"PATH": f"{directory}:{environment['PATH']}"}

    def inject(self, job_id: int, scripts: Mapping[str, str]) -> None:
        """Leave scripts for a job, by step."""
        directory = self._scripts / str(job_id)
        directory.mkdir()
        for step, script in scripts.items():
            (directory / step).write_text(script + "\n")

    def is_kept(self, job_name: str) -> bool:
        """Whether slurmctld has written a job of this name to its state directory."""
        return job_name.encode() in self._job_state.read_bytes()

    def has_run(self, job_id: int, step: str) -> bool:
        """Whether a script was called: else the test has tested nothing."""
        return (self._scripts / str(job_id) / f"{step}.ran").exists()


def _state_directory(site: Site) -> Path:
    text = (site.etc / "slurm.conf").read_text()
    return Path(text.split("StateSaveLocation=")[1].split()[0])
