#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# clang-tidy.sh BUILD: the checks of .clang-tidy on every source file. A warning is a failure.
set -eu
# What only gcc knows (-Wsomething) is no fault of the source.
printf '%s\n' src/*/*.c |
    xargs -n 4 clang-tidy -p "$1" --quiet --extra-arg=-Wno-unknown-warning-option
