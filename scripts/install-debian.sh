#!/bin/bash
# Installs what the make targets need on Debian 12: packages through apt-get, and .venv through pip. Does nothing
# where everything is installed already. Starts no service and enables none: the demo and the tests run Slurm sites of
# their own.
#
#   RLALLOC_TORCH   what pip is asked for in place of torch==2.13.0 (another version, a wheel's path or URL)
#
# Exit: 0 everything is installed, 1 a step failed (its log is named), 2 it may not install here (neither root nor
# sudo).
set -euo pipefail

PROJECT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
TORCH=${RLALLOC_TORCH:-torch==2.13.0}
# Debian's, never the first in PATH: the jobs of unprivileged users run it, and a pyenv below /root is shut to them.
SYSTEM_PYTHON=/usr/bin/python3
PACKAGES=(
    ca-certificates
    debhelper fakeroot lintian rpm            # to build and check packages
    gcc libc6-dev libsystemd-dev pkg-config   # to build systemd-python
    libgomp1                                  # LightGBM's wheel has none
    lua5.1 lua5.4                             # Slurm's job_submit/lua is linked to 5.1 here, to 5.4 elsewhere
    make procps shellcheck systemd-container util-linux
    mariadb-server munge
    prometheus                                # its promtool and itself, for the tests of the alerts
    faketime                                  # likewise: a clock that is wrong
    postgresql                                # for the tests of the store; they start a server of their own
    mmdebstrap patchelf                       # Slurm of other Debian releases, for the tests
    python3 python3-dev python3-venv
    libslurm-perl                             # by which rlallocd asks slurmctld whether a job could start
    slurm-client slurm-wlm slurm-wlm-basic-plugins slurmdbd
)
# Those of the packages' services that their installation would have systemd start at the next boot.
SERVICES=(mariadb munge postgresql prometheus slurmctld slurmd slurmdbd)

POLICY=/usr/sbin/policy-rc.d
POLICY_SAVED=/usr/sbin/policy-rc.d.before-rlalloc
POLICY_MARK='rlalloc: nothing is started while its packages are installed'

LOG=
WORK=

say() { printf 'install: %s\n' "$*"; }

fail() {
    say "$1" >&2
    exit "${2:-1}"
}

# Runs a step silently; when it fails, shows the end of what it said and where all of it is.
step() {
    local what=$1
    shift
    say "$what"
    printf '\n== %s: %s\n' "$what" "$*" >>"$LOG"
    if ! "$@" >>"$LOG" 2>&1 </dev/null; then
        tail -n 15 "$LOG" >&2
        fail "failed: $what (full log: $LOG)"
    fi
}

open_log() {
    [ -z "$LOG" ] || return 0
    LOG=$(mktemp "${TMPDIR:-/tmp}/rlalloc-install.XXXXXX")
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_be_root() {
    [ "$(id -u)" -eq 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

missing_packages() {
    local package
    for package in "${PACKAGES[@]}"; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || printf '%s\n' "$package"
    done
}

known_services() {
    local path
    for path in /etc/init.d/* /lib/systemd/system/*.service /etc/systemd/system/*.service; do
        path=${path##*/}
        printf '%s\n' "${path%.service}"
    done
}

# invoke-rc.d and deb-systemd-invoke ask policy-rc.d before they touch a service (101: no). Ours refuses what this
# installation brings, and leaves the rest to the machine's own policy, which is put back afterwards.
refuse_new_services() {
    known_services | sort -u >"$WORK/services.before"
    allow_services # a run that was killed may have left its policy there
    if [ -e "$POLICY" ] || [ -L "$POLICY" ]; then as_root mv "$POLICY" "$POLICY_SAVED"; fi
    cat >"$WORK/policy-rc.d" <<POLICY_END
#!/bin/sh
# $POLICY_MARK
if grep -qxF -- "\${1%.service}" "$WORK/services.before"; then
    if [ -x "$POLICY_SAVED" ]; then exec "$POLICY_SAVED" "\$@"; fi
    exit 0
fi
exit 101
POLICY_END
    as_root install -m 0755 "$WORK/policy-rc.d" "$POLICY"
}

allow_services() {
    if grep -qsF "$POLICY_MARK" "$POLICY"; then as_root rm -f "$POLICY"; fi
    if [ -e "$POLICY_SAVED" ] || [ -L "$POLICY_SAVED" ]; then as_root mv -f "$POLICY_SAVED" "$POLICY"; fi
}

# systemd would start them at the next boot, which nobody asked for. One that was there before stays as it was.
disable_new_services() {
    local service new=()
    for service in "${SERVICES[@]}"; do
        if ! grep -qxF "$service" "$WORK/services.before" && [ -e "/lib/systemd/system/$service.service" ]; then
            new+=("$service.service")
        fi
    done
    if [ "${#new[@]}" -gt 0 ] && command -v systemctl >/dev/null; then
        step "leaving ${new[*]} disabled" as_root systemctl --quiet disable "${new[@]}"
    fi
}

clean_up() {
    allow_services
    if [ -n "$WORK" ]; then rm -rf "$WORK"; fi
}

install_packages() {
    local apt_get=(as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 NEEDRESTART_SUSPEND=1
        apt-get -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300)
    command -v apt-get >/dev/null || fail "no apt-get here: this script is for Debian 12; needed: $*" 2
    may_be_root || fail "neither root nor passwordless sudo; as root, run: apt-get install --no-install-recommends $*" 2
    open_log
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/rlalloc-packages.XXXXXX")
    chmod 0755 "$WORK"
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    refuse_new_services
    step "reading the package lists" "${apt_get[@]}" update
    step "installing $# packages: $*" "${apt_get[@]}" install --no-install-recommends "$@"
    disable_new_services
    clean_up
    WORK=
    trap - EXIT INT TERM
}

# Below a home of mode 0700 the jobs of ordinary users could not run .venv's python, so there it lies elsewhere.
venv_home() {
    local folder=$PROJECT
    while [ "$folder" != / ]; do
        if [ $((0$(stat -c %a "$folder") & 1)) -eq 0 ] && may_be_root; then
            printf '/var/cache/rlalloc-venv-%s\n' "$(printf %s "$PROJECT" | cksum | cut -d' ' -f1)"
            return
        fi
        folder=$(dirname "$folder")
    done
    printf '%s/.venv\n' "$PROJECT"
}

make_venv() {
    local venv=$1
    if [ -e "$venv/pyvenv.cfg" ] && ! grep -qxE 'home *= */usr/bin' "$venv/pyvenv.cfg"; then
        say "$venv is not made with $SYSTEM_PYTHON: making it again"
        rm -rf "$venv"
    fi
    if [ "$venv" != "$PROJECT/.venv" ]; then
        if [ ! -d "$venv" ]; then
            as_root install -d -o "$(id -u)" -g "$(id -g)" -m 0755 "$venv"
        fi
        if [ ! -L "$PROJECT/.venv" ]; then rm -rf "$PROJECT/.venv"; fi
        ln -sfn "$venv" "$PROJECT/.venv"
    elif [ -L "$venv" ]; then
        rm -f "$venv"
    fi
    # Ask the interpreter, as a moved or half-made one has its files and does not work.
    if ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
        open_log
        step "making $venv" "$SYSTEM_PYTHON" -m venv --clear "$venv"
    fi
}

# pip would compile on one core. Like pip, ignore files for a later Python; torch has one.
compile_on_all_cores() {
    "$1/bin/python" -m compileall -q -j 0 "$1/lib" || "$1/bin/python" -m compileall -q "$1/lib" || true
}

install_python_packages() {
    local venv=$1 wanted pip
    pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input)
    wanted=$(cat "$PROJECT/pyproject.toml" - <<<"$PROJECT $TORCH $("$venv/bin/python" -V)" | sha256sum)
    if [ "$(cat "$venv/rlalloc.stamp" 2>/dev/null)" = "$wanted" ]; then return 0; fi
    open_log
    # Old ones can build no package of ours without fetching a newer one each time.
    step "installing pip's own tools" "${pip[@]}" install 'setuptools>=77'
    # torch first and by itself: so a local version of it (+cpu), where pip's configuration offers one, is taken.
    step "installing $TORCH" "${pip[@]}" install --no-compile "$TORCH"
    step "installing rlalloc and what it needs" "${pip[@]}" install --no-compile -e "${PROJECT}[daemon,agent,trainer,docs,dev]"
    step "compiling what was installed" compile_on_all_cores "$venv"
    printf '%s\n' "$wanted" >"$venv/rlalloc.stamp"
}

main() {
    local missing venv
    umask 022 # others run what is installed here
    mapfile -t missing < <(missing_packages)
    if [ "${#missing[@]}" -gt 0 ]; then install_packages "${missing[@]}"; fi
    venv=$(venv_home)
    make_venv "$venv"
    install_python_packages "$venv"
    if [ -n "$LOG" ]; then
        rm -f "$LOG"
        say "done"
    fi
}

main "$@"
