/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/system_calls.h"

_Thread_local uint64_t vw_system_calls;
