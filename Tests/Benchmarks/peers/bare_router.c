// The machine's limit for live messages: a single-threaded router with only the parts of Longwire's protocol that `longwire
// bench` needs. It authenticates no device, stores nothing, keeps no message for disconnected devices, and ignores acks. Durable
// delivery always costs more.
//
//     bare_router DEVICE_PORT SENDERS_PORT
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HELLO = 1, WELCOME = 2, CLOSE = 3, PING = 4, PONG = 5, DELIVER = 6, PUBLISH = 14, PUBLISH_RESULT = 15 };
enum { event_count = 512, scratch_size = 256 << 10, most_devices = 2 << 20 };

struct connection {
    int fd;
    uint8_t is_listener, is_dirty, is_blocked, is_gone;
    uint64_t device, sequence;
    uint8_t *in, *out;
    size_t in_count, out_head, out_count, out_room;
};

static int poller;
static uint8_t scratch[scratch_size];
static struct connection *sessions[most_devices];
static uint64_t device_count;
static struct connection **dirty;
static size_t dirty_count, dirty_room;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static struct connection *watch(int fd, int is_listener) {
    struct connection *one = calloc(1, sizeof *one);
    if (!one) fail("calloc");
    one->fd = fd;
    one->is_listener = is_listener;
    struct epoll_event event = {.events = is_listener ? EPOLLIN : EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = one};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) != 0) fail("epoll_ctl");
    return one;
}

static void listen_on(int port) {
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 4096) != 0) fail("listen");
    watch(fd, 1);
}

static void mark(struct connection *one) {
    if (one->is_dirty) return;
    one->is_dirty = 1;
    if (dirty_count == dirty_room) {
        dirty_room = dirty_room ? dirty_room * 2 : 1024;
        dirty = realloc(dirty, dirty_room * sizeof *dirty);
        if (!dirty) fail("realloc");
    }
    dirty[dirty_count++] = one;
}

/// Returns room for a frame's header and `count` bytes of body; `sent` receives the end of the body.
static uint8_t *room(struct connection *one, size_t count) {
    if (one->out_head + one->out_count + count + 4 > one->out_room) {
        if (one->out_head > 0) memmove(one->out, one->out + one->out_head, one->out_count);
        one->out_head = 0;
        while (one->out_count + count + 4 > one->out_room) one->out_room = one->out_room ? one->out_room * 2 : 512;
        one->out = realloc(one->out, one->out_room);
        if (!one->out) fail("realloc");
    }
    return one->out + one->out_head + one->out_count + 4;
}

static void sent(struct connection *one, int type, const uint8_t *end) {
    uint8_t *start = one->out + one->out_head + one->out_count;
    size_t count = (size_t)(end - start) - 4;
    start[0] = (uint8_t)type, start[1] = (uint8_t)(count >> 16), start[2] = (uint8_t)(count >> 8), start[3] = (uint8_t)count;
    one->out_count += count + 4;
    mark(one);
}

static uint8_t *put_varint(uint8_t *at, uint64_t value) {
    while (value > 127) *at++ = (uint8_t)(value | 128), value >>= 7;
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *put_bytes(uint8_t *at, int field, const uint8_t *bytes, size_t count) {
    at = put_varint(at, (uint64_t)field << 3 | 2);
    at = put_varint(at, count);
    memcpy(at, bytes, count);
    return at + count;
}

/// Returns the next field of a body: its number, its value or its bytes; 0 at the end or at an invalid field.
struct field { int number; uint64_t value; const uint8_t *bytes; };

static int next(const uint8_t **at, const uint8_t *end, struct field *field) {
    uint64_t words[2] = {0, 0};
    for (int index = 0; index < 2; index++) {
        for (int shift = 0;; shift += 7) {
            if (*at >= end || shift > 63) return 0;
            words[index] |= (uint64_t)(**at & 127) << shift;
            if (*(*at)++ < 128) break;
        }
    }
    field->number = (int)(words[0] >> 3), field->value = words[1], field->bytes = *at;
    if ((words[0] & 7) == 0) return 1;
    if ((words[0] & 7) != 2 || words[1] > (uint64_t)(end - *at)) return 0;
    *at += words[1];
    return 1;
}

static uint64_t number_of(const uint8_t *cid) {
    uint64_t number = 0;
    for (int index = 8; index < 16; index++) number = number << 8 | cid[index];
    return number;
}

static void hello(struct connection *one, const uint8_t *at, const uint8_t *end) {
    struct field field;
    uint64_t device = 0, is_sender = 0, is_registration = 0;
    if (one->device) return;
    while (next(&at, end, &field)) {
        if (field.number == 2) is_sender = field.value;
        if (field.number == 3 && field.value == 16) device = number_of(field.bytes);
        if (field.number == 4) is_registration = field.value;
    }
    uint8_t cid[16] = {0xBE}, secret[32] = {1};
    uint8_t *to = room(one, 128);
    to = put_varint(put_varint(to, 3 << 3), 300);
    if (is_registration) {
        device = ++device_count;
        for (int index = 0; index < 8; index++) cid[15 - index] = (uint8_t)(device >> 8 * index);
        to = put_bytes(to, 8, cid, sizeof cid);
        to = put_bytes(to, 9, secret, sizeof secret);
    }
    sent(one, WELCOME, to);
    if (is_sender || device == 0 || device >= most_devices) return;
    one->device = device;
    sessions[device] = one;
}

static void publish(struct connection *from, const uint8_t *at, const uint8_t *end) {
    struct field field;
    const uint8_t *payload = NULL, *cid = NULL;
    size_t count = 0;
    uint64_t request = 0;
    while (next(&at, end, &field)) {
        if (field.number == 1) request = field.value;
        if (field.number == 2 && field.value == 16) cid = field.bytes;
        if (field.number == 3) payload = field.bytes, count = field.value;
    }
    uint8_t *to = room(from, 32);
    sent(from, PUBLISH_RESULT, put_varint(put_varint(to, 1 << 3), request));
    uint64_t device = cid ? number_of(cid) : 0;
    struct connection *one = device < most_devices ? sessions[device] : NULL;
    if (!one) return;
    uint8_t message[16] = {1};
    to = room(one, count + 64);
    to = put_varint(put_varint(to, 2 << 3), ++one->sequence);
    to = put_bytes(to, 3, message, sizeof message);
    to = put_bytes(to, 5, payload, count);
    to = put_varint(put_varint(to, 9 << 3), 1);
    sent(one, DELIVER, to);
}

static void leave(struct connection *one) {
    if (one->is_gone) return;
    one->is_gone = 1;
    if (one->device && sessions[one->device] == one) sessions[one->device] = NULL;
    close(one->fd);
    mark(one);  // its memory is freed at the end of the turn, because the list may contain it
}

static size_t take(struct connection *one, const uint8_t *bytes, size_t count) {
    size_t used = 0;
    while (count - used >= 4 && !one->is_gone) {
        const uint8_t *frame = bytes + used;
        size_t body = (size_t)frame[1] << 16 | (size_t)frame[2] << 8 | frame[3];
        if (count - used < body + 4) break;
        used += body + 4;
        const uint8_t *at = frame + 4, *end = at + body;
        if (frame[0] == PUBLISH) publish(one, at, end);
        else if (frame[0] == HELLO) hello(one, at, end);
        else if (frame[0] == CLOSE) leave(one);
        else if (frame[0] == PING) {
            uint8_t *to = room(one, body);
            memcpy(to, at, body);
            sent(one, PONG, to + body);
        }
    }
    return used;
}

static void readable(struct connection *one) {
    while (!one->is_gone) {
        size_t kept = one->in_count;
        if (kept > 0) {
            memcpy(scratch, one->in, kept);
            free(one->in);
            one->in = NULL, one->in_count = 0;
        }
        ssize_t count = recv(one->fd, scratch + kept, sizeof scratch - kept, 0);
        if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return leave(one);
        size_t all = kept + (count > 0 ? (size_t)count : 0);
        size_t used = count > 0 ? take(one, scratch, all) : 0;
        if (all > used) {
            one->in = malloc(all - used);
            if (!one->in) fail("malloc");
            memcpy(one->in, scratch + used, all - used);
            one->in_count = all - used;
        }
        if (count < 0 || (size_t)count < sizeof scratch - kept) return;
    }
}

static void flush(struct connection *one) {
    while (one->out_count > 0 && !one->is_blocked) {
        ssize_t count = send(one->fd, one->out + one->out_head, one->out_count, MSG_NOSIGNAL);
        if (count < 0 && errno == EAGAIN) one->is_blocked = 1;
        else if (count < 0) return leave(one);
        else one->out_head += (size_t)count, one->out_count -= (size_t)count;
    }
    if (one->out_count == 0) one->out_head = 0;
}

int main(int count, char **words) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (count != 3) {
        fprintf(stderr, "usage: bare_router DEVICE_PORT SENDERS_PORT\n");
        return 64;
    }
    poller = epoll_create1(EPOLL_CLOEXEC);
    listen_on(atoi(words[1]));
    listen_on(atoi(words[2]));
    struct epoll_event events[event_count];
    while (1) {
        int ready = epoll_wait(poller, events, event_count, -1);
        for (int index = 0; index < ready; index++) {
            struct connection *one = events[index].data.ptr;
            if (one->is_listener) {
                int fd, on = 1;
                while ((fd = accept4(one->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                    watch(fd, 0);
                }
                continue;
            }
            if (events[index].events & EPOLLOUT && one->is_blocked) one->is_blocked = 0, mark(one);
            if (events[index].events & ~(uint32_t)EPOLLOUT) readable(one);
        }
        for (size_t index = 0; index < dirty_count; index++) {
            struct connection *one = dirty[index];
            if (!one->is_gone) flush(one);
            if (one->is_gone) {
                free(one->in), free(one->out), free(one);
                continue;
            }
            one->is_dirty = 0;
        }
        dirty_count = 0;
    }
}
