/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The vhost-user front-end against a scripted back-end: what it sends for each offer, and what it
 * makes of every wrong reply. The count of open files is looked at after each.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "../scripted_back_end.h"
#include "transport/transport.h"

#define FEATURES                                                                                   \
    (UINT64_C(1) << VIRTIO_F_VERSION_1 | UINT64_C(1) << VIRTIO_NET_F_MTU |                         \
     UINT64_C(1) << VIRTIO_NET_F_MAC)
#define MEMORY (UINT64_C(1) << 20)

static unsigned open_files(void)
{
    DIR *directory = opendir("/proc/self/fd");
    unsigned count = 0;

    assert_non_null(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

/* A front-end and its memory, on the other end of a scripted back-end. */
struct bench {
    struct scripted back_end;
    struct vw_transport *transport;
    int file;
    char *memory;
    unsigned files_before;
    uint64_t offered;
};

static void prepare(struct bench *bench)
{
    memset(bench, 0, sizeof(*bench));
    bench->files_before = open_files();
    scripted_init(&bench->back_end, FEATURES);
    bench->file = memfd_create("vw-test", MFD_CLOEXEC);
    assert_true(bench->file >= 0);
    assert_int_equal(ftruncate(bench->file, (off_t)MEMORY), 0);
    bench->memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, bench->file, 0);
    assert_true(bench->memory != MAP_FAILED);
}

/* `request_ms` is short only where silence is what is tested. */
static void open_transport(struct bench *bench, unsigned request_ms)
{
    struct vw_transport_vhost_user_options options = {
        .fd = scripted_begin(&bench->back_end), .request_ms = request_ms, .queues = 8};

    assert_int_equal(vw_transport_vhost_user_open(&options, &bench->transport), 0);
}

static void finish(struct bench *bench)
{
    bench->transport->ops->close(bench->transport);
    scripted_end(&bench->back_end);
    munmap(bench->memory, MEMORY);
    close(bench->file);
    assert_int_equal(open_files(), bench->files_before);
}

static int set_up_queue(struct bench *bench, unsigned index, enum vw_ring_format format)
{
    struct vw_transport_queue queue = {.index = index,
                                       .base = format == VW_RING_PACKED ? 0x80008000 : 0,
                                       .ring = {.format = format,
                                                .size = 256,
                                                .descriptor_area = bench->memory,
                                                .driver_area = bench->memory + 8192,
                                                .device_area = bench->memory + 12288}};

    return bench->transport->ops->set_queue(bench->transport, &queue);
}

/* The whole way, up to the first thing that fails. */
static int run(struct bench *bench)
{
    const struct vw_transport_ops *ops = bench->transport->ops;
    struct vw_transport *transport = bench->transport;
    unsigned pairs;
    uint32_t base;
    uint8_t mac[6];
    int error = ops->connect(transport, &bench->offered);

    if (error == 0)
        error = ops->accept(transport, bench->offered);
    if (error == 0)
        error = ops->share(transport, bench->file, 0, bench->memory, MEMORY);
    if (error == 0)
        error = ops->max_pairs(transport, &pairs);
    if (error == 0)
        error = ops->read_config(transport, 0, 6, mac);
    if (error == 0)
        error = ops->set_mtu(transport, 1500);
    if (error == 0)
        error = set_up_queue(bench, 0, VW_RING_SPLIT);
    if (error == 0)
        error = ops->enable_queue(transport, 0, true);
    if (error == 0)
        error = ops->start(transport);
    if (error == 0)
        error = ops->stop_queue(transport, 0, &base);
    if (error == 0)
        error = ops->unshare(transport, bench->memory, MEMORY);
    return error;
}

/* ---- what is sent ---- */

static void full_handshake(void **state)
{
    static const uint32_t order[] = {VW_VU_SET_OWNER,
                                     VW_VU_GET_FEATURES,
                                     VW_VU_GET_PROTOCOL_FEATURES,
                                     VW_VU_SET_PROTOCOL_FEATURES,
                                     VW_VU_GET_QUEUE_NUM,
                                     VW_VU_GET_MAX_MEM_SLOTS,
                                     VW_VU_SET_BACKEND_REQ_FD,
                                     VW_VU_SET_FEATURES,
                                     VW_VU_SET_STATUS,
                                     VW_VU_GET_STATUS,
                                     VW_VU_ADD_MEM_REG,
                                     VW_VU_GET_CONFIG,
                                     VW_VU_NET_SET_MTU,
                                     VW_VU_SET_VRING_NUM,
                                     VW_VU_SET_VRING_BASE,
                                     VW_VU_SET_VRING_ADDR,
                                     VW_VU_SET_VRING_CALL,
                                     VW_VU_SET_VRING_KICK,
                                     VW_VU_SET_VRING_ENABLE,
                                     VW_VU_SET_STATUS,
                                     VW_VU_SET_VRING_ENABLE,
                                     VW_VU_GET_VRING_BASE,
                                     VW_VU_REM_MEM_REG};
    struct bench bench;
    (void)state;

    prepare(&bench);
    bench.back_end.features |= vw_bit(VW_VU_F_LOG_ALL);
    open_transport(&bench, 60000);
    assert_int_equal(run(&bench), 0);
    assert_true(bench.offered == FEATURES); /* no bits of the transport's */
    struct scripted *seen = &bench.back_end;
    finish(&bench);

    assert_int_equal(seen->count, VW_ARRAY_SIZE(order));
    for (unsigned i = 0; i < VW_ARRAY_SIZE(order); i++) {
        bool own = vw_vu_request_info(VW_VU_FRONT_END, order[i])->reply == VW_VU_REPLY_OWN;
        bool asks = (seen->records[i].flags & VW_VU_FLAG_NEED_REPLY) != 0;

        assert_int_equal(seen->records[i].request, order[i]);
        /* An acknowledgement is asked for as soon as it may be, and never beside a reply. */
        assert_int_equal(asks, i > 3 && !own);
    }
    /* Neither in-band notifications nor logs nor in-flight areas, though they were offered. */
    assert_true(seen->negotiated ==
                (vw_bit(VW_VU_PF_MQ) | vw_bit(VW_VU_PF_REPLY_ACK) | vw_bit(VW_VU_PF_MTU) |
                 vw_bit(VW_VU_PF_BACKEND_REQ) | vw_bit(VW_VU_PF_CONFIG) | vw_bit(VW_VU_PF_STATUS) |
                 vw_bit(VW_VU_PF_CONFIGURE_MEM_SLOTS)));
    assert_true(scripted_find(seen, VW_VU_SET_FEATURES, 0)->u64 ==
                (FEATURES | vw_bit(VW_VU_F_PROTOCOL_FEATURES)));
    assert_int_equal(scripted_find(seen, VW_VU_SET_STATUS, 0)->u64, 0xb);
    assert_int_equal(scripted_find(seen, VW_VU_SET_STATUS, 1)->u64, 0xf);
    assert_true(scripted_find(seen, VW_VU_SET_VRING_ENABLE, 0)->u64 == UINT64_C(1) << 32);
    assert_true(scripted_find(seen, VW_VU_SET_VRING_ENABLE, 1)->u64 == 0);
    assert_int_equal(scripted_find(seen, VW_VU_NET_SET_MTU, 0)->u64, 1500);
    assert_int_equal(scripted_find(seen, VW_VU_ADD_MEM_REG, 0)->fd_count, 1);
    assert_int_equal(scripted_find(seen, VW_VU_REM_MEM_REG, 0)->fd_count, 0);
}

static void addresses(void **state)
{
    struct bench bench;
    uint64_t at;
    (void)state;

    prepare(&bench);
    at = (uintptr_t)bench.memory;
    open_transport(&bench, 60000);
    assert_int_equal(run(&bench), 0);
    finish(&bench);
    /* Guest and user address are the pointer of this process. */
    assert_true(bench.back_end.slot.guest == at && bench.back_end.slot.user == at);
    assert_true(bench.back_end.slot.size == MEMORY && bench.back_end.slot.offset == 0);
    assert_true(bench.back_end.address.descriptor == at);
    assert_true(bench.back_end.address.available == at + 8192);
    assert_true(bench.back_end.address.used == at + 12288);
}

/* The oldest kind of back-end: no protocol features, and so no acknowledgement, no enabling. */
static void without_protocol_features(void **state)
{
    struct bench bench;
    unsigned pairs;
    uint32_t base;
    char byte;
    (void)state;

    prepare(&bench);
    bench.back_end.features = FEATURES;
    open_transport(&bench, 60000);
    const struct vw_transport_ops *ops = bench.transport->ops;
    assert_int_equal(ops->connect(bench.transport, &bench.offered), 0);
    assert_int_equal(ops->accept(bench.transport, bench.offered), 0);
    assert_int_equal(ops->share(bench.transport, bench.file, 0, bench.memory, MEMORY), 0);
    assert_int_equal(ops->max_pairs(bench.transport, &pairs), 0);
    assert_int_equal(pairs, 1);
    assert_int_equal(ops->read_config(bench.transport, 0, 1, &byte), -ENOTSUP);
    assert_int_equal(ops->set_mtu(bench.transport, 1500), -ENOTSUP);
    assert_int_equal(set_up_queue(&bench, 1, VW_RING_SPLIT), 0);
    assert_int_equal(ops->enable_queue(bench.transport, 1, true), 0);
    assert_int_equal(ops->enable_queue(bench.transport, 1, false), -ENOTSUP);
    assert_int_equal(ops->start(bench.transport), 0);
    assert_int_equal(ops->stop_queue(bench.transport, 1, &base), 0);
    finish(&bench);
    for (unsigned i = 0; i < bench.back_end.count; i++)
        assert_int_equal(bench.back_end.records[i].flags, VW_VU_VERSION);
    assert_true(scripted_find(&bench.back_end, VW_VU_SET_FEATURES, 0)->u64 == FEATURES);
    assert_int_equal(scripted_seen(&bench.back_end, VW_VU_SET_VRING_ENABLE), 0);
    assert_int_equal(scripted_seen(&bench.back_end, VW_VU_GET_PROTOCOL_FEATURES), 0);
    assert_int_equal(scripted_seen(&bench.back_end, VW_VU_SET_STATUS), 0);
    /* Without acknowledgements something else has to tell that all was carried out. */
    assert_int_equal(bench.back_end.records[bench.back_end.count - 2].request, VW_VU_GET_FEATURES);
}

/* Without slots each change sends the whole table, and eight regions are all. */
static void memory_table(void **state)
{
    struct bench bench;
    (void)state;

    prepare(&bench);
    bench.back_end.protocol &= ~vw_bit(VW_VU_PF_CONFIGURE_MEM_SLOTS);
    open_transport(&bench, 60000);
    const struct vw_transport_ops *ops = bench.transport->ops;
    assert_int_equal(ops->connect(bench.transport, &bench.offered), 0);
    assert_int_equal(ops->accept(bench.transport, bench.offered), 0);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(
            ops->share(bench.transport, bench.file, i * 4096, bench.memory + i * 4096, 4096), 0);
    assert_int_equal(ops->share(bench.transport, bench.file, 65536, bench.memory + 65536, 4096),
                     -ENOSPC);
    assert_non_null(strstr(bench.transport->why, "8 memory regions"));
    assert_int_equal(ops->unshare(bench.transport, bench.memory + 4096, 4096), 0);
    assert_int_equal(ops->unshare(bench.transport, bench.memory + 4096, 4096), -ENOENT);
    finish(&bench);
    assert_int_equal(scripted_seen(&bench.back_end, VW_VU_SET_MEM_TABLE), 9);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(scripted_find(&bench.back_end, VW_VU_SET_MEM_TABLE, i)->fd_count, i + 1);
    assert_int_equal(scripted_find(&bench.back_end, VW_VU_SET_MEM_TABLE, 8)->fd_count, 7);
    assert_int_equal(bench.back_end.table.count, 7);
    struct vw_vu_region second = bench.back_end.table.regions[1];
    assert_true(second.offset == 8192 && second.user == (uintptr_t)bench.memory + 8192);
}

static void memory_that_cannot_be(void **state)
{
    struct bench bench;
    (void)state;

    prepare(&bench);
    open_transport(&bench, 60000);
    struct vw_transport *transport = bench.transport;
    const struct vw_transport_ops *ops = transport->ops;
    assert_int_equal(ops->share(transport, bench.file, 0, bench.memory, 4096), -ENOTCONN);
    assert_int_equal(ops->connect(transport, &bench.offered), 0);
    assert_int_equal(ops->share(transport, bench.file, 0, bench.memory, 0), -EINVAL);
    assert_int_equal(ops->share(transport, bench.file, 0, bench.memory, UINT64_MAX), -EINVAL);
    assert_int_equal(ops->share(transport, bench.file, UINT64_MAX, bench.memory, 4096), -EINVAL);
    assert_int_equal(ops->share(transport, -1, 0, bench.memory, 4096), -EBADF);
    assert_int_equal(ops->share(transport, bench.file, 0, bench.memory + 4096, 8192), 0);
    assert_int_equal(ops->share(transport, bench.file, 0, bench.memory, 4097), -EEXIST);
    assert_int_equal(ops->share(transport, bench.file, 0, bench.memory + 12287, 1), -EEXIST);
    assert_int_equal(ops->share(transport, bench.file, 0, bench.memory, 4096), 0);
    finish(&bench);
    assert_int_equal(scripted_seen(&bench.back_end, VW_VU_ADD_MEM_REG), 2);
}

static void kicks_and_calls(void **state)
{
    struct bench bench;
    eventfd_t value;
    (void)state;

    prepare(&bench);
    open_transport(&bench, 60000);
    struct vw_transport *transport = bench.transport;
    const struct vw_transport_ops *ops = transport->ops;
    assert_int_equal(ops->connect(transport, &bench.offered), 0);
    assert_int_equal(ops->accept(transport, bench.offered), 0);
    assert_int_equal(ops->call_fd(transport, 3), -1);
    assert_int_equal(set_up_queue(&bench, 3, VW_RING_SPLIT), 0);
    int call = ops->call_fd(transport, 3);
    assert_true(call >= 0);
    /* Each request was acknowledged, so that what the back-end keeps is ours to look at. */
    assert_int_equal(eventfd_write(bench.back_end.call, 5), 0);
    assert_int_equal(eventfd_read(call, &value), 0);
    assert_int_equal(value, 5);
    assert_int_equal(ops->start(transport), 0);
    ops->kick(transport, 3);
    ops->kick(transport, 3);
    assert_int_equal(eventfd_read(bench.back_end.kick, &value), 0);
    assert_int_equal(value, 3); /* one of them was start's */

    /* Set up again: the old back-end's copy of the kick descriptor hears nothing any more. */
    int old = dup(bench.back_end.kick);
    assert_int_equal(set_up_queue(&bench, 3, VW_RING_SPLIT), 0);
    ops->kick(transport, 3);
    assert_int_equal(eventfd_read(old, &value), -1);
    assert_int_equal(eventfd_read(bench.back_end.kick, &value), 0);
    assert_int_equal(ops->call_fd(transport, 3), call);
    close(old);

    assert_int_equal(set_up_queue(&bench, 8, VW_RING_SPLIT), -EINVAL);
    assert_int_equal(ops->enable_queue(transport, 2, true), -EINVAL);
    assert_int_equal(ops->call_fd(transport, 8), -1);
    finish(&bench);
}

/* DPDK tells the lower half of a packed ring's base alone. */
static void packed_bases(void **state)
{
    static const struct {
        uint32_t told, expected;
    } cases[] = {{0x8000, 0x80008000},     {0x8005, 0x80058005},    {0x0007, 0x00070007}, {0, 0},
                 {0x80058005, 0x80058005}, {0x80038005, 0x80038005}};
    (void)state;

    for (unsigned i = 0; i < VW_ARRAY_SIZE(cases); i++) {
        struct bench bench;
        uint32_t base = 0;

        prepare(&bench);
        bench.back_end.base = cases[i].told;
        open_transport(&bench, 60000);
        struct vw_transport *transport = bench.transport;
        assert_int_equal(transport->ops->connect(transport, &bench.offered), 0);
        assert_int_equal(transport->ops->accept(transport, bench.offered), 0);
        assert_int_equal(set_up_queue(&bench, 0, VW_RING_PACKED), 0);
        assert_int_equal(transport->ops->stop_queue(transport, 0, &base), 0);
        assert_int_equal(transport->ops->stop_queue(transport, 0, &base), -EINVAL);
        assert_int_equal(base, cases[i].expected);
        finish(&bench);
        assert_true(scripted_find(&bench.back_end, VW_VU_SET_VRING_BASE, 0)->u64 ==
                    UINT64_C(0x80008000) << 32);
    }
}

/* ---- what comes back ---- */

struct wrong {
    uint32_t request;
    enum scripted_fault fault;
    uint64_t value;
    int error;
    const char *why;
};

/* -EREMOTEIO alone leaves the connection alive. */
static const struct wrong wrong_replies[] = {
    {VW_VU_GET_FEATURES, FAULT_SILENT, 0, -ETIMEDOUT, "GET_FEATURES"},
    {VW_VU_GET_FEATURES, FAULT_CLOSE, 0, -ECONNRESET, "closed"},
    {VW_VU_GET_FEATURES, FAULT_HALF_HEADER, 0, -ETIMEDOUT, "in time"},
    {VW_VU_GET_FEATURES, FAULT_HALF_THEN_CLOSE, 0, -EPROTO, ""},
    {VW_VU_GET_FEATURES, FAULT_OTHER_REQUEST, 0, -EPROTO, "another request"},
    {VW_VU_GET_FEATURES, FAULT_NO_REPLY_FLAG, 0, -EPROTO, "request"},
    {VW_VU_GET_FEATURES, FAULT_VERSION, 0, -EPROTO, "version"},
    {VW_VU_GET_FEATURES, FAULT_EMPTY, 0, -EPROTO, "size"},
    {VW_VU_GET_FEATURES, FAULT_LONG, 0, -EPROTO, "longer"},
    {VW_VU_GET_FEATURES, FAULT_HUGE, 0, -EPROTO, "longer"},
    {VW_VU_GET_FEATURES, FAULT_DESCRIPTOR, 0, -EPROTO, "descriptor"},
    {VW_VU_GET_FEATURES, FAULT_DESCRIPTORS, 0, -EPROTO, "descriptor"},
    {VW_VU_GET_FEATURES, FAULT_TWICE, 0, -EPROTO, "another request"},
    {VW_VU_GET_QUEUE_NUM, FAULT_VALUE, 0, -EPROTO, "no queues"},
    {VW_VU_GET_QUEUE_NUM, FAULT_LONG, 0, -EPROTO, "longer"},
    {VW_VU_GET_MAX_MEM_SLOTS, FAULT_VALUE, 0, -EPROTO, "no memory slots"},
    {VW_VU_GET_MAX_MEM_SLOTS, FAULT_CLOSE, 0, -ECONNRESET, "closed"},
    {VW_VU_SET_FEATURES, FAULT_VALUE, 1, -EREMOTEIO, "SET_FEATURES"},
    {VW_VU_SET_FEATURES, FAULT_EMPTY, 0, -EPROTO, "size"},
    {VW_VU_SET_STATUS, FAULT_VALUE, 22, -EREMOTEIO, "SET_STATUS"},
    {VW_VU_GET_STATUS, FAULT_VALUE, 3, -EREMOTEIO, "does not take these features"},
    {VW_VU_ADD_MEM_REG, FAULT_VALUE, 1, -EREMOTEIO, "ADD_MEM_REG"},
    {VW_VU_ADD_MEM_REG, FAULT_CLOSE, 0, -ECONNRESET, "closed"},
    {VW_VU_GET_CONFIG, FAULT_EMPTY, 0, -EREMOTEIO, "configuration"},
    {VW_VU_GET_CONFIG, FAULT_INDEX, 0, -EPROTO, "another part"},
    {VW_VU_GET_CONFIG, FAULT_LONG, 0, -EPROTO, "size"},
    {VW_VU_NET_SET_MTU, FAULT_VALUE, 1, -EREMOTEIO, "NET_SET_MTU"},
    {VW_VU_SET_VRING_NUM, FAULT_VALUE, 1, -EREMOTEIO, "SET_VRING_NUM"},
    {VW_VU_SET_VRING_KICK, FAULT_SILENT, 0, -ETIMEDOUT, "SET_VRING_KICK"},
    {VW_VU_SET_VRING_CALL, FAULT_DESCRIPTOR, 0, -EPROTO, "descriptor"},
    {VW_VU_SET_VRING_ENABLE, FAULT_CLOSE, 0, -ECONNRESET, "closed"},
    {VW_VU_GET_VRING_BASE, FAULT_INDEX, 0, -EPROTO, "another ring"},
    {VW_VU_GET_VRING_BASE, FAULT_VALUE, 65536, -EPROTO, "16 bits"},
    {VW_VU_GET_VRING_BASE, FAULT_SILENT, 0, -ETIMEDOUT, "GET_VRING_BASE"},
    {VW_VU_REM_MEM_REG, FAULT_OTHER_REQUEST, 0, -EPROTO, "another request"},
};

static void check_wrong(const struct wrong *wrong)
{
    struct bench bench;
    bool silent = wrong->error == -ETIMEDOUT;
    bool lost = wrong->error != -EREMOTEIO;
    int events;

    prepare(&bench);
    bench.back_end.fault_at = wrong->request;
    bench.back_end.fault = wrong->fault;
    bench.back_end.value = wrong->value;
    open_transport(&bench, silent ? 1500 : 60000);
    int error = run(&bench);
    struct vw_transport *transport = bench.transport;
    if (error != wrong->error || strstr(transport->why, wrong->why) == NULL)
        fail_msg("%s, fault %u: %d (%s)", vw_vu_request_name(VW_VU_FRONT_END, wrong->request),
                 wrong->fault, error, transport->why);
    events = transport->ops->process(transport);
    /* A failure of connect itself is told by its return alone. */
    assert_int_equal((events & VW_TRANSPORT_LOST) != 0, lost && bench.offered != 0);
    assert_int_equal(transport->ops->process(transport), 0);
    if (lost)
        assert_int_equal(transport->ops->start(transport), -ENOTCONN);
    else
        assert_int_not_equal(transport->ops->start(transport), -ENOTCONN);
    finish(&bench);
}

static void wrong_reply(void **state)
{
    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(wrong_replies); i++)
        check_wrong(&wrong_replies[i]);
}

/* A region that was refused is not in the table of the next. */
static void refused_memory_is_forgotten(void **state)
{
    struct bench bench;
    (void)state;

    prepare(&bench);
    bench.back_end.protocol &= ~vw_bit(VW_VU_PF_CONFIGURE_MEM_SLOTS);
    bench.back_end.fault_at = VW_VU_SET_MEM_TABLE;
    bench.back_end.fault = FAULT_VALUE;
    bench.back_end.value = 1;
    open_transport(&bench, 60000);
    const struct vw_transport_ops *ops = bench.transport->ops;
    assert_int_equal(ops->connect(bench.transport, &bench.offered), 0);
    assert_int_equal(ops->share(bench.transport, bench.file, 0, bench.memory, 4096), -EREMOTEIO);
    bench.back_end.fault_at = 0; /* it waits for the next message: ours to change */
    assert_int_equal(ops->share(bench.transport, bench.file, 4096, bench.memory + 4096, 4096), 0);
    finish(&bench);
    assert_int_equal(bench.back_end.table.count, 1);
    assert_int_equal(bench.back_end.table.regions[0].offset, 4096);
}

static void features_beyond_the_offer(void **state)
{
    struct bench bench;
    (void)state;

    prepare(&bench);
    open_transport(&bench, 60000);
    assert_int_equal(bench.transport->ops->connect(bench.transport, &bench.offered), 0);
    assert_int_equal(bench.transport->ops->accept(bench.transport, vw_bit(VIRTIO_F_RING_PACKED)),
                     -EINVAL);
    finish(&bench);
    assert_int_equal(scripted_seen(&bench.back_end, VW_VU_SET_FEATURES), 0);
}

/* Bytes that nobody asked for, between requests. */
static void unsolicited_message(void **state)
{
    struct bench bench;
    struct pollfd wait = {.events = POLLIN};
    (void)state;

    prepare(&bench);
    bench.back_end.fault_at = VW_VU_GET_CONFIG;
    bench.back_end.fault = FAULT_TWICE;
    open_transport(&bench, 60000);
    struct vw_transport *transport = bench.transport;
    const struct vw_transport_ops *ops = transport->ops;
    uint8_t byte;
    assert_int_equal(ops->connect(transport, &bench.offered), 0);
    assert_int_equal(ops->process(transport), 0);
    assert_int_equal(ops->read_config(transport, 0, 1, &byte), 0);
    wait.fd = ops->event_fd(transport);
    assert_int_equal(poll(&wait, 1, 60000), 1);
    assert_int_equal(ops->process(transport), VW_TRANSPORT_LOST);
    assert_non_null(strstr(transport->why, "nobody asked"));
    assert_int_equal(ops->connect(transport, &bench.offered), -ENOTCONN); /* there is no path */
    finish(&bench);
}

/* ---- requests of the back-end ---- */

static void ask_config_change(struct vw_vu_message *message)
{
    vw_vu_config_change(message);
    message->header.flags |= VW_VU_FLAG_NEED_REPLY;
}

/* It waits for our acknowledgement before it answers: nobody may wait for ever. */
static void request_while_a_reply_is_awaited(void **state)
{
    struct bench bench;
    struct pollfd wait = {.events = POLLIN};
    uint8_t byte;
    (void)state;

    prepare(&bench);
    bench.back_end.fault_at = VW_VU_GET_CONFIG;
    bench.back_end.fault = FAULT_CALL_FIRST;
    ask_config_change(&bench.back_end.ask);
    open_transport(&bench, 60000);
    struct vw_transport *transport = bench.transport;
    assert_int_equal(transport->ops->connect(transport, &bench.offered), 0);
    assert_int_equal(transport->ops->read_config(transport, 0, 1, &byte), 0);
    /* It was read already, and still the descriptor tells of it. */
    wait.fd = transport->ops->event_fd(transport);
    assert_int_equal(poll(&wait, 1, 60000), 1);
    assert_int_equal(transport->ops->process(transport), VW_TRANSPORT_CONFIG_CHANGED);
    assert_int_equal(poll(&wait, 1, 0), 0);
    assert_int_equal(transport->ops->process(transport), 0);
    finish(&bench);
    assert_int_equal(bench.back_end.answered.header.request, VW_VU_BACK_END_CONFIG_CHANGE_MSG);
    assert_true(bench.back_end.answered.payload.u64 == 0);
}

/* Sends `message` on the channel, lets the front-end see it, and takes its reply, if one comes. */
static int channel_exchange(struct bench *bench, const struct vw_vu_message *message,
                            struct vw_vu_message *reply)
{
    struct vw_socket_receiver receiver;
    struct pollfd wait = {.fd = bench->transport->ops->event_fd(bench->transport),
                          .events = POLLIN};
    int result;

    assert_int_equal(vw_socket_send(bench->back_end.channel, message, NULL, 0), 0);
    assert_int_equal(poll(&wait, 1, 60000), 1);
    bench->transport->ops->process(bench->transport);
    vw_socket_receiver_init(&receiver, VW_VU_BACK_END, true);
    result = vw_socket_receive(&receiver, bench->back_end.channel);
    if (result == 1)
        *reply = receiver.message;
    vw_socket_receiver_destroy(&receiver);
    return result;
}

static void channel_manners(void **state)
{
    struct bench bench;
    struct vw_vu_message message, reply;
    (void)state;

    prepare(&bench);
    open_transport(&bench, 60000);
    assert_int_equal(bench.transport->ops->connect(bench.transport, &bench.offered), 0);
    assert_true(bench.back_end.channel >= 0);

    vw_vu_config_change(&message); /* no reply is asked for, none may come */
    assert_int_equal(channel_exchange(&bench, &message, &reply), -EAGAIN);
    ask_config_change(&message);
    assert_int_equal(channel_exchange(&bench, &message, &reply), 1);
    assert_true(reply.payload.u64 == 0);
    /* What was not negotiated, and what does not exist: a no, if one is asked for. */
    vw_vu_vring_call(&message, 0);
    assert_int_equal(channel_exchange(&bench, &message, &reply), -EAGAIN);
    message.header.flags |= VW_VU_FLAG_NEED_REPLY;
    assert_int_equal(channel_exchange(&bench, &message, &reply), 1);
    assert_true(reply.payload.u64 != 0);
    message.header.request = 77;
    assert_int_equal(channel_exchange(&bench, &message, &reply), 1);
    assert_true(reply.header.request == 77 && reply.payload.u64 != 0);
    /* A malformed one ends the channel, and nothing else. */
    message.header.flags = 2;
    int result = channel_exchange(&bench, &message, &reply);
    assert_true(result == 0 || result == -ECONNRESET);
    assert_int_equal(bench.transport->ops->accept(bench.transport, FEATURES), 0);
    assert_int_equal(bench.transport->ops->process(bench.transport), 0);
    finish(&bench);
}

/* More than one turn's worth is served, turn by turn, and a flood does not hold us up. */
static void channel_flood(void **state)
{
    struct bench bench;
    struct vw_vu_message message;
    struct pollfd wait = {.events = POLLIN};
    unsigned sent = 0, turns = 0;
    (void)state;

    prepare(&bench);
    open_transport(&bench, 60000);
    struct vw_transport *transport = bench.transport;
    assert_int_equal(transport->ops->connect(transport, &bench.offered), 0);
    vw_vu_config_change(&message);
    while (sent < 150 && vw_socket_send_within(bench.back_end.channel, &message, NULL, 0, 0) == 0)
        sent++;
    assert_true(sent > 128);
    wait.fd = transport->ops->event_fd(transport);
    while (poll(&wait, 1, 0) == 1) {
        assert_int_equal(transport->ops->process(transport), VW_TRANSPORT_CONFIG_CHANGED);
        turns++;
    }
    assert_int_equal(turns, (sent + 63) / 64);
    finish(&bench);
}

/* Descriptors belong to no request that was negotiated: they are closed, and the channel with
 * them. */
static void channel_descriptors(void **state)
{
    (void)state;
    for (unsigned count = 1; count <= VW_VU_MAX_FDS; count++) {
        struct bench bench;
        struct vw_vu_message message;
        struct pollfd wait = {.events = POLLIN};
        int fds[VW_VU_MAX_FDS];

        prepare(&bench);
        open_transport(&bench, 60000);
        struct vw_transport *transport = bench.transport;
        assert_int_equal(transport->ops->connect(transport, &bench.offered), 0);
        for (unsigned i = 0; i < count; i++)
            fds[i] = bench.file;
        vw_vu_config_change(&message);
        assert_int_equal(vw_socket_send(bench.back_end.channel, &message, fds, count), 0);
        wait.fd = transport->ops->event_fd(transport);
        assert_int_equal(poll(&wait, 1, 60000), 1);
        assert_int_equal(transport->ops->process(transport), 0);
        assert_int_equal(poll(&wait, 1, 0), 0);
        assert_int_equal(transport->ops->accept(transport, FEATURES), 0);
        finish(&bench);
    }
}

static void channel_closed_by_the_back_end(void **state)
{
    struct bench bench;
    struct pollfd wait = {.events = POLLIN};
    (void)state;

    prepare(&bench);
    open_transport(&bench, 60000);
    struct vw_transport *transport = bench.transport;
    assert_int_equal(transport->ops->connect(transport, &bench.offered), 0);
    close(bench.back_end.channel);
    bench.back_end.channel = -1;
    wait.fd = transport->ops->event_fd(transport);
    assert_int_equal(poll(&wait, 1, 60000), 1);
    assert_int_equal(transport->ops->process(transport), 0);
    assert_int_equal(poll(&wait, 1, 0), 0);
    assert_int_equal(transport->ops->accept(transport, FEATURES), 0);
    finish(&bench);
}

static void wrong_options(void **state)
{
    struct vw_transport_vhost_user_options options = {.fd = -1};
    struct vw_transport *transport;
    unsigned files = open_files();
    (void)state;

    assert_int_equal(vw_transport_vhost_user_open(&options, &transport), -EINVAL);
    options.fd = 0;
    options.socket_path = "/nowhere";
    assert_int_equal(vw_transport_vhost_user_open(&options, &transport), -EINVAL);
    options.socket_path = NULL;
    options.listen = true;
    assert_int_equal(vw_transport_vhost_user_open(&options, &transport), -EINVAL);
    options.listen = false;
    options.queues = 257;
    assert_int_equal(vw_transport_vhost_user_open(&options, &transport), -EINVAL);
    options.queues = 0;
    options.fd = 9999;
    assert_int_equal(vw_transport_vhost_user_open(&options, &transport), -EBADF);
    options.fd = -1;
    options.listen = true;
    options.socket_path = "/nowhere/at/all";
    assert_int_equal(vw_transport_vhost_user_open(&options, &transport), -ENOENT);
    assert_int_equal(open_files(), files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_handshake),
        cmocka_unit_test(addresses),
        cmocka_unit_test(without_protocol_features),
        cmocka_unit_test(memory_table),
        cmocka_unit_test(memory_that_cannot_be),
        cmocka_unit_test(kicks_and_calls),
        cmocka_unit_test(packed_bases),
        cmocka_unit_test(wrong_reply),
        cmocka_unit_test(refused_memory_is_forgotten),
        cmocka_unit_test(features_beyond_the_offer),
        cmocka_unit_test(unsolicited_message),
        cmocka_unit_test(request_while_a_reply_is_awaited),
        cmocka_unit_test(channel_manners),
        cmocka_unit_test(channel_flood),
        cmocka_unit_test(channel_descriptors),
        cmocka_unit_test(channel_closed_by_the_back_end),
        cmocka_unit_test(wrong_options),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
