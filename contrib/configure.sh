#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# configure.sh FOLDER OPTION...: sets up a build folder, or brings the options of one up to date.
# Quiet unless it fails.
set -eu
folder=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if [ -f "$folder/build.ninja" ]; then
    meson configure "$folder" "$@" >"$log" 2>&1 && exit 0
elif [ -f "$folder/meson-private/coredata.dat" ]; then
    # Interrupted while it was written anew: meson takes it for set up, ninja finds nothing.
    meson setup --reconfigure "$folder" "$@" >"$log" 2>&1 && exit 0
else
    meson setup "$folder" "$@" >"$log" 2>&1 && exit 0
fi
cat "$log" >&2
exit 1
