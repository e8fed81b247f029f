// Loads a Redis server as a durable queue, as `longwire bench` loads a gateway.
//
//   redis_load enqueue …  one stream entry a message in a stream a device, with a fixed number unanswered
//   redis_load handoff …  one stream of jobs, then a consumer group reads and acknowledges them in batches
#include "net.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { reading = 2, acking = 3, deleting = 4 };

static struct connection *clients;
static uint64_t sent, answered, total, leased, settled;
static bool consumes;
static int64_t last_answer;

static void opened(struct connection *one) { (void)one; }

static void put_bulk(struct connection *one, const char *text, size_t count) {
    uint8_t *at = net_room(one, count + 24);
    int head = snprintf((char *)at, 24, "$%zu\r\n", count);
    memcpy(at + head, text, count);
    memcpy(at + head + count, "\r\n", 2);
    net_used(one, (size_t)head + count + 2);
}

static void put_head(struct connection *one, int words) {
    uint8_t *at = net_room(one, 16);
    net_used(one, (size_t)snprintf((char *)at, 16, "*%d\r\n", words));
}

static void add(struct connection *one, int device) {
    static char *payload;
    if (!payload) {
        payload = malloc((size_t)options.payload);
        if (!payload) fail("no memory");
        memset(payload, 'x', (size_t)options.payload);
    }
    char key[32];
    int length = device < 0 ? snprintf(key, sizeof key, "jobs") : snprintf(key, sizeof key, "q:%06d", device);
    put_head(one, 5);
    put_bulk(one, "XADD", 4);
    put_bulk(one, key, (size_t)length);
    put_bulk(one, "*", 1);
    put_bulk(one, "p", 1);
    put_bulk(one, payload, (size_t)options.payload);
    sent++;
}

static void ask(struct connection *one) {
    char name[16], most[16];
    int name_length = snprintf(name, sizeof name, "c%d", one->index);
    int most_length = snprintf(most, sizeof most, "%d", options.batch);
    put_head(one, 9);
    put_bulk(one, "XREADGROUP", 10);
    put_bulk(one, "GROUP", 5);
    put_bulk(one, "g", 1);
    put_bulk(one, name, (size_t)name_length);
    put_bulk(one, "COUNT", 5);
    put_bulk(one, most, (size_t)most_length);
    put_bulk(one, "STREAMS", 7);
    put_bulk(one, "jobs", 4);
    put_bulk(one, ">", 1);
    one->state = reading;
    net_flush(one);
}

/// Finds the end of the line at `*at`, and the number after its first byte; returns false if the line is incomplete.
static bool line(const uint8_t *bytes, size_t count, size_t *at, char kind, long *number) {
    const uint8_t *end = memchr(bytes + *at, '\n', count - *at);
    if (!end) return false;
    if (bytes[*at] != (uint8_t)kind) fail("the server answered %.*s", (int)(end - bytes - (long)*at), bytes + *at);
    *number = atol((const char *)bytes + *at + 1);
    *at = (size_t)(end - bytes) + 1;
    return true;
}

/// Parses a bulk string; returns false if it is incomplete.
static bool bulk(const uint8_t *bytes, size_t count, size_t *at, const uint8_t **text, long *length) {
    if (!line(bytes, count, at, '$', length)) return false;
    if (*at + (size_t)*length + 2 > count) return false;
    *text = bytes + *at;
    *at += (size_t)*length + 2;
    return true;
}

/// Parses the entries of a read and writes their XACK; returns 0 if the answer is incomplete.
static size_t read_entries(struct connection *one, const uint8_t *bytes, size_t count) {
    size_t at = 0;
    long number, length;
    const uint8_t *text;
    static const uint8_t **ids;
    static long *lengths;
    if (!ids) {
        ids = malloc(sizeof *ids * (size_t)options.batch);
        lengths = malloc(sizeof *lengths * (size_t)options.batch);
        if (!ids || !lengths) fail("no memory");
    }
    if (!line(bytes, count, &at, '*', &number)) return 0;
    if (number < 0) {
        one->state = 1;
        return at;
    }
    if (!line(bytes, count, &at, '*', &number) || !bulk(bytes, count, &at, &text, &length)) return 0;
    long entries;
    if (!line(bytes, count, &at, '*', &entries)) return 0;
    if (entries > options.batch) fail("more entries than asked for");
    for (long index = 0; index < entries; index++) {
        if (!line(bytes, count, &at, '*', &number) || !bulk(bytes, count, &at, ids + index, lengths + index)) return 0;
        if (!line(bytes, count, &at, '*', &number)) return 0;
        for (long field = 0; field < number; field++)
            if (!bulk(bytes, count, &at, &text, &length)) return 0;
    }
    // A settled job is removed from Longwire's disk. Here that needs both commands, or the stream would grow without bound.
    put_head(one, 3 + (int)entries);
    put_bulk(one, "XACK", 4);
    put_bulk(one, "jobs", 4);
    put_bulk(one, "g", 1);
    for (long index = 0; index < entries; index++) put_bulk(one, (const char *)ids[index], (size_t)lengths[index]);
    put_head(one, 2 + (int)entries);
    put_bulk(one, "XDEL", 4);
    put_bulk(one, "jobs", 4);
    for (long index = 0; index < entries; index++) put_bulk(one, (const char *)ids[index], (size_t)lengths[index]);
    leased += (uint64_t)entries;
    one->state = acking;
    net_flush(one);
    return at;
}

static size_t read_answers(struct connection *one, const uint8_t *bytes, size_t count) {
    size_t offset = 0;
    int64_t now = now_ns();
    while (offset < count) {
        size_t at = 0;
        long number, length;
        const uint8_t *text;
        const uint8_t *rest = bytes + offset;
        size_t left = count - offset;
        if (consumes && one->state == reading) {
            at = read_entries(one, rest, left);
            if (at == 0) break;
        } else if (consumes && one->state == acking) {
            if (!line(rest, left, &at, ':', &number)) break;
            one->state = deleting;
        } else if (consumes && one->state == deleting) {
            if (!line(rest, left, &at, ':', &number)) break;
            settled += (uint64_t)number;
            last_answer = now;
            ask(one);
        } else if (rest[0] == '+') {
            if (!line(rest, left, &at, '+', &number)) break;
            answered++;
        } else {
            if (!bulk(rest, left, &at, &text, &length)) break;
            answered++;
            last_answer = now;
        }
        offset += at;
    }
    return offset;
}

static void check_time(int64_t start) {
    if (now_ns() - start > (int64_t)(options.timeout * 1e9)) fail("not done within %.0f s", options.timeout);
}

/// Adds `total` entries, spread over the clients; returns the seconds.
static double enqueue(bool is_job, double *server, double *busy) {
    int64_t start = now_ns(), cpu = server_cpu(), own = own_cpu();
    sent = answered = 0;
    while (answered < total) {
        while (sent < total && sent - answered < (uint64_t)options.in_flight)
            add(clients + sent % (uint64_t)options.senders, is_job ? -1 : (int)(sent % (uint64_t)options.devices));
        for (int index = 0; index < options.senders; index++) net_flush(clients + index);
        net_turn(5000000, read_answers, opened);
        check_time(start);
    }
    double seconds = (double)(last_answer - start) / 1e9;
    *server = (double)(server_cpu() - cpu) / (double)total;
    *busy = (double)(own_cpu() - own) / 1e9 / seconds;
    return seconds;
}

int main(int count, char **words) {
    if (count < 2) fail("which mode? enqueue or handoff");
    parse_options(count - 2, words + 2);
    net_start();
    clients = calloc((size_t)options.senders, sizeof *clients);
    if (!clients) fail("no memory");
    for (int index = 0; index < options.senders; index++) net_connect(clients + index, index, 900000 + index);
    total = (uint64_t)options.devices * (uint64_t)options.messages;
    double server, busy;
    if (strcmp(words[1], "enqueue") == 0) {
        double seconds = enqueue(false, &server, &busy);
        printf("{\"enqueueRate\":%.1f,\"enqueueServerCPU\":%.1f,\"driverBusy\":%.3f}\n", (double)total / seconds, server,
               busy);
    } else if (strcmp(words[1], "handoff") == 0) {
        const char group[] = "*6\r\n$6\r\nXGROUP\r\n$6\r\nCREATE\r\n$4\r\njobs\r\n$1\r\ng\r\n$1\r\n0\r\n$8\r\nMKSTREAM\r\n";
        memcpy(net_room(clients, sizeof group), group, sizeof group - 1);
        net_used(clients, sizeof group - 1);
        int64_t begin = now_ns();
        while (answered < 1) {
            net_flush(clients);
            net_turn(5000000, read_answers, opened);
            check_time(begin);
        }
        double create = enqueue(true, &server, &busy);
        consumes = true;
        int64_t start = now_ns(), cpu = server_cpu(), own = own_cpu();
        for (int index = 0; index < options.senders; index++) ask(clients + index);
        while (settled < total) {
            net_turn(5000000, read_answers, opened);
            check_time(start);
        }
        double seconds = (double)(last_answer - start) / 1e9;
        printf("{\"rate\":%.1f,\"serverCPU\":%.1f,\"createRate\":%.1f,\"driverBusy\":%.3f,\"loss\":%lld,\"repeats\":%lld}\n",
               (double)total / seconds, (double)(server_cpu() - cpu) / (double)total, (double)total / create,
               (double)(own_cpu() - own) / 1e9 / seconds, (long long)(total - settled), (long long)(leased - total));
    } else {
        fail("there is no mode %s", words[1]);
    }
    return 0;
}
