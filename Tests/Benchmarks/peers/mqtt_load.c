// Loads an MQTT 3.1.1 broker as `longwire bench` loads a gateway: persistent sessions, QoS 1, one topic a device.
//
//   mqtt_load live   …  publish → deliver → ack among connected devices, with a fixed number unfinished
//   mqtt_load absent …  enqueue for absent sessions, then all reconnect at once and drain
#include "net.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { subscribing = 2, ready = 3, ring_size = 1 << 22 };
enum { is_acked = 1, is_delivered = 2, is_measured = 4 };

static struct connection *devices, *senders;
static struct histogram delivers;
static int64_t *due;
static uint8_t *flags;
static uint64_t (*numbers)[65536];
static uint16_t *last_id;
static uint64_t published, accepted, delivered, repeated, measured_delivered;
static int outstanding, connected, under_way;
static bool measuring, waits_for_delivery, subscribes;
static int64_t hello_end, drain_end;
static uint64_t seed = 0x9E3779B97F4A7C15u;

static uint64_t next_random(void) {
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return seed * 0x2545F4914F6CDD1Du;
}

static int random_device(void) { return (int)(((next_random() >> 32) * (uint64_t)options.devices) >> 32); }

static bool is_sender(const struct connection *one) { return one >= senders && one < senders + options.senders; }

static void say_hello(struct connection *one) {
    char name[32];
    int length = snprintf(name, sizeof name, "%c%06d", is_sender(one) ? 's' : 'd', one->index);
    uint8_t *at = net_room(one, 64);
    uint8_t head[] = {0x10, (uint8_t)(12 + length), 0, 4, 'M', 'Q', 'T', 'T', 4,
                      is_sender(one) ? 2 : 0, 0x07, 0x08, 0, (uint8_t)length};
    memcpy(at, head, sizeof head);
    memcpy(at + sizeof head, name, (size_t)length);
    net_used(one, sizeof head + (size_t)length);
    net_flush(one);
}

static void subscribe(struct connection *one) {
    char topic[32];
    int length = snprintf(topic, sizeof topic, "d/%06d", one->index);
    uint8_t *at = net_room(one, 64);
    uint8_t head[] = {0x82, (uint8_t)(5 + length), 0, 1, 0, (uint8_t)length};
    memcpy(at, head, sizeof head);
    memcpy(at + sizeof head, topic, (size_t)length);
    at[sizeof head + (size_t)length] = 1;
    net_used(one, sizeof head + (size_t)length + 1);
    net_flush(one);
}

static void opened(struct connection *one) { say_hello(one); }

static void finish(uint64_t number) {
    uint8_t wanted = waits_for_delivery ? is_acked | is_delivered : is_acked;
    if ((flags[number % ring_size] & wanted) == wanted) outstanding--;
}

static void is_ready(struct connection *one) {
    one->state = ready;
    under_way--;
    connected++;
    hello_end = now_ns();
}

static size_t read_packets(struct connection *one, const uint8_t *bytes, size_t count) {
    size_t offset = 0, acks = 0;
    int64_t now = now_ns();
    while (count - offset >= 2) {
        size_t length = 0, place = offset + 1;
        int shift = 0;
        bool whole = false;
        while (place < count && shift < 28) {
            length |= (size_t)(bytes[place] & 0x7F) << shift;
            shift += 7;
            if (bytes[place++] < 0x80) {
                whole = true;
                break;
            }
        }
        if (!whole || place + length > count) break;
        const uint8_t *body = bytes + place;
        offset = place + length;
        uint8_t type = bytes[place - 1 - (size_t)(shift / 7)] >> 4;
        if (type == 2) {
            if (length < 2 || body[1] != 0) fail("the broker refused a connection");
            if (is_sender(one) || !subscribes) is_ready(one);
            else {
                one->state = subscribing;
                subscribe(one);
            }
        } else if (type == 9) {
            is_ready(one);
        } else if (type == 4 && is_sender(one)) {
            uint64_t number = numbers[one - senders][body[0] << 8 | body[1]];
            uint8_t *flag = flags + number % ring_size;
            if (*flag & is_acked) continue;
            *flag |= is_acked;
            accepted++;
            finish(number);
        } else if (type == 3) {
            size_t topic = (size_t)(body[0] << 8 | body[1]);
            if (length < topic + 4 + 16) fail("a short message");
            uint64_t number;
            memcpy(&number, body + topic + 4, 8);
            uint8_t *at = net_room(one, 4);
            uint8_t ack[] = {0x40, 2, body[topic + 2], body[topic + 3]};
            memcpy(at, ack, 4);
            net_used(one, 4);
            acks++;
            if (number >= published) continue;
            uint8_t *flag = flags + number % ring_size;
            if (*flag & is_delivered) {
                repeated++;
                continue;
            }
            *flag |= is_delivered;
            delivered++;
            drain_end = now;
            if (measuring) measured_delivered++;
            if (*flag & is_measured) histogram_add(&delivers, now - due[number % ring_size]);
            if (waits_for_delivery) finish(number);
        }
    }
    if (acks) net_flush(one);
    return offset;
}

static void publish(int device, int64_t now) {
    static int turn;
    int sender = turn++ % options.senders;
    uint64_t number = published++;
    uint16_t id = ++last_id[sender] ? last_id[sender] : ++last_id[sender];
    numbers[sender][id] = number;
    due[number % ring_size] = now;
    flags[number % ring_size] = measuring ? is_measured : 0;
    size_t length = 2 + 8 + 2 + (size_t)options.payload;
    uint8_t *at = net_room(senders + sender, length + 8), *start = at;
    *at++ = 0x32;
    for (size_t rest = length; ; rest >>= 7) {
        *at++ = (uint8_t)((rest & 0x7F) | (rest > 0x7F ? 0x80 : 0));
        if (rest <= 0x7F) break;
    }
    *at++ = 0;
    *at++ = 8;
    *at++ = 'd';
    *at++ = '/';
    for (int digit = 100000; digit > 0; digit /= 10) *at++ = (uint8_t)('0' + device / digit % 10);
    *at++ = (uint8_t)(id >> 8);
    *at++ = (uint8_t)id;
    memset(at, 'x', (size_t)options.payload);
    memcpy(at, &number, 8);
    at += options.payload;
    net_used(senders + sender, (size_t)(at - start));
    outstanding++;
}

static void flush_senders(void) {
    for (int index = 0; index < options.senders; index++) net_flush(senders + index);
}

static void check_time(int64_t start) {
    if (now_ns() - start > (int64_t)(options.timeout * 1e9)) fail("not done within %.0f s", options.timeout);
}

/// Opens all connections, a bounded number at a time, and waits until the last is ready.
static void connect_all(struct connection *list, int count, int place) {
    int64_t start = now_ns();
    connected = under_way = 0;
    for (int next = 0; connected < count;) {
        while (next < count && under_way < options.handshakes) {
            net_connect(list + next, next, place + next);
            under_way++;
            next++;
        }
        net_turn(10000000, read_packets, opened);
        check_time(start);
    }
}

static void leave_all(void) {
    for (int index = 0; index < options.devices; index++) {
        memcpy(net_room(devices + index, 2), "\xE0\x00", 2);
        net_used(devices + index, 2);
        net_flush(devices + index);
        net_close(devices + index);
    }
}

static void live(void) {
    waits_for_delivery = subscribes = true;
    connect_all(devices, options.devices, 0);
    connect_all(senders, options.senders, 900000);
    int64_t start = now_ns(), from = start + (int64_t)(options.warmup * 1e9);
    int64_t end = from + (int64_t)(options.duration * 1e9), began = from;
    int64_t server = 0, own = 0;
    double paced = 0;
    for (int64_t now = start; now < end; now = now_ns()) {
        if (!measuring && now >= from) {
            measuring = true;
            began = now;
            server = server_cpu();
            own = own_cpu();
        }
        int64_t wait = 5000000;
        if (options.rate > 0) {
            // Messages are due together in ticks of 250 µs, and each counts from its due time, as in longwire bench.
            int64_t at;
            while ((at = start + ((int64_t)(paced * 1e9 / options.rate) + 249999) / 250000 * 250000) <= now) {
                publish(random_device(), at);
                paced++;
            }
            int64_t left = at - now_ns();
            wait = left > 0 ? left : 0;
        } else {
            while (outstanding < options.in_flight) publish(random_device(), now);
        }
        flush_senders();
        net_turn(wait, read_packets, opened);
    }
    double seconds = (double)(now_ns() - began) / 1e9;
    server = server_cpu() - server;
    own = own_cpu() - own;
    measuring = false;
    uint64_t count = measured_delivered ? measured_delivered : 1;
    for (int64_t grace = now_ns() + 10000000000LL; outstanding > 0 && now_ns() < grace;)
        net_turn(5000000, read_packets, opened);
    printf("{\"rate\":%.1f,\"serverCPU\":%.1f,\"driverCPU\":%.1f,\"driverBusy\":%.3f,\"deliver.p50\":%lld,"
           "\"deliver.p99\":%lld,\"loss\":%llu,\"repeats\":%llu}\n",
           (double)measured_delivered / seconds, (double)server / (double)count, (double)own / (double)count,
           (double)own / 1e9 / seconds, (long long)histogram_percentile(&delivers, 50),
           (long long)histogram_percentile(&delivers, 99), (unsigned long long)(accepted - delivered),
           (unsigned long long)repeated);
}

static void absent(void) {
    // All subscribe once and disconnect; their sessions stay.
    subscribes = true;
    connect_all(devices, options.devices, 0);
    leave_all();
    connect_all(senders, options.senders, 900000);
    uint64_t total = (uint64_t)options.devices * (uint64_t)options.messages;
    if (total > ring_size) fail("at most %d messages", ring_size);
    int64_t start = now_ns(), server = server_cpu(), own = own_cpu();
    while (accepted < total) {
        int64_t now = now_ns();
        while (published < total && outstanding < options.in_flight)
            publish((int)(published % (uint64_t)options.devices), now);
        flush_senders();
        net_turn(5000000, read_packets, opened);
        check_time(start);
    }
    double enqueue = (double)(now_ns() - start) / 1e9;
    double enqueue_cpu = (double)(server_cpu() - server), busy = (double)(own_cpu() - own) / 1e9 / enqueue;
    // The subscriptions are stored, so the reconnect is one packet each way and the messages.
    subscribes = false;
    start = now_ns();
    server = server_cpu();
    own = own_cpu();
    connect_all(devices, options.devices, 0);
    while (delivered < total) {
        net_turn(5000000, read_packets, opened);
        check_time(start);
    }
    double drain = (double)(drain_end - start) / 1e9, hello = (double)(hello_end - start) / 1e9;
    double used = (double)(server_cpu() - server), drain_busy = (double)(own_cpu() - own) / 1e9 / drain;
    printf("{\"enqueueRate\":%.1f,\"enqueueServerCPU\":%.1f,\"helloRate\":%.1f,\"authenticatedSeconds\":%.4f,"
           "\"drainRate\":%.1f,\"drainedSeconds\":%.4f,\"drainServerCPU\":%.1f,\"driverBusy\":%.3f,\"loss\":0,"
           "\"repeats\":%llu}\n",
           (double)total / enqueue, enqueue_cpu / (double)total, options.devices / hello, hello,
           (double)total / drain, drain, used / (double)total, busy > drain_busy ? busy : drain_busy,
           (unsigned long long)repeated);
}

int main(int count, char **words) {
    if (count < 2) fail("which mode? live or absent");
    parse_options(count - 2, words + 2);
    net_start();
    devices = calloc((size_t)options.devices, sizeof *devices);
    senders = calloc((size_t)options.senders, sizeof *senders);
    numbers = calloc((size_t)options.senders, sizeof *numbers);
    last_id = calloc((size_t)options.senders, sizeof *last_id);
    due = calloc(ring_size, sizeof *due);
    flags = calloc(ring_size, 1);
    if (options.in_flight / options.senders >= 60000) fail("too many in flight for 16-bit ids");
    if (!devices || !senders || !numbers || !last_id || !due || !flags) fail("no memory");
    if (strcmp(words[1], "live") == 0) live();
    else if (strcmp(words[1], "absent") == 0) absent();
    else fail("there is no mode %s", words[1]);
    return 0;
}
