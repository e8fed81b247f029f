#ifndef LONGWIRE_CSYSTEM_POLL_H
#define LONGWIRE_CSYSTEM_POLL_H

#include <stdint.h>

/// A ready descriptor: the token it was added with, and its readiness flags.
struct longwire_ready {
    uint64_t token;
    uint32_t flags;
};

enum { LONGWIRE_READABLE = 1, LONGWIRE_WRITABLE = 2, LONGWIRE_HUNG_UP = 4 };

/// Returns a close-on-exec epoll descriptor, or -1 with errno set.
int longwire_poll_create(void);

/// Registers a descriptor permanently for both directions, edge-triggered. Closing the descriptor removes it. Returns 0 or -1.
int longwire_poll_add(int poll, int descriptor, uint64_t token);

/// Waits up to `nanoseconds` (negative: without bound) and fills `ready`. Returns the count, 0 after a signal, or -1 on failure.
int longwire_poll_wait(int poll, struct longwire_ready *ready, int capacity, int64_t nanoseconds);

#endif
