#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# cppcheck.sh BUILD: cppcheck on every source file of the compile commands. A finding is a failure.
# identicalInnerCondition: it takes "if (x & y) return x & y;" for a mistake.
set -eu
exec cppcheck --project="$1/compile_commands.json" --enable=warning,performance,portability \
    --inline-suppr --suppress=identicalInnerCondition --suppress=missingIncludeSystem \
    --file-filter='*/src/*' --error-exitcode=1 --quiet
