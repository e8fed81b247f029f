// The shared code of both drivers: non-blocking connections on one epoll, clocks, a histogram, arguments, and JSON.
#ifndef PEERS_NET_H
#define PEERS_NET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct options {
    int port, devices, senders, in_flight, payload, messages, handshakes, batch, pid;
    double duration, warmup, timeout, rate;
};

struct connection {
    int fd, index, state;
    uint8_t *in, *out;
    size_t in_count, in_room, out_head, out_count, out_room;
    int64_t started;
};

struct histogram {
    uint64_t counts[64 * 64];
    uint64_t count;
    int64_t maximum;
};

extern struct options options;

int64_t now_ns(void);
int64_t server_cpu(void);
int64_t own_cpu(void);

void net_start(void);
/// Connects to the server from one of many loopback addresses: a thousand connections from each.
void net_connect(struct connection *one, int index, int place);
void net_close(struct connection *one);
/// Returns room for `count` more bytes after the pending output; `net_used` commits the used bytes.
uint8_t *net_room(struct connection *one, size_t count);
void net_used(struct connection *one, size_t count);
void net_flush(struct connection *one);
/// Waits for readiness once and runs callbacks; a reader gets the bytes at the front of `in` and returns how many it used.
typedef size_t (*net_reader)(struct connection *one, const uint8_t *bytes, size_t count);
typedef void (*net_opened)(struct connection *one);
void net_turn(int64_t nanoseconds, net_reader reader, net_opened opened);

void histogram_add(struct histogram *to, int64_t value);
int64_t histogram_percentile(const struct histogram *of, double percent);

void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void parse_options(int count, char **words);

#endif
