/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `virtwire bench xdp-drop INTERFACE`: drops all that the interface receives, as early as its
 * driver can, until it is ended. A TAP then costs little beside the write itself.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "bench/helpers.h"

int bench_xdp_drop(int argc, char **argv)
{
    const struct bpf_insn program[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_DROP},
        {.code = BPF_JMP | BPF_EXIT},
    };
    struct bpf_link_create_opts options = {.sz = sizeof(options), .flags = XDP_FLAGS_DRV_MODE};
    int interface = argc == 2 ? (int)if_nametoindex(argv[1]) : 0;

    if (interface == 0) {
        fprintf(stderr, "usage: virtwire bench xdp-drop INTERFACE\n");
        return 2;
    }
    int loaded = bpf_prog_load(BPF_PROG_TYPE_XDP, "drop", "BSD-3-Clause", program, 2, NULL);
    if (loaded < 0 || bpf_link_create(loaded, interface, BPF_XDP, &options) < 0) {
        fprintf(stderr, "virtwire bench xdp-drop: %s: %s\n", argv[1], strerror(errno));
        return EXIT_FAILURE;
    }
    fprintf(stderr, "dropping\n");
    pause();
    return EXIT_SUCCESS;
}
