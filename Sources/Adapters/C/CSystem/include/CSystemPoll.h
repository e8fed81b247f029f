#ifndef LONGWIRE_CSYSTEM_POLL_H
#define LONGWIRE_CSYSTEM_POLL_H

#include <stdint.h>

/// One ready descriptor: the token it was added with, and what it is ready for.
struct longwire_ready {
    uint64_t token;
    uint32_t flags;
};

enum { LONGWIRE_READABLE = 1, LONGWIRE_WRITABLE = 2, LONGWIRE_HUNG_UP = 4 };

/// A close-on-exec epoll descriptor; -1 with errno set on failure.
int longwire_poll_create(void);

/// Registers for both directions, edge-triggered, once and for all: closing the descriptor takes it out. 0 or -1.
int longwire_poll_add(int poll, int descriptor, uint64_t token);

/// Waits up to `nanoseconds` (below 0: without end) and fills `ready`; how many, 0 after a signal, -1 on failure.
int longwire_poll_wait(int poll, struct longwire_ready *ready, int capacity, int64_t nanoseconds);

#endif
