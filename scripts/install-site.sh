#!/bin/bash
# Installs rlalloc from this checkout on the machine of slurmctld (as root), or removes it. It changes no file of Slurm's:
# it prints what to add to slurm.conf. Run it again to upgrade: it then restarts what ran, and says so.
#
# All that can fail for want of a network or of disk space is done aside first. If it fails, nothing was changed.
#
#   --dependencies-from VENV   borrow the Python packages of another virtual environment (a development one; or one
#                              on a machine without an index) instead of installing them
#   --slurm-conf-dir DIR       where slurm.conf is (default: /etc/slurm)
#   --extras LIST              optional parts beside daemon,agent,trainer, such as mysql or postgresql
#   --uninstall                removes what was installed; configuration, store and policies stay
#
#   RLALLOC_TORCH              what pip is asked for instead of the torch of packages/lock/torch.txt
#   RLALLOC_TORCH_INDEX        the package index of torch alone: PyTorch's index of builds for CPUs
#   RLALLOC_TORCH_BUILD        any: take a build of torch for GPUs, too
#   RLALLOC_PYTHON             the interpreter to make the environment with (default: /usr/bin/python3)
#   TMPDIR                     where packages are gathered (default: /var/tmp)
#
# Exit: 0 done, 1 a step failed, 2 wrong use.
set -euo pipefail

PROJECT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
PYTHON=${RLALLOC_PYTHON:-/usr/bin/python3}
PREFIX=/opt/rlalloc
NEW=$PREFIX.new
OLD=$PREFIX.old
PIP=(--disable-pip-version-check --no-input)
PLUGIN=/usr/lib/rlalloc
CONFIGURATION=/etc/rlalloc
UNITS=/etc/systemd/system
SYSUSERS=/etc/sysusers.d/rlalloc.conf
TMPFILES=/etc/tmpfiles.d/rlalloc.conf
MANUAL=/usr/local/share/man
COMPLETIONS=(
    /usr/share/bash-completion/completions/rlalloc.bash
    /usr/share/zsh/vendor-completions/_rlalloc
    /usr/share/fish/vendor_completions.d/rlalloc.fish
)
UNIT_NAMES=(rlallocd.service rlalloc-agent.service rlalloc-train.service rlalloc-train.timer)

dependencies_from=
slurm_conf_dir=/etc/slurm
extras=daemon,agent,trainer
uninstall=no
WORK=
STOPPED=
UPGRADES=

say() { printf 'install-site: %s\n' "$*"; }

fail() {
    say "$1" >&2
    exit "${2:-1}"
}

usage() { fail "$1; usage: see the head of $0" 2; }

# Does what PID 1 has to know about, where PID 1 is systemd (it is not in a chroot or while an image is built).
tell_systemd() {
    if [ -d /run/systemd/system ]; then systemctl "$@"; fi
}

parse() {
    while [ $# -gt 0 ]; do
        case $1 in
            --uninstall)
                uninstall=yes
                shift
                continue
                ;;
            --dependencies-from | --slurm-conf-dir | --extras) [ $# -ge 2 ] || usage "$1 needs a value" ;;
            *) usage "unknown option $1" ;;
        esac
        case $1 in
            --dependencies-from) dependencies_from=$2 ;;
            --slurm-conf-dir) slurm_conf_dir=$2 ;;
            --extras) extras=$extras,$2 ;;
        esac
        shift 2
    done
}

# Names all that is missing, before anything is changed.
check_prerequisites() {
    local missing=() command python_version
    if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        missing+=("Python 3.11 or later as $PYTHON; name another one by RLALLOC_PYTHON")
    else
        "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
            missing+=("Python's modules venv and ensurepip (apt-get install python3-venv)")
        "$PYTHON" -c 'import ctypes; ctypes.CDLL("libgomp.so.1")' 2>/dev/null ||
            missing+=("libgomp.so.1, which LightGBM loads (apt-get install libgomp1, dnf install libgomp)")
        python_version=$("$PYTHON" -c 'import sys; print(sys.version_info[:2])')
        [ -z "$dependencies_from" ] ||
            [ "$("$dependencies_from/bin/python" -c 'import sys; print(sys.version_info[:2])' 2>/dev/null)" = "$python_version" ] ||
            missing+=("a virtual environment of the same version of Python in $dependencies_from")
    fi
    for command in systemd-sysusers systemd-tmpfiles tar; do
        [ -x "$(command -v "$command")" ] || missing+=("the command $command")
    done
    [ "${#missing[@]}" -eq 0 ] || {
        printf 'install-site: missing: %s\n' "${missing[@]}" >&2
        fail "nothing was changed; install what is missing and run this again"
    }
}

# Its programs and libraries would be wiped, or its files deleted, by this script; dpkg and rpm would not know.
refuse_over_packages() {
    if [ -e "$PLUGIN/package_steps" ] || [ -e "$PLUGIN/mark_node" ]; then
        fail "rlalloc is installed by packages here: upgrade or remove those (apt-get remove 'rlalloc*'; they keep the \
configuration, the store and the policies). Nothing was changed"
    fi
}

# Room for what is gathered, and for the new environment beside the old one.
check_space() {
    local wheels=700 environment=1500 missing=()
    if [ -n "$dependencies_from" ]; then wheels=50 environment=100; fi
    has_room "$WORK" "$wheels" || missing+=("$wheels MB of disk space in ${WORK%/*} (TMPDIR names another folder)")
    has_room "${PREFIX%/*}" "$environment" || missing+=("$environment MB of disk space in ${PREFIX%/*}")
    [ "${#missing[@]}" -eq 0 ] || {
        printf 'install-site: missing: %s\n' "${missing[@]}" >&2
        fail "nothing was changed"
    }
}

has_room() { [ "$(df --output=avail --block-size=1000000 "$1" | tail -n 1)" -ge "$2" ]; }

# Built from a copy, as setuptools leaves build/ in the tree and would pack what an older build left there.
build_wheel() {
    local builder=$1
    shift
    mkdir "$WORK/source" "$WORK/wheel"
    (cd "$PROJECT" && tar -c --exclude=__pycache__ --exclude='*.egg-info' pyproject.toml README.md LICENSE core daemon agent simulator trainer cli) |
        tar -x -C "$WORK/source"
    "$builder" -m pip --disable-pip-version-check wheel --quiet --no-deps "$@" -w "$WORK/wheel" "$WORK/source"
}

# Fills $WORK/wheels with all that is to be installed, torch first: from an index of its own, if there is one.
gather_wheels() {
    local python=$NEW/bin/python torch=(${RLALLOC_TORCH_INDEX:+--index-url "$RLALLOC_TORCH_INDEX"}) status=0
    local requirement=${RLALLOC_TORCH:-$(grep '^torch==' "$PROJECT/packages/lock/torch.txt")}
    say "packages from pip's index, gathered in $WORK"
    # The versions that the packages have, too; RLALLOC_TORCH stands for another torch.
    grep -hv '^#' "$PROJECT"/packages/lock/{controller,torch,trainer}.txt >"$WORK/constraints.txt"
    [ -z "${RLALLOC_TORCH:-}" ] || sed -i '/^torch==/d' "$WORK/constraints.txt"
    if [ "${RLALLOC_TORCH_BUILD:-cpu}" != any ]; then
        "$PYTHON" "$PROJECT/scripts/torch_for_cpus.py" "$python" "$requirement" "${torch[@]}" || status=$?
        [ "$status" -eq 0 ] || fail "nothing was changed"
    fi
    "$python" -m pip "${PIP[@]}" wheel --quiet --no-deps -w "$WORK/wheels" "${torch[@]}" "$requirement"
    "$python" -m pip "${PIP[@]}" wheel --quiet -w "$WORK/wheels" --find-links "$WORK/wheels" -c "$WORK/constraints.txt" \
        "$(echo "$WORK"/wheels/torch-*.whl)" "$1[$extras]"
}

# Makes the whole environment beside the one in use.
stage_programs() {
    local site wheel borrowed
    say "a new environment beside $PREFIX"
    rm -rf "$NEW"
    "$PYTHON" -m venv "$NEW"
    site=$("$NEW/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    if [ -n "$dependencies_from" ]; then
        borrowed=$("$dependencies_from/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        say "packages borrowed from $borrowed"
        build_wheel "$dependencies_from/bin/python" --no-build-isolation
        printf '%s\n' "$borrowed" >"$site/borrowed.pth"
        wheel=$(echo "$WORK"/wheel/*.whl)
        "$NEW/bin/python" -m pip "${PIP[@]}" install --quiet --no-index --no-deps "$wheel"
    else
        build_wheel "$NEW/bin/python"
        wheel=$(echo "$WORK"/wheel/*.whl)
        gather_wheels "$wheel"
        "$NEW/bin/python" -m pip "${PIP[@]}" install --quiet --no-index --no-deps "$WORK"/wheels/*.whl
    fi
    "$NEW/bin/python" -c '
import sys, torch, rlallocd.daemon_app, rlalloc_agent.agent_app, rlalloc_cli.main
if torch.version.cuda is not None and sys.argv[1] != "any":
    sys.exit(f"torch {torch.__version__} is built for GPUs: RLALLOC_TORCH_INDEX and RLALLOC_TORCH choose another build")
' "${RLALLOC_TORCH_BUILD:-cpu}" || fail "the new environment does not work; nothing was changed"
    # Programs name their interpreter by its path.
    grep -rlIF "$NEW" "$NEW/bin" "$NEW/pyvenv.cfg" | xargs -r sed -i "s#$NEW#$PREFIX#g"
}

# Python would load modules of both versions: what runs is stopped before, and started after everything is in place.
stop_what_runs() {
    STOPPED=yes
    "$PROJECT/packages/package_steps" before-upgrade rlalloc
}

start_again() {
    STOPPED=
    "$PROJECT/packages/package_steps" after-upgrade rlalloc-agent.service rlallocd.service rlalloc-train.timer \
        rlalloc-train.service
}

put_programs() {
    say "virtual environment $PREFIX"
    rm -rf "$OLD"
    if [ -e "$PREFIX" ]; then
        UPGRADES=yes
        mv "$PREFIX" "$OLD"
    fi
    mv "$NEW" "$PREFIX"
    rm -rf "$OLD"
    ln -sfn "$PREFIX/bin/rlalloc" /usr/local/bin/rlalloc
}

# Replaces a file at once: slurmctld, and jobs that start, may read it meanwhile.
put() { # MODE FILE TARGET
    install -m "$1" "$2" "$3.new"
    mv -f "$3.new" "$3"
}

install_users_and_folders() {
    say "users rlallocd and rlalloc, /run/rlalloc, /var/lib/rlalloc"
    install -D -m 0644 "$PROJECT/systemd/rlalloc.sysusers.conf" "$SYSUSERS"
    install -D -m 0644 "$PROJECT/systemd/rlalloc.tmpfiles.conf" "$TMPFILES"
    systemd-sysusers "$SYSUSERS"
    systemd-tmpfiles --create "$TMPFILES"
}

install_configuration() {
    install -d -o root -g rlalloc -m 0750 "$CONFIGURATION"
    if [ -e "$CONFIGURATION/rlalloc.yaml" ]; then
        say "$CONFIGURATION/rlalloc.yaml stays as it is"
    elif [ -e "$PROJECT/etc/rlalloc.yaml" ]; then
        say "$CONFIGURATION/rlalloc.yaml (mode: shadow)"
        # Group only: a store's URL may hold a password.
        install -o root -g rlalloc -m 0640 "$PROJECT/etc/rlalloc.yaml" "$CONFIGURATION/rlalloc.yaml"
    fi
}

install_plugin() {
    say "Slurm's side: $PLUGIN"
    install -d -m 0755 "$PLUGIN"
    local changed=yes
    if cmp -s "$PROJECT/slurm_plugin/rlalloc.lua" "$PLUGIN/rlalloc.lua"; then changed=; fi
    put 0644 "$PROJECT/slurm_plugin/rlalloc.lua" "$PLUGIN/rlalloc.lua"
    put 0644 "$PROJECT/slurm_plugin/job_submit.lua" "$PLUGIN/job_submit.lua"
    put 0755 "$PROJECT/slurm_plugin/task_prolog" "$PLUGIN/task_prolog"
    put 0755 "$PROJECT/slurm_plugin/task_epilog" "$PLUGIN/task_epilog"
    "$PROJECT/packages/package_steps" renew-script "$PLUGIN/job_submit.lua" "$slurm_conf_dir/job_submit.lua"
    if [ ! -d "$slurm_conf_dir" ]; then
        say "no $slurm_conf_dir here: copy $PLUGIN/job_submit.lua to where slurm.conf is"
    elif [ ! -e "$slurm_conf_dir/job_submit.lua" ]; then
        install -m 0644 "$PROJECT/slurm_plugin/job_submit.lua" "$slurm_conf_dir/job_submit.lua"
        say "$slurm_conf_dir/job_submit.lua"
    elif ! grep -q rlalloc "$slurm_conf_dir/job_submit.lua"; then
        say "$slurm_conf_dir/job_submit.lua stays as it is: call rlalloc.lua from it, as $PLUGIN/job_submit.lua does"
    elif [ -n "$changed" ]; then
        touch "$slurm_conf_dir/job_submit.lua"
        say "touched $slurm_conf_dir/job_submit.lua: slurmctld reads the new rlalloc.lua at the next submission"
    fi
}

install_manual() {
    local page
    say "man pages in $MANUAL, completion for bash, zsh and fish"
    for page in "$PROJECT"/etc/man/*; do
        install -D -m 0644 "$page" "$MANUAL/man${page##*.}/${page##*/}"
    done
    for page in "${COMPLETIONS[@]}"; do
        install -D -m 0644 "$PROJECT/etc/completion/${page##*/}" "$page"
    done
    # Debian's bash-completion looks for the command's own name.
    ln -sfn rlalloc.bash "${COMPLETIONS[0]%.bash}"
}

install_units() {
    local unit
    say "units in $UNITS"
    for unit in "${UNIT_NAMES[@]}"; do
        install -m 0644 "$PROJECT/systemd/$unit" "$UNITS/$unit"
    done
    tell_systemd daemon-reload
}

print_what_remains() {
    if [ -n "$UPGRADES" ]; then
        cat <<TEXT

What you have to do after an upgrade (docs/admin/upgrade.md):
  1. Follow "On upgrade" in CHANGELOG.md, for each version since yours
  2. Check: rlalloc config check
            rlalloc doctor
  3. If jobs call rlalloc's TaskProlog: copy $PLUGIN/task_prolog and task_epilog to the compute nodes, then
            rlalloc doctor --nodes all
TEXT
        return
    fi
    cat <<TEXT

What you have to do:
  1. Let the daemon change jobs: sacctmgr -i add user rlallocd account=root adminlevel=Admin
     (without slurmdbd: docs/admin/install.md, "The daemon's user")
     Then in $slurm_conf_dir/slurm.conf, on all nodes:
         AccountingStorageTRES=gres/gpu
         JobSubmitPlugins=lua
     Then: systemctl restart slurmctld
  2. In $CONFIGURATION/rlalloc.yaml: which partitions and jobs, and the mode (shadow touches nothing). Check it:
         rlalloc config check
  3. Start: systemctl enable --now rlalloc-agent rlallocd
            systemctl enable --now rlalloc-train.timer      (or etc/rlalloc.cron in /etc/cron.d, not both)
            rlalloc doctor
  4. Read on: docs/admin/shadow.md. Compute nodes need nothing until you enforce (docs/admin/enforce.md).
TEXT
}

# A slurm.conf that names what is gone makes slurmctld's start, or every job's, fail. Slurm allows blanks and quotes.
values_in_slurm_conf() {
    sed -nE "s/^[[:space:]]*$1[[:space:]]*=[[:space:]]*\"?([^\"#[:space:]]+).*/\1/Ip" "$slurm_conf_dir/slurm.conf" 2>/dev/null
}

# Whether Slurm calls task_prolog, or task_epilog: a site's own script may call ours.
is_called() {
    local named
    for named in $(values_in_slurm_conf "${1/_/}"); do
        if [[ $named == "$PLUGIN/$1" ]] || grep -qsF "$PLUGIN/$1" "$named"; then return 0; fi
    done
    return 1
}

remove_all() {
    local unit script status=0 site_script=$slurm_conf_dir/job_submit.lua
    for unit in "${UNIT_NAMES[@]}"; do
        [ -e "$UNITS/$unit" ] || continue
        say "stopping and removing $unit"
        tell_systemd disable --now --quiet "$unit"
        rm -f "$UNITS/$unit"
    done
    tell_systemd daemon-reload
    for script in task_prolog task_epilog; do
        if is_called "$script"; then
            say "kept $PLUGIN/$script: slurm.conf, or the script that it names, calls it: without it jobs fail (task_prolog), or log an error" >&2
            status=1
        fi
    done
    if cmp -s "$site_script" "$PLUGIN/job_submit.lua"; then
        if values_in_slurm_conf JobSubmitPlugins | grep -q lua; then
            say "kept $site_script: slurm.conf has JobSubmitPlugins=lua, and slurmctld would not start without it" >&2
            status=1
        else
            rm -f "$site_script"
        fi
    elif grep -qs rlalloc "$site_script"; then
        say "$site_script calls rlalloc: remove the call, then run this script again" >&2
        status=1
    fi
    if [ "$status" -eq 0 ]; then rm -rf "$PLUGIN"; fi
    rm -f "$SYSUSERS" "$TMPFILES"
    rm -f "$MANUAL"/man1/rlalloc.1 "$MANUAL"/man5/rlalloc.yaml.5 "$MANUAL"/man8/rlalloc{d,-agent}.8
    rm -f "${COMPLETIONS[@]}" "${COMPLETIONS[0]%.bash}"
    rm -rf "$PREFIX" /run/rlalloc /var/cache/rlalloc
    if [ "$(readlink /usr/local/bin/rlalloc)" = "$PREFIX/bin/rlalloc" ]; then rm -f /usr/local/bin/rlalloc; fi
    say "kept $CONFIGURATION, /var/lib/rlalloc, /var/lib/rlallocd and the users rlallocd and rlalloc"
    [ "$status" -eq 0 ] || say "change slurm.conf, restart slurmctld, then run this script again" >&2
    return "$status"
}

# What is left where a step has failed: nothing aside, and what ran runs again.
clean_up() {
    rm -rf "$WORK" "$NEW"
    if [ -n "$STOPPED" ]; then start_again; fi
}

main() {
    parse "$@"
    [ "$(id -u)" -eq 0 ] || fail "only root can install here" 2
    umask 022
    refuse_over_packages
    if [ "$uninstall" = yes ]; then
        remove_all
        return
    fi
    check_prerequisites
    WORK=$(mktemp -d "${TMPDIR:-/var/tmp}/rlalloc-install.XXXXXX")
    trap clean_up EXIT
    check_space
    stage_programs
    stop_what_runs
    install_users_and_folders
    put_programs
    install_configuration
    install_plugin
    install_manual
    install_units
    start_again
    print_what_remains
}

main "$@"
