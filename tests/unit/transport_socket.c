/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Framing over a socket under every way in which a peer can cut and glue its bytes and
 * descriptors. The count of open files is looked at after each.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "transport/socket.h"

#define MAX_SENT_FDS 253 /* the kernel's limit for one message */

struct pair {
    int ours, theirs;
    struct vw_socket_receiver receiver;
};

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

static void open_pair(struct pair *pair)
{
    int sockets[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    pair->ours = sockets[0];
    pair->theirs = sockets[1];
    vw_socket_receiver_init(&pair->receiver, VW_VU_FRONT_END, false);
}

static void close_pair(struct pair *pair)
{
    vw_socket_receiver_destroy(&pair->receiver);
    close(pair->ours);
    if (pair->theirs >= 0)
        close(pair->theirs);
}

/*
 * Stands in front of the C library's: cuts what is sent. The kernel takes messages as short as ours
 * whole or not at all, so that a short write has to be made.
 */
static size_t send_limit = SIZE_MAX;

ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
    struct iovec iov = message->msg_iov[0];
    struct msghdr cut = *message;

    if (iov.iov_len > send_limit)
        iov.iov_len = send_limit;
    cut.msg_iov = &iov;
    return (ssize_t)syscall(SYS_sendmsg, socket, &cut, flags);
}

/* As a peer sends that is not bound by our sender's rules. The same descriptor, many times. */
static void send_raw(int socket, const void *bytes, size_t length, unsigned fd_count)
{
    union {
        char bytes[CMSG_SPACE(MAX_SENT_FDS * sizeof(int))];
        struct cmsghdr header;
    } control;
    struct iovec iov = {(void *)(uintptr_t)bytes, length};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd_count > 0) {
        memset(&control, 0, sizeof(control));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        for (unsigned i = 0; i < fd_count; i++)
            memcpy(CMSG_DATA(&control.header) + i * sizeof(int), &(int){STDERR_FILENO},
                   sizeof(int));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    }
    assert_int_equal(sendmsg(socket, &message, MSG_NOSIGNAL), length);
}

static size_t wire_length(const struct vw_vu_message *message)
{
    return VW_VU_HEADER_SIZE + message->header.size;
}

static int receive(struct pair *pair)
{
    return vw_socket_receive(&pair->receiver, pair->ours);
}

static void expect_message(struct pair *pair, const struct vw_vu_message *message, unsigned fds)
{
    assert_int_equal(receive(pair), 1);
    assert_memory_equal(&pair->receiver.message, message, wire_length(message));
    assert_int_equal(pair->receiver.fd_count, fds);
}

static void expect_broken(struct pair *pair)
{
    assert_int_equal(receive(pair), -EPROTO);
    assert_non_null(pair->receiver.why);
    assert_int_equal(pair->receiver.fd_count, 0);
    assert_int_equal(receive(pair), -EPROTO);
}

/* CVE-2019-14818: descriptors that nobody wanted used to stay open. */
static void test_ten_thousand(void **state)
{
    static const unsigned counts[] = {0, 1, 8, 9};
    unsigned before = open_files();
    struct pair pair;

    (void)state;
    open_pair(&pair);
    for (unsigned i = 0; i < 10000; i++) {
        unsigned fds = counts[i % 4];
        struct vw_vu_message message;

        vw_vu_request_u64(&message, i % 2 ? VW_VU_SET_FEATURES : 1000, i);
        send_raw(pair.theirs, &message, wire_length(&message), fds);
        expect_message(&pair, &message, fds);
        if (i % 3 == 0 && fds > 0) { /* some are kept, and then the keeper's to close */
            int fd = vw_socket_take_fd(&pair.receiver, fds - 1);

            assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
            assert_int_equal(vw_socket_take_fd(&pair.receiver, fds - 1), -1);
            assert_int_equal(close(fd), 0);
        }
        assert_int_equal(vw_socket_take_fd(&pair.receiver, fds), -1);
        if (i % 500 == 0)
            assert_int_equal(open_files(), before + 2 + fds - (i % 3 == 0 && fds > 0));
    }
    assert_int_equal(receive(&pair), -EAGAIN);
    assert_int_equal(open_files(), before + 2);
    close_pair(&pair);
    assert_int_equal(open_files(), before);
}

static void test_bytewise(void **state)
{
    unsigned before = open_files();
    struct vw_vu_message message;
    struct pair pair;

    (void)state;
    open_pair(&pair);
    for (unsigned round = 0; round < 20; round++) {
        size_t length;

        vw_vu_request(&message, VW_VU_SET_MEM_TABLE, 72);
        memset(message.payload.bytes, (int)round, 72);
        length = wire_length(&message);
        for (size_t i = 0; i < length; i++) {
            assert_int_equal(receive(&pair), -EAGAIN);
            assert_false(pair.receiver.complete);
            send_raw(pair.theirs, (char *)&message + i, 1, i == 0 ? 8 : 0);
        }
        expect_message(&pair, &message, 8);
    }
    close_pair(&pair);
    assert_int_equal(open_files(), before);
}

/* Glued together, and cut at every place. */
static void test_two_in_one_write(void **state)
{
    unsigned before = open_files();
    struct vw_vu_message first, second;
    char both[100];
    size_t length;

    (void)state;
    vw_vu_request_u64(&first, VW_VU_SET_FEATURES, 0x1122334455667788);
    vw_vu_request_state(&second, VW_VU_SET_VRING_NUM, 3, 256);
    length = wire_length(&first) + wire_length(&second);
    memcpy(both, &first, wire_length(&first));
    memcpy(both + wire_length(&first), &second, wire_length(&second));
    for (size_t cut = 1; cut <= length; cut++) {
        struct pair pair;

        open_pair(&pair);
        send_raw(pair.theirs, both, cut, 2);
        if (cut < wire_length(&first))
            assert_int_equal(receive(&pair), -EAGAIN);
        if (cut < length)
            send_raw(pair.theirs, both + cut, length - cut, 0);
        expect_message(&pair, &first, 2);
        expect_message(&pair, &second, 0);
        assert_int_equal(receive(&pair), -EAGAIN);
        close_pair(&pair);
    }
    assert_int_equal(open_files(), before);
}

/* Several queued before the first is read: each gets its own descriptors. */
static void test_descriptors_do_not_mix(void **state)
{
    static const unsigned counts[] = {0, 3, 0, 1, 8};
    unsigned before = open_files();
    struct vw_vu_message messages[VW_ARRAY_SIZE(counts)];
    struct pair pair;

    (void)state;
    open_pair(&pair);
    for (unsigned i = 0; i < VW_ARRAY_SIZE(counts); i++) {
        vw_vu_request(&messages[i], i % 2 ? VW_VU_SET_OWNER : 777, i % 2 ? 0 : 200);
        send_raw(pair.theirs, &messages[i], wire_length(&messages[i]), counts[i]);
    }
    for (unsigned i = 0; i < VW_ARRAY_SIZE(counts); i++)
        expect_message(&pair, &messages[i], counts[i]);
    close_pair(&pair);
    assert_int_equal(open_files(), before);
}

static void test_too_many_descriptors(void **state)
{
    static const unsigned counts[] = {VW_SOCKET_MAX_FDS + 1, 100, MAX_SENT_FDS};
    unsigned before = open_files();
    struct vw_vu_message message;
    struct pair pair;

    (void)state;
    vw_vu_request(&message, VW_VU_SET_OWNER, 0);
    open_pair(&pair);
    send_raw(pair.theirs, &message, wire_length(&message), VW_SOCKET_MAX_FDS);
    expect_message(&pair, &message, VW_SOCKET_MAX_FDS);
    close_pair(&pair);
    for (unsigned i = 0; i < VW_ARRAY_SIZE(counts); i++) {
        open_pair(&pair);
        send_raw(pair.theirs, &message, wire_length(&message), counts[i]);
        expect_broken(&pair);
        assert_int_equal(open_files(), before + 2);
        close_pair(&pair);
    }
    assert_int_equal(open_files(), before);
}

/* Our own table of files is full: fewer arrive than were sent, which must not pass for all. */
static void test_no_descriptors_left(void **state)
{
    unsigned before = open_files();
    struct rlimit limit, low;
    struct vw_vu_message message;
    struct pair pair;
    int probe;

    (void)state;
    open_pair(&pair);
    vw_vu_request(&message, VW_VU_SET_OWNER, 0);
    send_raw(pair.theirs, &message, wire_length(&message), 8);
    probe = dup(STDERR_FILENO); /* the lowest number that is free */
    assert_true(probe >= 0);
    close(probe);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = (rlim_t)probe + 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    probe = receive(&pair);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(probe, -EPROTO);
    assert_int_equal(pair.receiver.fd_count, 0);
    close_pair(&pair);
    assert_int_equal(open_files(), before);
}

static void test_descriptors_within(void **state)
{
    unsigned before = open_files();
    struct vw_vu_message message;
    size_t length;

    (void)state;
    vw_vu_request_u64(&message, VW_VU_SET_FEATURES, 1);
    length = wire_length(&message);
    for (size_t cut = 1; cut < length; cut++) {
        struct pair pair;

        open_pair(&pair);
        send_raw(pair.theirs, &message, cut, 1);
        send_raw(pair.theirs, (char *)&message + cut, length - cut, 1);
        expect_broken(&pair);
        close_pair(&pair);
    }
    assert_int_equal(open_files(), before);
}

/* The peer ends: between two messages that is no fault, within one it is. */
static void test_end(void **state)
{
    unsigned before = open_files();
    struct vw_vu_message message;
    size_t length;

    (void)state;
    vw_vu_request_u64(&message, VW_VU_SET_FEATURES, 1);
    length = wire_length(&message);
    for (size_t cut = 0; cut <= length; cut++) {
        struct pair pair;

        open_pair(&pair);
        if (cut > 0)
            send_raw(pair.theirs, &message, cut, 2);
        close(pair.theirs);
        pair.theirs = -1;
        if (cut == length)
            expect_message(&pair, &message, 2);
        if (cut == 0 || cut == length)
            assert_int_equal(receive(&pair), 0);
        else
            expect_broken(&pair);
        close_pair(&pair);
    }
    assert_int_equal(open_files(), before);
}

/* A session that ends while a message with descriptors is half received. */
static void test_destroy_within(void **state)
{
    unsigned before = open_files();
    struct vw_vu_message message;
    struct pair pair;

    (void)state;
    vw_vu_request_u64(&message, VW_VU_SET_FEATURES, 1);
    open_pair(&pair);
    send_raw(pair.theirs, &message, 15, 8);
    assert_int_equal(receive(&pair), -EAGAIN);
    assert_int_equal(open_files(), before + 2 + 8);
    close_pair(&pair);
    assert_int_equal(open_files(), before);
}

/* Refused as soon as the header is there: no byte of the payload is waited for. */
static void test_bad_headers(void **state)
{
    static const struct vw_vu_header headers[] = {
        {VW_VU_SET_FEATURES, 1, 9},
        {VW_VU_SET_FEATURES, 1, UINT32_MAX},
        {VW_VU_SET_FEATURES, 0, 8},
        {VW_VU_SET_FEATURES, 2, 8},
        {VW_VU_SET_FEATURES, 1 | VW_VU_FLAG_REPLY, 8},
        {VW_VU_SET_MEM_TABLE, 1, 265},
        {12345, 1, VW_VU_MAX_PAYLOAD + 1},
        {12345, 1, UINT32_MAX - VW_VU_HEADER_SIZE + 1},
    };
    unsigned before = open_files();
    struct pair pair;

    (void)state;
    for (unsigned i = 0; i < VW_ARRAY_SIZE(headers); i++) {
        open_pair(&pair);
        send_raw(pair.theirs, &headers[i], sizeof(headers[i]), 1);
        expect_broken(&pair);
        close_pair(&pair);
    }
    open_pair(&pair);
    pair.receiver.replies = true;
    send_raw(pair.theirs, &(struct vw_vu_header){VW_VU_GET_FEATURES, 1, 8}, 12, 0);
    expect_broken(&pair);
    close_pair(&pair);
    assert_int_equal(open_files(), before);
}

static void test_send(void **state)
{
    static const int fds[9] = {2, 2, 2, 2, 2, 2, 2, 2, 2};
    unsigned before = open_files();
    struct vw_vu_message message;
    struct pair pair;

    (void)state;
    open_pair(&pair);
    vw_vu_request(&message, 999, VW_VU_MAX_PAYLOAD);
    memset(message.payload.bytes, 0xa5, VW_VU_MAX_PAYLOAD);
    for (unsigned count = 0; count <= 8; count++) {
        assert_int_equal(vw_socket_send(pair.theirs, &message, fds, count), 0);
        expect_message(&pair, &message, count);
    }
    assert_int_equal(vw_socket_send(pair.theirs, &message, fds, 9), -EINVAL);
    message.header.size = VW_VU_MAX_PAYLOAD + 1;
    assert_int_equal(vw_socket_send(pair.theirs, &message, NULL, 0), -EINVAL);
    assert_int_equal(receive(&pair), -EAGAIN);

    vw_vu_request(&message, VW_VU_SET_OWNER, 0);
    close(pair.theirs);
    pair.theirs = -1;
    assert_int_equal(vw_socket_send(pair.ours, &message, fds, 1), -EPIPE); /* and no SIGPIPE */
    close_pair(&pair);
    assert_int_equal(open_files(), before);
}

/* The rest follows, and the descriptors do not follow again. */
static void test_short_writes(void **state)
{
    static const int fds[2] = {STDERR_FILENO, STDERR_FILENO};
    unsigned before = open_files();
    struct vw_vu_message message;
    struct pair pair;

    (void)state;
    open_pair(&pair);
    vw_vu_request_u64(&message, VW_VU_SET_FEATURES, 0x1122334455667788);
    for (send_limit = 1; send_limit <= wire_length(&message); send_limit++) {
        assert_int_equal(vw_socket_send(pair.theirs, &message, fds, 2), 0);
        expect_message(&pair, &message, 2);
    }
    send_limit = SIZE_MAX;
    close_pair(&pair);
    assert_int_equal(open_files(), before);
}

/* A front-end that never reads its replies. */
static void test_send_gives_up(void **state)
{
    struct vw_vu_message message;
    struct pair pair;
    int result = 0;

    (void)state;
    open_pair(&pair);
    vw_vu_request(&message, 999, VW_VU_MAX_PAYLOAD);
    for (unsigned i = 0; i < 100000 && result == 0; i++)
        result = vw_socket_send_within(pair.ours, &message, NULL, 0, 20);
    assert_int_equal(result, -ETIMEDOUT);
    close_pair(&pair);
}

#define SLOW_MESSAGES 2000

static void *read_all(void *argument)
{
    struct pair *pair = argument;
    uintptr_t right = 0;

    for (unsigned i = 0; i < SLOW_MESSAGES; i++) {
        if (vw_socket_receive_wait(&pair->receiver, pair->ours, 30000) != 1)
            break;
        right += pair->receiver.message.payload.state.index == i &&
                 pair->receiver.message.payload.bytes[999] == (uint8_t)i &&
                 pair->receiver.fd_count == (i % 50 == 0);
    }
    return (void *)right;
}

/* The buffer is full again and again: nothing is lost, doubled or out of order. */
static void test_send_waits(void **state)
{
    unsigned before = open_files();
    struct vw_vu_message message;
    pthread_t reader;
    struct pair pair;
    void *right;

    (void)state;
    open_pair(&pair);
    setsockopt(pair.theirs, SOL_SOCKET, SO_SNDBUF, &(int){1}, sizeof(int));
    assert_int_equal(pthread_create(&reader, NULL, read_all, &pair), 0);
    for (unsigned i = 0; i < SLOW_MESSAGES; i++) {
        vw_vu_request(&message, 999, 1000);
        message.payload.state.index = i;
        message.payload.bytes[999] = (uint8_t)i;
        assert_int_equal(
            vw_socket_send_within(pair.theirs, &message, &(int){STDERR_FILENO}, i % 50 == 0, 30000),
            0);
    }
    assert_int_equal(pthread_join(reader, &right), 0);
    assert_int_equal((uintptr_t)right, SLOW_MESSAGES);
    close_pair(&pair);
    assert_int_equal(open_files(), before);
}

static void test_receive_wait(void **state)
{
    struct vw_vu_message message;
    struct pair pair;

    (void)state;
    open_pair(&pair);
    assert_int_equal(vw_socket_receive_wait(&pair.receiver, pair.ours, 0), -ETIMEDOUT);
    assert_int_equal(vw_socket_receive_wait(&pair.receiver, pair.ours, 5), -ETIMEDOUT);
    vw_vu_request_u64(&message, VW_VU_SET_FEATURES, 7);
    send_raw(pair.theirs, &message, 14, 0);
    assert_int_equal(vw_socket_receive_wait(&pair.receiver, pair.ours, 5), -ETIMEDOUT);
    send_raw(pair.theirs, (char *)&message + 14, 6, 0); /* an answer may still come */
    assert_int_equal(vw_socket_receive_wait(&pair.receiver, pair.ours, 0), 1);
    assert_int_equal(pair.receiver.message.payload.u64, 7);
    close(pair.theirs);
    pair.theirs = -1;
    assert_int_equal(vw_socket_receive_wait(&pair.receiver, pair.ours, 5), 0);
    close_pair(&pair);
}

struct place {
    char directory[64];
    char path[80];
    unsigned files;
};

static void open_place(struct place *place)
{
    place->files = open_files();
    strcpy(place->directory, "/tmp/vw-socket-XXXXXX");
    assert_non_null(mkdtemp(place->directory));
    snprintf(place->path, sizeof(place->path), "%s/s", place->directory);
}

/* The directory has to be empty again. */
static void close_place(struct place *place)
{
    assert_int_equal(rmdir(place->directory), 0);
    assert_int_equal(open_files(), place->files);
}

static void test_listen_and_connect(void **state)
{
    struct vw_socket_listener listener;
    struct vw_socket_peer peer;
    struct place place;
    int client, server;

    (void)state;
    open_place(&place);
    assert_int_equal(vw_socket_connect(place.path), -ENOENT);
    assert_int_equal(vw_socket_listen(&listener, place.path), 0);
    assert_int_equal(vw_socket_accept(&listener), -EAGAIN);
    client = vw_socket_connect(place.path);
    assert_true(client >= 0);
    server = vw_socket_accept(&listener);
    assert_true(server >= 0);
    assert_true(fcntl(server, F_GETFL) & O_NONBLOCK);
    assert_int_equal(fcntl(server, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fcntl(client, F_GETFD), FD_CLOEXEC);
    assert_int_equal(vw_socket_peer(server, &peer), 0);
    assert_int_equal(peer.pid, getpid());
    assert_int_equal(peer.uid, getuid());
    close(client);
    close(server);
    vw_socket_listener_close(&listener);
    vw_socket_listener_close(&listener); /* a second time does nothing */
    assert_int_equal(access(place.path, F_OK), -1);
    close_place(&place);
}

/* Leaves a socket file behind, as a process that was killed does. */
static void make_stale(const char *path, int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, type, 0);

    strcpy(address.sun_path, path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    close(fd);
}

static void test_stale_socket(void **state)
{
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM};
    struct place place;

    (void)state;
    open_place(&place);
    for (unsigned i = 0; i < VW_ARRAY_SIZE(types); i++) {
        struct vw_socket_listener listener;
        int client;

        make_stale(place.path, types[i]);
        assert_int_equal(vw_socket_listen(&listener, place.path), 0);
        client = vw_socket_connect(place.path);
        assert_true(client >= 0);
        close(client);
        vw_socket_listener_close(&listener);
    }
    close_place(&place);
}

static void test_live_socket(void **state)
{
    struct vw_socket_listener first, second;
    struct place place;
    struct stat before, after;

    (void)state;
    open_place(&place);
    assert_int_equal(vw_socket_listen(&first, place.path), 0);
    assert_int_equal(stat(place.path, &before), 0);
    assert_int_equal(vw_socket_listen(&second, place.path), -EADDRINUSE);
    assert_int_equal(second.fd, -1);
    vw_socket_listener_close(&second); /* does not take the first one's file away */
    assert_int_equal(stat(place.path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    vw_socket_listener_close(&first);
    close_place(&place);
}

/* Files that are no sockets are left alone, whatever the command line said. */
static void test_not_a_socket(void **state)
{
    struct vw_socket_listener listener;
    struct place place;
    char text[8] = "";
    FILE *file;

    (void)state;
    open_place(&place);
    file = fopen(place.path, "w");
    assert_non_null(file);
    fputs("mine", file);
    fclose(file);
    assert_int_equal(vw_socket_listen(&listener, place.path), -EEXIST);
    file = fopen(place.path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    fclose(file);
    assert_string_equal(text, "mine");
    unlink(place.path);

    assert_int_equal(symlink("/nowhere/at/all", place.path), 0);
    assert_int_equal(vw_socket_listen(&listener, place.path), -EEXIST);
    unlink(place.path);
    close_place(&place);
}

static void test_bad_paths(void **state)
{
    struct vw_socket_listener listener;
    char path[109];

    (void)state;
    memset(path, 'x', 108);
    path[108] = '\0';
    assert_int_equal(vw_socket_listen(&listener, path), -ENAMETOOLONG);
    assert_int_equal(vw_socket_connect(path), -ENAMETOOLONG);
    assert_int_equal(vw_socket_listen(&listener, ""), -EINVAL);
    assert_int_equal(vw_socket_connect(""), -EINVAL);
    assert_int_equal(vw_socket_listen(&listener, "/nowhere/at/all/s"), -ENOENT);
    vw_socket_listener_close(&listener);
}

/* Someone put another socket where ours was: it is not ours to unlink. */
static void test_replaced_socket(void **state)
{
    struct vw_socket_listener listener;
    struct place place;

    (void)state;
    open_place(&place);
    assert_int_equal(vw_socket_listen(&listener, place.path), 0);
    assert_int_equal(unlink(place.path), 0);
    make_stale(place.path, SOCK_STREAM);
    vw_socket_listener_close(&listener);
    assert_int_equal(access(place.path, F_OK), 0);
    unlink(place.path);
    close_place(&place);
}

/* Somebody holds a lock on the directory and never lets go: we start all the same. */
static void test_foreign_lock(void **state)
{
    struct vw_socket_listener listener;
    struct place place;
    int lock;

    (void)state;
    open_place(&place);
    lock = open(place.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    assert_int_equal(vw_socket_listen(&listener, place.path), 0);
    vw_socket_listener_close(&listener);
    close(lock);
    close_place(&place);
}

#define RACERS 8

/* Waits for the start, tells how listening went, and holds on to the name until the end. */
static void race(const char *path, const int start[2], const int results[2], const int end[2])
{
    struct vw_socket_listener listener;
    char byte;
    int result;

    close(start[1]);
    close(end[1]);
    if (read(start[0], &byte, 1) != 0)
        _exit(1);
    result = vw_socket_listen(&listener, path);
    byte = result == 0 ? 'w' : result == -EADDRINUSE ? 'l' : '?';
    if (write(results[1], &byte, 1) != 1 || read(end[0], &byte, 1) != 0)
        _exit(1);
    _exit(0);
}

/* Several processes start at once over a stale file: exactly one of them may get the name. */
static void test_race_for_stale(void **state)
{
    struct place place;

    (void)state;
    open_place(&place);
    for (unsigned round = 0; round < 20; round++) {
        int start[2], results[2], end[2], status;
        unsigned winners = 0, losers = 0;

        make_stale(place.path, SOCK_STREAM);
        assert_int_equal(pipe(start) | pipe(results) | pipe(end), 0);
        for (unsigned i = 0; i < RACERS; i++) {
            pid_t child = fork();

            assert_true(child >= 0);
            if (child == 0)
                race(place.path, start, results, end);
        }
        close(start[0]);
        close(start[1]);
        close(results[1]);
        for (unsigned i = 0; i < RACERS; i++) {
            char byte = 0;

            assert_int_equal(read(results[0], &byte, 1), 1);
            winners += byte == 'w';
            losers += byte == 'l';
        }
        close(results[0]);
        close(end[0]);
        close(end[1]);
        for (unsigned i = 0; i < RACERS; i++) {
            assert_true(wait(&status) > 0);
            assert_int_equal(status, 0);
        }
        assert_int_equal(winners, 1);
        assert_int_equal(losers, RACERS - 1);
        unlink(place.path);
    }
    close_place(&place);
}

static void test_adopt(void **state)
{
    struct vw_socket_listener listener, adopted;
    struct place place;
    int sockets[2], client, server;

    (void)state;
    open_place(&place);
    assert_int_equal(vw_socket_listen_adopt(&adopted, -1), -EINVAL);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    assert_int_equal(vw_socket_listen_adopt(&adopted, sockets[0]), -EINVAL);
    close(sockets[0]);
    close(sockets[1]);

    assert_int_equal(vw_socket_listen(&listener, place.path), 0);
    fcntl(listener.fd, F_SETFL, 0);
    assert_int_equal(vw_socket_listen_adopt(&adopted, dup(listener.fd)), 0);
    assert_int_equal(vw_socket_accept(&adopted), -EAGAIN);
    client = vw_socket_connect(place.path);
    server = vw_socket_accept(&adopted);
    assert_true(server >= 0);
    close(client);
    close(server);
    vw_socket_listener_close(&adopted);
    assert_int_equal(access(place.path, F_OK), 0); /* whoever made it unlinks it */
    vw_socket_listener_close(&listener);
    close_place(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_thousand),
        cmocka_unit_test(test_bytewise),
        cmocka_unit_test(test_two_in_one_write),
        cmocka_unit_test(test_descriptors_do_not_mix),
        cmocka_unit_test(test_too_many_descriptors),
        cmocka_unit_test(test_no_descriptors_left),
        cmocka_unit_test(test_descriptors_within),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_destroy_within),
        cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_send),
        cmocka_unit_test(test_short_writes),
        cmocka_unit_test(test_send_gives_up),
        cmocka_unit_test(test_send_waits),
        cmocka_unit_test(test_receive_wait),
        cmocka_unit_test(test_listen_and_connect),
        cmocka_unit_test(test_stale_socket),
        cmocka_unit_test(test_live_socket),
        cmocka_unit_test(test_not_a_socket),
        cmocka_unit_test(test_bad_paths),
        cmocka_unit_test(test_replaced_socket),
        cmocka_unit_test(test_foreign_lock),
        cmocka_unit_test(test_race_for_stale),
        cmocka_unit_test(test_adopt),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
