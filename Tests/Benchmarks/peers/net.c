#define _GNU_SOURCE
#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { scratch_size = 256 << 10, event_count = 512 };

static int poller;
static uint8_t *scratch;
struct options options = {
    .devices = 1000, .senders = 2, .in_flight = 1000, .payload = 256, .messages = 20, .handshakes = 256, .batch = 500,
    .duration = 5, .warmup = 1, .timeout = 120};

static int64_t read_clock(clockid_t clock) {
    struct timespec time;
    if (clock_gettime(clock, &time) != 0) return 0;
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int64_t now_ns(void) { return read_clock(CLOCK_MONOTONIC); }

int64_t own_cpu(void) { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

int64_t server_cpu(void) {
    clockid_t clock;
    if (options.pid <= 0 || clock_getcpuclockid(options.pid, &clock) != 0) return 0;
    return read_clock(clock);
}

void net_start(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    poller = epoll_create1(EPOLL_CLOEXEC);
    scratch = malloc(scratch_size);
    if (poller < 0 || !scratch) fail("no epoll or no memory");
}

void net_connect(struct connection *one, int index, int place) {
    int on = 1, no_port = 24;  // IP_BIND_ADDRESS_NO_PORT
    one->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (one->fd < 0) fail("socket: %s", strerror(errno));
    setsockopt(one->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(one->fd, IPPROTO_IP, no_port, &on, sizeof on);
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(0x7F020001u + (uint32_t)(place / 1000));
    if (bind(one->fd, (struct sockaddr *)&address, sizeof address) != 0) fail("bind: %s", strerror(errno));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)options.port);
    if (connect(one->fd, (struct sockaddr *)&address, sizeof address) != 0 && errno != EINPROGRESS)
        fail("connect: %s", strerror(errno));
    one->index = index;
    one->state = 0;
    one->started = now_ns();
    one->in_count = one->out_head = one->out_count = 0;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = one};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, one->fd, &event) != 0) fail("epoll: %s", strerror(errno));
}

void net_close(struct connection *one) {
    if (one->fd >= 0) close(one->fd);
    one->fd = -1;
    free(one->in);
    free(one->out);
    one->in = one->out = NULL;
    one->in_count = one->in_room = one->out_count = one->out_room = one->out_head = 0;
}

uint8_t *net_room(struct connection *one, size_t count) {
    if (one->out_head > 0 && one->out_head == one->out_count) one->out_head = one->out_count = 0;
    if (one->out_count + count > one->out_room) {
        if (one->out_head > 0) {
            memmove(one->out, one->out + one->out_head, one->out_count - one->out_head);
            one->out_count -= one->out_head;
            one->out_head = 0;
        }
        while (one->out_count + count > one->out_room) one->out_room = one->out_room ? one->out_room * 2 : 512;
        one->out = realloc(one->out, one->out_room);
        if (!one->out) fail("no memory");
    }
    return one->out + one->out_count;
}

void net_used(struct connection *one, size_t count) { one->out_count += count; }

void net_flush(struct connection *one) {
    while (one->fd >= 0 && one->out_head < one->out_count) {
        ssize_t sent = send(one->fd, one->out + one->out_head, one->out_count - one->out_head, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN) return;
            fail("send: %s", strerror(errno));
        }
        one->out_head += (size_t)sent;
    }
}

static void keep(struct connection *one, const uint8_t *bytes, size_t count) {
    if (count > one->in_room) {
        one->in_room = count * 2;
        free(one->in);
        one->in = malloc(one->in_room);
        if (!one->in) fail("no memory");
    }
    memcpy(one->in, bytes, count);
    one->in_count = count;
}

static void receive(struct connection *one, net_reader reader) {
    static uint8_t *large;
    static size_t large_room;
    for (;;) {
        ssize_t got = recv(one->fd, scratch, scratch_size, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) fail("the server closed a connection: %s", got < 0 ? strerror(errno) : "end of stream");
        const uint8_t *bytes = scratch;
        size_t count = (size_t)got;
        if (one->in_count > 0) {
            count += one->in_count;
            if (count > large_room) {
                large_room = count * 2;
                large = realloc(large, large_room);
                if (!large) fail("no memory");
            }
            memcpy(large, one->in, one->in_count);
            memcpy(large + one->in_count, scratch, (size_t)got);
            bytes = large;
        }
        one->in_count = 0;
        size_t used = reader(one, bytes, count);
        if (one->fd < 0) return;
        if (used < count) keep(one, bytes + used, count - used);
        if (got < scratch_size) return;
    }
}

void net_turn(int64_t nanoseconds, net_reader reader, net_opened opened) {
    struct epoll_event events[event_count];
    struct timespec wait = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
    int count = epoll_pwait2(poller, events, event_count, &wait, NULL);
    for (int index = 0; index < count; index++) {
        struct connection *one = events[index].data.ptr;
        if (one->fd < 0) continue;
        if (one->state == 0) {
            if (!(events[index].events & EPOLLOUT)) continue;
            int error = 0;
            socklen_t size = sizeof error;
            getsockopt(one->fd, SOL_SOCKET, SO_ERROR, &error, &size);
            if (error) fail("connect: %s", strerror(error));
            one->state = 1;
            opened(one);
        }
        if (events[index].events & EPOLLOUT) net_flush(one);
        if (one->fd >= 0 && events[index].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(one, reader);
    }
}

// Sixty-four steps per factor of two.
void histogram_add(struct histogram *to, int64_t value) {
    uint64_t v = value < 0 ? 0 : (uint64_t)value;
    int shift = v < 64 ? 0 : 63 - __builtin_clzll(v) - 6;
    to->counts[shift * 64 + (v >> shift)]++;
    to->count++;
    if (value > to->maximum) to->maximum = value;
}

int64_t histogram_percentile(const struct histogram *of, double percent) {
    uint64_t rank = (uint64_t)(percent / 100 * (double)of->count + 0.999999), seen = 0;
    if (rank < 1) rank = 1;
    for (int index = 0; index < 64 * 64; index++) {
        seen += of->counts[index];
        if (of->count && seen >= rank) {
            int shift = index < 128 ? 0 : index / 64 - 1;
            int64_t value = (((int64_t)(index - shift * 64) + 1) << shift) - 1;
            return value < of->maximum ? value : of->maximum;
        }
    }
    return of->maximum;
}

void fail(const char *format, ...) {
    va_list list;
    va_start(list, format);
    fputs("peer load: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    exit(1);
}

void parse_options(int count, char **words) {
    struct {
        const char *name;
        int *number;
        double *seconds;
    } known[] = {
        {"--port", &options.port, NULL},
        {"--devices", &options.devices, NULL},
        {"--senders", &options.senders, NULL},
        {"--in-flight", &options.in_flight, NULL},
        {"--payload", &options.payload, NULL},
        {"--messages", &options.messages, NULL},
        {"--handshakes", &options.handshakes, NULL},
        {"--batch", &options.batch, NULL},
        {"--server-pid", &options.pid, NULL},
        {"--duration", NULL, &options.duration},
        {"--warmup", NULL, &options.warmup},
        {"--timeout", NULL, &options.timeout},
        {"--rate", NULL, &options.rate},
    };
    for (int index = 0; index < count; index += 2) {
        size_t place = 0;
        while (place < sizeof known / sizeof *known && strcmp(known[place].name, words[index]) != 0) place++;
        if (place == sizeof known / sizeof *known || index + 1 == count) fail("what is %s?", words[index]);
        if (known[place].number) *known[place].number = atoi(words[index + 1]);
        else *known[place].seconds = atof(words[index + 1]);
    }
    if (options.port <= 0 || options.payload < 16 || options.senders < 1 || options.devices < 1)
        fail("--port, and sensible numbers, are needed");
}
