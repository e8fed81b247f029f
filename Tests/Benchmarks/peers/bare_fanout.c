// The machine's limit for a broadcast: two threads that write the same frame to each connection and read the acks.
//
//     bare_fanout DEVICE_PORT HTTP_PORT
//
// It supports only the parts of Longwire's protocol and of HTTP that `longwire bench broadcast` needs. It authenticates no
// device, stores nothing, and counts acks without their content. Each thread has its own listener on the device port, its own
// epoll and its own connections. A thread sends to a group of connections, reads the available input, and sends to the next
// group.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HELLO = 1, WELCOME = 2, CLOSE = 3, PING = 4, PONG = 5, DELIVER = 6, ACK = 7 };
enum { thread_count = 2, event_count = 512, scratch_size = 64 << 10, frame_size = 32 << 10, frame_count = 64, group_size = 64 };

enum kind { of_devices, of_device, of_callers, of_caller, of_wakes };

struct connection {
    int fd;
    enum kind kind;
    int is_gone, is_listed;
    size_t place;  // in its thread's list, for a device that was welcomed
    uint8_t *in, *out;
    size_t in_count, out_head, out_count, out_room;
};

struct worker {
    int poller, wakes;
    struct connection **list;
    size_t count, room;
    uint64_t sent;  // the number of broadcasts that this thread has sent
    uint64_t acks;
    uint8_t scratch[scratch_size];
};

// A caller waits for the last delivery before its next call, so a frame is not overwritten while a thread still sends it.
static struct { uint8_t bytes[frame_size]; size_t count; } frames[frame_count];
static _Atomic uint64_t broadcasts, registered;
static struct worker workers[thread_count];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static struct connection *watch(struct worker *worker, int fd, enum kind kind) {
    struct connection *one = calloc(1, sizeof *one);
    if (!one) fail("calloc");
    one->fd = fd;
    one->kind = kind;
    int is_stream = kind == of_device || kind == of_caller;
    struct epoll_event event = {.events = is_stream ? EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET : EPOLLIN, .data.ptr = one};
    if (epoll_ctl(worker->poller, EPOLL_CTL_ADD, fd, &event) != 0) fail("epoll_ctl");
    return one;
}

static void listen_on(struct worker *worker, int port, enum kind kind) {
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 4096) != 0) fail("listen");
    watch(worker, fd, kind);
}

static void enlist(struct worker *worker, struct connection *one) {
    if (worker->count == worker->room) {
        worker->room = worker->room ? worker->room * 2 : 1024;
        worker->list = realloc(worker->list, worker->room * sizeof *worker->list);
        if (!worker->list) fail("realloc");
    }
    one->place = worker->count;
    one->is_listed = 1;
    worker->list[worker->count++] = one;
}

/// Ends a connection; `turn` frees its memory once no event of the turn refers to it.
static void leave(struct worker *worker, struct connection *one) {
    if (one->is_gone) return;
    one->is_gone = 1;
    close(one->fd);
    if (!one->is_listed) return;
    struct connection *last = worker->list[--worker->count];
    worker->list[one->place] = last;
    last->place = one->place;
    one->is_listed = 0;
}

/// Sends, and buffers the bytes that the socket does not accept.
static void put(struct worker *worker, struct connection *one, const uint8_t *bytes, size_t count) {
    if (one->out_count == 0) {
        ssize_t sent = send(one->fd, bytes, count, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) return leave(worker, one);
        if (sent == (ssize_t)count) return;
        bytes += sent > 0 ? sent : 0;
        count -= sent > 0 ? (size_t)sent : 0;
    }
    if (one->out_head > 0) memmove(one->out, one->out + one->out_head, one->out_count);
    one->out_head = 0;
    if (one->out_count + count > one->out_room) {
        one->out_room = (one->out_count + count) * 2;
        one->out = realloc(one->out, one->out_room);
        if (!one->out) fail("realloc");
    }
    memcpy(one->out + one->out_count, bytes, count);
    one->out_count += count;
}

static void flush(struct worker *worker, struct connection *one) {
    while (one->out_count > 0) {
        ssize_t sent = send(one->fd, one->out + one->out_head, one->out_count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) return;
        if (sent < 0) return leave(worker, one);
        one->out_head += (size_t)sent;
        one->out_count -= (size_t)sent;
    }
}

static uint8_t *put_varint(uint8_t *at, uint64_t value) {
    while (value > 127) *at++ = (uint8_t)(value | 128), value >>= 7;
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *put_bytes(uint8_t *at, int field, const void *bytes, size_t count) {
    at = put_varint(at, (uint64_t)field << 3 | 2);
    at = put_varint(at, count);
    memcpy(at, bytes, count);
    return at + count;
}

/// Writes the header before a body that ends at `end`; returns the frame's size.
static size_t seal(uint8_t *frame, int type, const uint8_t *end) {
    size_t count = (size_t)(end - frame) - 4;
    frame[0] = (uint8_t)type, frame[1] = (uint8_t)(count >> 16), frame[2] = (uint8_t)(count >> 8), frame[3] = (uint8_t)count;
    return count + 4;
}

/// Returns the value of a number field of a body; 0 if it is missing.
static uint64_t number(const uint8_t *at, const uint8_t *end, uint64_t wanted) {
    while (at < end) {
        uint64_t words[2] = {0, 0};
        for (int index = 0; index < 2; index++) {
            for (int shift = 0;; shift += 7) {
                if (at >= end || shift > 63) return 0;
                words[index] |= (uint64_t)(*at & 127) << shift;
                if (*at++ < 128) break;
            }
        }
        if ((words[0] & 7) == 0 && words[0] >> 3 == wanted) return words[1];
        if ((words[0] & 7) == 2) {
            if (words[1] > (uint64_t)(end - at)) return 0;
            at += words[1];
        }
    }
    return 0;
}

static void hello(struct worker *worker, struct connection *one, const uint8_t *at, const uint8_t *end) {
    uint8_t frame[128], cid[16] = {0xFA}, secret[32] = {1};
    uint8_t *to = put_varint(put_varint(frame + 4, 3 << 3), 300);
    if (number(at, end, 4)) {
        uint64_t device = atomic_fetch_add(&registered, 1) + 1;
        for (int index = 0; index < 8; index++) cid[15 - index] = (uint8_t)(device >> 8 * index);
        to = put_bytes(to, 8, cid, sizeof cid);
        to = put_bytes(to, 9, secret, sizeof secret);
    }
    put(worker, one, frame, seal(frame, WELCOME, to));
    if (!one->is_listed && !one->is_gone) enlist(worker, one);
}

static size_t read_frames(struct worker *worker, struct connection *one, const uint8_t *bytes, size_t count) {
    size_t used = 0;
    while (count - used >= 4 && !one->is_gone) {
        const uint8_t *frame = bytes + used;
        size_t body = (size_t)frame[1] << 16 | (size_t)frame[2] << 8 | frame[3];
        if (count - used < body + 4) break;
        used += body + 4;
        if (frame[0] == ACK) worker->acks++;
        else if (frame[0] == HELLO) hello(worker, one, frame + 4, frame + 4 + body);
        else if (frame[0] == CLOSE) leave(worker, one);
        else if (frame[0] == PING && body <= 64) {
            uint8_t answer[68];
            memcpy(answer, frame, body + 4);
            answer[0] = PONG;
            put(worker, one, answer, body + 4);
        }
    }
    return used;
}

/// Creates the frame of a call's body and notifies the threads.
static int broadcast(const char *body, const char *end) {
    static const char key[] = "\"transmission\":\"";
    const char *text = memmem(body, (size_t)(end - body), key, sizeof key - 1);
    if (!text) return 0;
    text += sizeof key - 1;
    static uint8_t payload[frame_size / 2];
    size_t count = 0;
    for (; text < end && *text != '"' && count < sizeof payload; text++) {
        if (*text == '\\' && text + 1 < end) text++;
        payload[count++] = (uint8_t)*text;
    }
    uint64_t sequence = atomic_load(&broadcasts) + 1;
    uint8_t *frame = frames[sequence % frame_count].bytes, message[16] = {1}, task[16] = {2};
    uint8_t *to = put_varint(put_varint(frame + 4, 1 << 3), 1);
    to = put_varint(put_varint(to, 2 << 3), sequence);
    to = put_bytes(to, 3, message, sizeof message);
    to = put_bytes(to, 4, task, sizeof task);
    to = put_bytes(to, 5, payload, count);
    to = put_varint(put_varint(to, 7 << 3), 1800000000000);
    to = put_varint(put_varint(to, 9 << 3), 1);
    frames[sequence % frame_count].count = seal(frame, DELIVER, to);
    atomic_store(&broadcasts, sequence);
    uint64_t one = 1;
    for (int index = 0; index < thread_count; index++)
        if (write(workers[index].wakes, &one, sizeof one) != sizeof one) fail("eventfd");
    return 1;
}

static size_t read_calls(struct worker *worker, struct connection *one, const uint8_t *bytes, size_t count) {
    size_t used = 0;
    while (!one->is_gone) {
        const char *head = (const char *)bytes + used;
        const char *blank = memmem(head, count - used, "\r\n\r\n", 4);
        if (!blank) break;
        const char *length = memmem(head, (size_t)(blank - head), "Content-Length: ", 16);
        size_t body = length ? strtoul(length + 16, NULL, 10) : 0, size = (size_t)(blank + 4 - head) + body;
        if (count - used < size) break;
        used += size;
        const char *answer = "{\"code\":0,\"msg\":\"success\",\"data\":{}}";
        if (memmem(head, (size_t)(blank - head), "/auth ", 6))
            answer = "{\"code\":0,\"msg\":\"success\",\"data\":{\"expire_time\":\"1\",\"token\":\"fanout\"}}";
        else if (!broadcast(blank + 4, head + size))
            answer = "{\"code\":20001,\"msg\":\"no transmission\"}";
        char text[512];
        int length_out = snprintf(
            text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
            strlen(answer), answer);
        put(worker, one, (const uint8_t *)text, (size_t)length_out);
    }
    return used;
}

static void readable(struct worker *worker, struct connection *one) {
    while (!one->is_gone) {
        size_t kept = one->in_count;
        if (kept > 0) {
            memcpy(worker->scratch, one->in, kept);
            free(one->in);
            one->in = NULL, one->in_count = 0;
        }
        ssize_t count = recv(one->fd, worker->scratch + kept, scratch_size - kept, 0);
        if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return leave(worker, one);
        size_t all = kept + (count > 0 ? (size_t)count : 0), used = 0;
        if (count > 0) used = (one->kind == of_caller ? read_calls : read_frames)(worker, one, worker->scratch, all);
        if (all > used) {
            one->in = malloc(all - used);
            if (!one->in) fail("malloc");
            memcpy(one->in, worker->scratch + used, all - used);
            one->in_count = all - used;
        }
        if (count < 0 || (size_t)count < scratch_size - kept) return;
    }
}

static void take_connections(struct worker *worker, struct connection *listener) {
    int fd, on = 1;
    while ((fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        watch(worker, fd, listener->kind == of_devices ? of_device : of_caller);
    }
}

static void turn(struct worker *worker, int milliseconds) {
    struct epoll_event events[event_count];
    struct connection *gone[event_count];
    int gone_count = 0;
    int ready = epoll_wait(worker->poller, events, event_count, milliseconds);
    for (int index = 0; index < ready; index++) {
        struct connection *one = events[index].data.ptr;
        if (one->kind == of_wakes) {
            uint64_t count;
            if (read(one->fd, &count, sizeof count) < 0 && errno != EAGAIN) fail("eventfd");
        } else if (one->kind == of_devices || one->kind == of_callers) {
            take_connections(worker, one);
        } else {
            if (!one->is_gone && events[index].events & EPOLLOUT) flush(worker, one);
            if (!one->is_gone && events[index].events & ~(uint32_t)EPOLLOUT) readable(worker, one);
            if (one->is_gone) gone[gone_count++] = one;
        }
    }
    for (int index = 0; index < gone_count; index++) {
        free(gone[index]->in);
        free(gone[index]->out);
        free(gone[index]);
    }
}

static void fan_out(struct worker *worker) {
    worker->sent++;
    const uint8_t *bytes = frames[worker->sent % frame_count].bytes;
    size_t count = frames[worker->sent % frame_count].count;
    // A connection that ends during the loop may skip its neighbor in the list once. A bench's devices stay connected.
    for (size_t place = 0; place < worker->count; place++) {
        put(worker, worker->list[place], bytes, count);
        if (place % group_size == group_size - 1) turn(worker, 0);
    }
}

static void *work(void *given) {
    struct worker *worker = given;
    for (;;) {
        turn(worker, worker->sent < atomic_load(&broadcasts) ? 0 : -1);
        if (worker->sent < atomic_load(&broadcasts)) fan_out(worker);
    }
    return NULL;
}

int main(int count, char **words) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (count != 3) {
        fprintf(stderr, "usage: bare_fanout DEVICE_PORT HTTP_PORT\n");
        return 64;
    }
    for (int index = 0; index < thread_count; index++) {
        struct worker *worker = workers + index;
        worker->poller = epoll_create1(EPOLL_CLOEXEC);
        worker->wakes = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (worker->poller < 0 || worker->wakes < 0) fail("epoll or eventfd");
        watch(worker, worker->wakes, of_wakes);
        listen_on(worker, atoi(words[1]), of_devices);
        if (index == 0) listen_on(worker, atoi(words[2]), of_callers);
    }
    pthread_t threads[thread_count];
    for (int index = 1; index < thread_count; index++)
        if (pthread_create(threads + index, NULL, work, workers + index) != 0) fail("pthread_create");
    work(workers);
}
