#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# deps.sh build|demo|test [BUILD]: installs the Debian packages that are missing for this purpose,
# and for `test` unpacks a kernel for QEMU guests into BUILD/guest/kernel (nothing touches the
# host's own boot files). Quiet unless there is something to do or it fails.
set -euo pipefail
purpose=$1
build=${2:-build}

packages=(gcc libc6-dev pkg-config meson ninja-build python3 libjansson-dev libmnl-dev liburing-dev libxdp-dev libbpf-dev libgsl-dev
          libcmocka-dev)
case $purpose in
build) ;;
demo) packages+=(iproute2 user-mode-linux busybox-static) ;;
test) packages+=(iproute2 user-mode-linux busybox-static qemu-system-x86 dpdk-dev g++ clang clang-tidy
                 cppcheck strace chromium python3-jsonschema) ;;
*)
    echo "usage: deps.sh build|demo|test [BUILD]" >&2
    exit 2
    ;;
esac

log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
    "$@" >"$log" 2>&1 && return
    cat "$log" >&2
    echo "deps.sh: failed: $*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "no rights to run: $* (be root, or install sudo)"
        return 1
    fi
}

# Another apt may be at work, and a mirror that does not answer may do so a little later.
apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3)
persistently() {
    local pause
    for pause in 5 20 60; do
        "$@" && return
        echo "deps.sh: failed, tried again after $pause s: $*" >&2
        sleep $pause
    done
    "$@"
}

apt_update() {
    echo "apt-get update"
    quietly persistently as_root "${apt[@]}" update
}

# An index that is older than the archive, or incomplete, names packages that are no longer there; but
# a repository of somebody else's that does not answer is none of our business.
apt_install() {
    as_root "${apt[@]}" update || true
    as_root "${apt[@]}" install -y --no-install-recommends "$@"
}

missing=()
for package in "${packages[@]}"; do
    case $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true) in
    *' installed') ;;
    *) missing+=("$package") ;;
    esac
done
if [ ${#missing[@]} -gt 0 ]; then
    if ! command -v apt-get >/dev/null; then
        echo "This is no Debian: install what these Debian packages hold, if it is not there:" >&2
        echo "    ${missing[*]}" >&2
    else
        echo "apt-get install ${missing[*]}"
        quietly as_root true
        quietly persistently apt_install "${missing[@]}"
    fi
fi

[ "$purpose" = test ] || exit 0
kernel=$build/guest/kernel
[ ! -d "$kernel" ] || exit 0
newest_kernel() {
    # The package that the meta-package stands for.
    apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Depends: *//p' | head -n 1
}
[ -n "$(newest_kernel)" ] || apt_update
echo "unpacking the kernel of linux-image-cloud-amd64 into $kernel"
partial=$build/guest/partial.$$
trap 'rm -rf "$log" "$partial"' EXIT
mkdir -p "$partial/package"
fetch() {
    local package
    package=$(newest_kernel)
    (cd "$partial/package" && "${apt[@]}" download "${package:?no package linux-image-cloud-amd64}")
}
# An index that is older than the archive names a package that is no longer there.
fetch >"$log" 2>&1 || { apt_update && quietly persistently fetch; }
quietly dpkg -x "$partial/package/"*.deb "$partial/kernel"
mv "$partial/kernel" "$kernel"
