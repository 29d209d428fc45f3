#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# mutable-state.sh BUILD: no variable of src/ may outlive the objects that a caller made: many devices
# and drivers live in one process. Says which do, by the symbols of the object files. Excepted are the
# list of guest memory, since a signal handler has nothing else to go by (memory/guard.c), and what each
# thread has for itself: whether it is writing (device/interrupt.c), in which callbacks it is
# (driver/transmit.c), and how many system calls it has made (base/system_calls.c).
set -eu
objects=$(find "$1" -path "*libvirtwire-*.a.p/*.o" -o -path "*virtwire.p/src_cmd_*.o")
[ "$(echo "$objects" | wc -l)" -ge 60 ] || { echo "only a part of the object files is there"; exit 1; }
# In .data.rel.ro are constants that hold addresses.
# shellcheck disable=SC2086 # a list of files without blanks
found=$(for object in $objects; do
    objdump -t "$object" | awk -v file="${object##*/}" '
        / \.(bss|data|tbss|tdata|sbss|sdata)[^ ]*\t/ && !/ \.data\.rel\.ro/ && !/ [dF] / &&
        $NF !~ /^\./ { print file ": " $NF }
        /\*COM\*/ { print file ": " $NF }'
done | grep -v -e '^src_memory_guard\.c\.o: ' -e '^src_device_interrupt\.c\.o: own$' \
    -e '^src_driver_transmit\.c\.o: innermost$' -e '^src_base_system_calls\.c\.o: vw_system_calls$' || true)
[ -z "$found" ] || { echo "variables that can change, outside of any object:"; echo "$found"; exit 1; }
