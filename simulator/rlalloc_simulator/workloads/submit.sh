#!/bin/sh
# Submits the jobs of a workload at their times: ./submit.sh [options for sbatch …]
#
# Made by rlalloc simulate sbatch; reads ./submissions (milliseconds after the start, number, dependencies or -,
# milliseconds after which a pending job is cancelled or -) and writes ./job-ids (number, Slurm's job id).
set -eu
cd -- "$(dirname -- "$0")"

now_ms() {
    echo $(($(date +%s%N) / 1000000))
}

sleep_ms() {
    if [ "$1" -gt 0 ]; then
        sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"
    fi
}

# afterok:3,afterany:5 in the workload's numbers becomes the same in Slurm's.
dependency_in_slurm() {
    echo "$1" | tr ',' '\n' | while IFS=: read -r kind number; do
        awk -v kind="$kind" -v number="$number" '$1 == number { print kind ":" $2 }' job-ids
    done | paste -sd, -
}

: >job-ids
start_ms=$(now_ms)
while read -r at_ms number dependency cancel_ms; do
    sleep_ms $((start_ms + at_ms - $(now_ms)))
    if [ "$dependency" = - ]; then
        job=$(sbatch --parsable "$@" "job-$number.sh" </dev/null)
    else
        job=$(sbatch --parsable --dependency="$(dependency_in_slurm "$dependency")" "$@" "job-$number.sh" </dev/null)
    fi
    job=${job%%;*}
    echo "$number $job" >>job-ids
    if [ "$cancel_ms" != - ]; then
        (
            sleep_ms "$cancel_ms"
            scancel --state=PENDING "$job"
        ) &
    fi
done <submissions
wait
