#!/bin/bash
# Records what the commands of a Slurm site print, for tests/daemon/fixtures/slurm-<version>/.
#
#   scripts/record-fixtures.sh --releases own trixie forky
#                                                 # as root: starts a testbed site of each Debian release (own: the
#                                                 # Slurm in PATH), submits, records, ends it
#   eval "$(python -m slurm_testbed env NAME)"    # or any site of your own: what counts is the environment
#   scripts/record-fixtures.sh                    # records the site as it is
#   scripts/record-fixtures.sh --submit-as USER   # first submits the jobs whose values the tests expect, as root on a
#                                                 # fresh testbed site (4 nodes with 8 a100, ScronParameters=enable);
#                                                 # drains its node n4
#   INTO=FOLDER scripts/record-fixtures.sh …      # records there instead
set -euo pipefail

PROJECT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
PYTHON=${PYTHON:-$PROJECT/.venv/bin/python}

submit() { # NAME OPTION...: prints the job's id
    local name=$1
    shift
    (cd /tmp && runuser -u "$user" -- sbatch --parsable --job-name="$name" --output=/dev/null --wrap="sleep 3600" "$@")
}

submit_jobs() {
    local plain held past
    scontrol update NodeName='n[1-3]' AvailableFeatures=fast ActiveFeatures=fast
    scontrol --quiet create reservation ReservationName=later StartTime=now+2days Duration=60 NodeCnt=1 Users="$user"
    past=$(cd /tmp && runuser -u "$user" -- sbatch --parsable --job-name=failed --output=/dev/null --wrap="exit 3")
    until [[ $(sacct --noheader --parsable2 --allocations --format=State --jobs="$past") == FAILED ]]; do sleep 0.5; done
    plain=$(submit plain --gres=gpu:2 --cpus-per-task=8 --mem=40G --time=30)
    scontrol update JobId="$plain" AdminComment="JS1:abc another tool's; rlalloc: first 'words' | second"
    submit typed --gres=gpu:a100:2 --cpus-per-task=8 --mem=40000M --time=30
    submit two-nodes --nodes=2 --gpus-per-node=4 --ntasks-per-node=1 --cpus-per-task=16 --mem=100G --time=1-00:00:00
    submit array --array=0-3%1 --gres=gpu:1 --cpus-per-task=4 --mem=8G --time=30
    submit per-task --ntasks=2 --gpus-per-task=a100:1 --cpus-per-task=4 --mem-per-gpu=10G --time=45
    submit pipe\|käse --ntasks=3 --cpus-per-task=2 --mem-per-cpu=1G
    (cd /tmp && runuser -u "$user" -- salloc --quiet --no-shell --job-name=interactive --gres=gpu:1 --mem=1G --time=10)
    submit whole-node --exclusive --nodelist=n4 --gres=gpu:1 --mem=1G --time=60
    until [[ $(squeue --noheader --states=RUNNING --format=%i | wc -l) == 8 ]]; do sleep 0.5; done
    held=$(submit held --hold --gpus=a100:8 --ntasks=8 --cpus-per-task=4 --mem=64G --time=60)
    submit dependent --dependency=afterok:"$held" --gpus=2 --nodes=1 --mem=4G --time=60
    submit begin --begin=now+1hour --gpus-per-task=1 --ntasks=8 --cpus-per-task=4 --mem=64G --time=60
    submit sockets --hold --nodes=1 --gpus-per-socket=a100:2 --sockets-per-node=2 --cpus-per-task=4 --mem=8G --time=60
    submit exclusive --exclusive --nodes=3 --gpus-per-node=8 --time=60
    submit all-memory --hold --gres=gpu:1 --mem=0 --time=60
    submit named-nodes --hold --nodelist='n[1-2]' --nodes=2 --gpus-per-node=1 --mem=1G --time=60
    (cd /tmp && runuser -u "$user" -- sbatch --parsable --job-name=het --output=/dev/null --wrap="sleep 3600" --hold \
        --gpus-per-node=1 --mem=1G --time=60 : --gpus-per-node=2 --mem=1G --time=60)
    submit one-of-four --hold --nodes=1-4 --gpus-per-node=2 --ntasks-per-node=1 --cpus-per-task=4 --mem=8G --time=60
    submit gpus-of-job --hold --gpus=4 --nodes=1 --ntasks=4 --cpus-per-task=2 --mem=16G --time=60
    submit tasks-per-gpu --hold --nodes=1 --gpus=2 --ntasks-per-gpu=2 --mem-per-gpu=8G --time=60
    submit cpus-per-gpu --hold --nodes=1 --gpus=2 --cpus-per-gpu=6 --mem-per-gpu=8G --time=60
    submit cpus-per-gpu-mem-per-cpu --hold --nodes=1 --gpus=2 --cpus-per-gpu=6 --mem-per-cpu=1G --time=60
    submit tasks-per-node --hold --ntasks=4 --ntasks-per-node=2 --gpus-per-node=2 --mem=2G --time=60
    submit hint --hold --hint=nomultithread --nodes=1 --gpus-per-node=2 --mem=2G --time=60
    submit constraint --hold --constraint=fast --nodes=1 --gpus-per-node=2 --mem=2G --time=60
    submit without-a-node --hold --exclude=n4 --nodes=1 --gpus-per-node=2 --mem=2G --time=60
    submit requeue --hold --requeue --nodes=1 --gpus-per-node=2 --mem=2G --time=60
    submit deadline --hold --deadline=now+3hours --nodes=1 --gpus-per-node=2 --mem=2G --time=60
    submit time-min --hold --time-min=30 --signal=B:USR1@60 --nodes=1 --gpus-per-node=2 --mem=2G --time=60
    submit no-limit-of-time --hold --nodes=1 --gpus-per-node=2 --mem=2G --time=UNLIMITED
    submit exclusive-user --hold --exclusive=user --nodes=1 --gpus-per-node=2 --mem=2G --time=60
    submit overcommitted --hold --oversubscribe --nodes=1 --gpus-per-node=2 --mem=2G --time=60
    submit reserved --reservation=later --nodes=1 --gpus-per-node=2 --mem=2G --time=60
    scancel "$(submit cancelled --hold --nodes=1 --gpus-per-node=2 --mem=2G --time=60)"
    if [[ -n $(type -P scrontab) ]]; then # Debian's 22.05 has none
        printf '#SCRON --job-name=scrontab --gres=gpu:1 --mem=1G --time=5\n0 0 1 1 * /bin/true\n' |
            (cd /tmp && runuser -u "$user" -- scrontab -)
    fi
    scontrol update NodeName=n4 State=DRAIN Reason="for the record"
}

record_all() { # RELEASE...: on a site of its own each
    local release options
    PYTHONPATH=$PROJECT/testbed
    export PYTHONPATH
    site=recording-$$
    trap 'testbed down "$site"' EXIT
    for release in "$@"; do
        options=()
        if [[ $release != own ]]; then options=(--release "$release"); fi
        testbed up --name "$site" --conf ScronParameters=enable "${options[@]}"
        (
            eval "$(testbed env "$site")"
            "$0" --submit-as llm-alice
        )
        testbed down "$site"
    done
    trap - EXIT
}

testbed() { "$PYTHON" -m slurm_testbed "$@"; }

if [[ ${1-} == --releases ]]; then
    shift
    record_all "$@"
    exit
fi
if [[ ${1-} == --submit-as ]]; then
    user=${2:?a user of the site}
    submit_jobs >/dev/null
    sleep 3 # a pass of the scheduler
fi
cd "$PROJECT"
exec "$PYTHON" -m tests.daemon.recordings ${INTO:+"$INTO"}
