#!/bin/bash
# Builds the packages of rlalloc in build/packages, from a copy of the working tree (see docs/admin/install.md).
#
#   build-packages.sh wheels           fills the folder of wheels: the only step that needs a package index
#   build-packages.sh deb              Debian packages
#   build-packages.sh rpm              RPMs for the RHEL family, of the same files
#
#   --wheels DIR       the folder of wheels (default: build/wheels, which is filled first; a named one is taken as it is)
#   --into DIR         where the packages go (default: build/packages)
#   --version VERSION  the version of the packages and of rlalloc in them (default: pyproject.toml's)
#   --no-libraries     only rlalloc's own packages, not those of Python libraries
#   --compression KIND xz, zstd, gzip or none (default: xz)
#
#   RLALLOC_PYTHON     the interpreter that rlalloc will run with (default: /usr/bin/python3)
#   RLALLOC_TORCH        what pip is asked for in place of the torch of packages/lock/torch.txt
#   RLALLOC_TORCH_INDEX  the package index of torch alone: PyTorch's index of builds for CPUs
#
# Exit: 0 done, 1 a step failed, 2 wrong use.
set -euo pipefail

PROJECT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
PYTHON=${RLALLOC_PYTHON:-/usr/bin/python3}
DEFAULT_WHEELS=$PROJECT/build/wheels
LOCKS=$PROJECT/packages/lock

wheels=
into=$PROJECT/build/packages
version=
libraries=yes
compression=xz
WORK=

say() { printf 'build-packages: %s\n' "$*"; }

fail() {
    say "$1" >&2
    exit "${2:-1}"
}

# Runs a step silently; when it fails, shows the end of what it said.
step() {
    local what=$1
    shift
    say "$what"
    "$@" >"$WORK/log" 2>&1 </dev/null || {
        tail -n 40 "$WORK/log" >&2
        fail "failed: $what"
    }
}

need() {
    local package missing=()
    [ -x "$(command -v dpkg-query)" ] || return 0
    for package; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ "${#missing[@]}" -eq 0 ] || fail "missing: apt-get install ${missing[*]}"
}

# systemd-python comes as a source and is built here.
fill_wheels() {
    local folder=$1 layers=(build) layer
    need python3-venv
    if [ "$libraries" = yes ]; then
        layers+=(controller torch trainer)
        need python3-dev gcc libsystemd-dev pkg-config
    fi
    mkdir -p "$folder"
    "$PYTHON" -m venv "$WORK/venv"
    step "the tools that build wheels" \
        "$WORK/venv/bin/python" -m pip --disable-pip-version-check --no-input install -r "$LOCKS/build.txt"
    if [ "$libraries" = yes ]; then take_torch "$folder"; fi
    for layer in "${layers[@]}"; do
        grep -v '^#' "$LOCKS/$layer.txt" >"$WORK/$layer.txt"
        if [ "$layer" = torch ]; then sed -i '/^torch==/d' "$WORK/$layer.txt"; fi
        step "wheels of the layer $layer in $folder" \
            "$WORK/venv/bin/python" -m pip --disable-pip-version-check --no-input wheel --no-deps --use-pep517 \
            --no-build-isolation --find-links "$folder" --wheel-dir "$folder" -r "$WORK/$layer.txt"
    done
}

# The build for CPUs, unless the folder has one: another brings gigabytes that no lock names.
take_torch() {
    local folder=$1 index=(${RLALLOC_TORCH_INDEX:+--index-url "$RLALLOC_TORCH_INDEX"}) python=$WORK/venv/bin/python
    local requirement=${RLALLOC_TORCH:-$(grep '^torch==' "$LOCKS/torch.txt")}
    "$PYTHON" "$PROJECT/scripts/torch_for_cpus.py" "$python" "$requirement" --find-links "$folder" "${index[@]}" ||
        fail "no PyTorch for CPUs"
    step "PyTorch in $folder" "$python" -m pip --disable-pip-version-check --no-input wheel --no-deps \
        --find-links "$folder" --wheel-dir "$folder" "${index[@]}" "$requirement"
}

copy_source() {
    mkdir "$WORK/rlalloc"
    (cd "$PROJECT" && tar -c --exclude=__pycache__ --exclude='*.egg-info' pyproject.toml README.md CHANGELOG.md LICENSE core \
        daemon agent simulator trainer cli scripts systemd etc slurm_plugin docs packages debian) | tar -x -C "$WORK/rlalloc"
    if [ -n "$version" ]; then
        sed -i "s/^version = .*/version = \"$version\"/" "$WORK/rlalloc/pyproject.toml"
        sed -i "s/^__version__ = .*/__version__ = \"$version\"/" "$WORK/rlalloc/core/rlalloc/__init__.py"
        sed -i "s/^local VERSION = .*/local VERSION = \"$version\"/" "$WORK/rlalloc/slurm_plugin/rlalloc.lua"
        sed -i -E "s/^(\.TH .*\"rlalloc )[^\"]*/\1$version/" "$WORK"/rlalloc/etc/man/*
    else
        version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$PROJECT/pyproject.toml")
    fi
}

# The time of the last commit, so that the same sources give the same packages.
source_time() {
    git -C "$PROJECT" log -1 --format=%ct 2>/dev/null || stat -c %Y "$PROJECT/CHANGELOG.md"
}

build_deb() {
    local profiles=nocheck
    need debhelper dpkg-dev fakeroot python3-venv
    SOURCE_DATE_EPOCH=$(source_time)
    export SOURCE_DATE_EPOCH
    if [ "$libraries" = no ]; then profiles="$profiles pkg.rlalloc.nolibs"; fi
    printf 'rlalloc (%s) unstable; urgency=medium\n\n  * See /usr/share/doc/rlalloc/CHANGELOG.md.\n\n -- %s  %s\n' "$version" \
        "$(sed -n 's/^Maintainer: //p' "$PROJECT/debian/control")" "$(date -R -u -d "@$SOURCE_DATE_EPOCH")" \
        >"$WORK/rlalloc/debian/changelog"
    step "Debian packages of rlalloc $version" env -C "$WORK/rlalloc" RLALLOC_WHEELS="$wheels" \
        RLALLOC_COMPRESSION="$compression" PYTHON="$PYTHON" DEB_BUILD_PROFILES="$profiles" \
        dpkg-buildpackage --build=binary --no-sign
    mkdir -p "$into"
    mv "$WORK"/*.deb "$into"
    (cd "$into" && ls -s --block-size=KiB ./*_"$version"_*.deb)
}

build_rpm() {
    local packages=(rlalloc rlalloc-agent rlalloc-trainer rlalloc-node) macros=() layer with_libraries=0 payload
    [ -x "$(command -v rpmbuild)" ] || fail "missing: rpmbuild (apt-get install rpm, dnf install rpm-build)"
    if [ "$libraries" = yes ]; then
        packages+=(rlalloc-libs rlalloc-libs-torch rlalloc-libs-trainer)
        with_libraries=1
    fi
    while IFS='=' read -r layer identity; do
        macros+=(--define "lock_$layer $identity")
    done < <("$PYTHON" "$WORK/rlalloc/scripts/stage_packages.py" --source "$WORK/rlalloc" --identities)
    case $compression in
        xz) payload=w6.xzdio ;;
        zstd) payload=w3.zstdio ;;
        gzip) payload=w6.gzdio ;;
        none) payload=w0.ufdio ;;
        *) fail "no compression $compression" 2 ;;
    esac
    step "RPMs of rlalloc $version" rpmbuild -bb --define "_topdir $WORK/rpm" --define "_binary_payload $payload" \
        --define "rlalloc_version $version" --define "rlalloc_source $WORK/rlalloc" --define "rlalloc_wheels $wheels" \
        --define "rlalloc_python $PYTHON" --define "rlalloc_packages ${packages[*]}" \
        --define "rlalloc_python_name python$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" \
        --define "with_libraries $with_libraries" "${macros[@]}" "$WORK/rlalloc/packages/rlalloc.spec"
    mkdir -p "$into"
    mv "$WORK"/rpm/RPMS/*/*.rpm "$into"
    (cd "$into" && ls -s --block-size=KiB ./*-"$version"-1.*.rpm)
}

main() {
    local goal=${1:-}
    [ $# -eq 0 ] || shift
    while [ $# -gt 0 ]; do
        case $1 in
            --wheels | --into | --version | --compression)
                [ $# -ge 2 ] || fail "$1 needs a value" 2
                printf -v "${1#--}" %s "$2"
                shift
                ;;
            --no-libraries) libraries=no ;;
            *) fail "unknown option $1; see the head of $0" 2 ;;
        esac
        shift
    done
    umask 022
    WORK=$(mktemp -d "${TMPDIR:-/var/tmp}/rlalloc-packages.XXXXXX")
    trap 'rm -rf "$WORK"' EXIT
    case $goal in
        wheels) fill_wheels "${wheels:-$DEFAULT_WHEELS}" ;;
        deb | rpm)
            if [ -z "$wheels" ]; then
                wheels=$DEFAULT_WHEELS
                fill_wheels "$wheels"
            fi
            [ -d "$wheels" ] || fail "no folder $wheels" 2
            wheels=$(realpath "$wheels")
            copy_source
            "build_$goal"
            ;;
        *) fail "usage: build-packages.sh wheels|deb|rpm [options]; see the head of $0" 2 ;;
    esac
}

main "$@"
