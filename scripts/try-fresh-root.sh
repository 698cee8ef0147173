#!/bin/bash
# Tries make targets where nothing is installed: makes a new root file system of this machine's Debian release with
# only make, git and ca-certificates in it, clones HEAD there, and runs the targets in it, in namespaces of their
# own (so that no process and no mount is left). Registries are reached as this machine reaches them: its apt
# sources, its pip configuration. The network, and so the ports, are this machine's.
#
#   scripts/try-fresh-root.sh [options] [TARGET ...] [VARIABLE=VALUE ...]      default targets: demo test
#   --times N        run the targets N times in a row (default: 2)
#   --at DIR         where the clone lies in that root (default: /root/rlalloc, which other users cannot enter)
#   --working-tree   what lies here now, instead of HEAD
#   --no-localhost   an /etc/hosts that names nothing, so that localhost has no address unless a name server gives one
#   --keep           leave the root and say where it is; --root DIR uses it again
#
# Needs root and mmdebstrap. Exit: 0 all targets passed, 1 one failed, 2 wrong use.
set -euo pipefail

PROJECT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
RELEASE=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)

times=2
at=/root/rlalloc
working_tree=no
localhost=yes
keep=no
root=

say() { printf 'fresh-root: %s\n' "$*"; }

fail() {
    say "$1" >&2
    exit "${2:-1}"
}

# The files that name this machine's Debian archive, and no others: a third party's needs its key.
apt_sources() {
    local file
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        if [ -f "$file" ] && grep -qE "^[^#]*[[:space:]]$RELEASE([[:space:]]|\$)" "$file"; then printf '%s\n' "$file"; fi
    done
}

pip_files() {
    local file
    for file in /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
        if [ -f "$file" ]; then printf '%s\n' "$file"; fi
    done
}

# Folders on this machine that pip is told to look into; of a file:// index its parent, where the files lie.
pip_folders() {
    local word path files
    mapfile -t files < <(pip_files)
    { cat /dev/null "${files[@]}"; env | grep '^PIP_' || true; } | tr -s '[:space:]=' '\n' | while read -r word; do
        case $word in
            file:///*) path=$(dirname "${word#file://}") ;;
            /*) path=$word ;;
            *) continue ;;
        esac
        if [ -d "$path" ]; then printf '%s\n' "$path"; fi
    done | sort -u
}

make_root() {
    local sources=() file
    mapfile -t sources < <(apt_sources)
    [ "${#sources[@]}" -gt 0 ] || fail "no apt source of this machine has $RELEASE"
    say "making a $RELEASE root in $root (${sources[*]})"
    # The parts of apt's configuration that say how archives are reached.
    apt-config dump Acquire | grep -v '^Acquire::IndexTargets' >"$root.apt.conf" || true
    mmdebstrap --quiet --variant=minbase --include=make,git,ca-certificates --aptopt="$root.apt.conf" \
        "$RELEASE" "$root" "${sources[@]}" >"$root.log" 2>&1 || { tail -n 20 "$root.log"; fail "mmdebstrap failed"; }
    rm -f "$root.apt.conf" "$root.log"
    if [ -d /usr/local/share/ca-certificates ]; then
        cp -rL /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
        chroot "$root" update-ca-certificates >/dev/null 2>&1
    fi
    while read -r file; do
        install -D -m 0644 "$file" "$root/${file/#$HOME//root}"
    done < <(pip_files)
}

# The network is this machine's, but for the name that it may lack.
put_names() {
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    if [ "$localhost" = no ]; then echo '# no name' >"$root/etc/hosts"; fi
}

put_project() {
    rm -rf "${root:?}$at"
    if [ "$working_tree" = yes ]; then
        say "copying the working tree to $at"
        mkdir -p "$root$at"
        (cd "$PROJECT" && git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
            if [ -e "$file" ] || [ -L "$file" ]; then printf '%s\0' "$file"; fi
        done | tar -c --null -T -) | tar -x --no-same-owner -C "$root$at"
    else
        say "cloning $(git -C "$PROJECT" rev-parse --short HEAD) to $at"
        git clone --quiet --no-hardlinks "$PROJECT" "$root$at"
    fi
}

# Runs in namespaces of its own: mounts what a machine has, makes the root /, and becomes the command.
# shellcheck disable=SC2016 # expanded inside
ENTER='
set -e
root=$1; at=$2; shift 2
mount --bind "$root" "$root"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=0755 tmpfs "$root/run"
while [ "$1" != -- ]; do
    mkdir -p "$root$1"
    mount --bind -o ro "$1" "$root$1"
    shift
done
shift
cd "$root"
pivot_root . .
umount -l .
cd "$at"
"$@"
'

run_inside() {
    local folders=() variables=() variable
    mapfile -t folders < <(pip_folders)
    # Only what says how registries are reached: nothing else of this shell may help.
    while IFS= read -r variable; do variables+=("$variable"); done < <(env | grep -iE '^(PIP_[A-Z_]*|https?_proxy|no_proxy)=')
    env -i unshare --mount --pid --fork --kill-child --propagation private -- \
        /bin/bash -c "$ENTER" enter "$root" "$at" "${folders[@]}" -- \
        env -i HOME=/root USER=root TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        "${variables[@]}" "$@" </dev/null
}

clean_up() {
    if [ "$keep" = yes ]; then
        say "kept: $root"
    else
        rm -rf --one-file-system "${root:?}" "$root.log" "$root.apt.conf"
    fi
}

main() {
    local targets=() settings=() target round status=0 began
    while [ $# -gt 0 ]; do
        case $1 in
            --times | --at | --root)
                [ $# -ge 2 ] || fail "$1 needs a value" 2
                printf -v "${1#--}" %s "$2"
                shift
                ;;
            --working-tree) working_tree=yes ;;
            --no-localhost) localhost=no ;;
            --keep) keep=yes ;;
            -*) fail "unknown option $1; see the head of $0" 2 ;;
            *=*) settings+=("$1") ;;
            *) targets+=("$1") ;;
        esac
        shift
    done
    if [ "${#targets[@]}" -eq 0 ]; then targets=(demo test); fi
    [ "$(id -u)" -eq 0 ] || fail "needs root" 2
    command -v mmdebstrap >/dev/null || fail "needs mmdebstrap: apt-get install mmdebstrap" 2
    if [ -n "$root" ]; then
        [ -x "$root/usr/bin/make" ] || fail "--root $root was not made by --keep" 2
        keep=yes
    else
        root=$(mktemp -d /var/tmp/rlalloc-root.XXXXXX)
        chmod 0755 "$root"
        trap clean_up EXIT
        make_root
    fi
    put_names
    put_project
    for ((round = 1; round <= times; round++)); do
        for target in "${targets[@]}"; do
            say "round $round: make $target"
            began=$SECONDS
            if run_inside make "$target" "${settings[@]}"; then
                say "round $round: make $target passed, $((SECONDS - began)) s"
            else
                say "round $round: make $target FAILED, $((SECONDS - began)) s"
                status=1
            fi
        done
    done
    return "$status"
}

main "$@"
