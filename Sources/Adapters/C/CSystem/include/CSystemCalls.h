#ifndef LONGWIRE_CSYSTEM_CALLS_H
#define LONGWIRE_CSYSTEM_CALLS_H

#include <stddef.h>
#include <stdint.h>

/// Returns a non-blocking, close-on-exec eventfd, or -1 with errno set.
int longwire_eventfd(void);

/// Returns a non-blocking, close-on-exec timerfd of the monotonic clock, or -1 with errno set.
int longwire_timerfd(void);

/// Makes a timerfd readable once after `nanoseconds`, at least 1. Returns 0, or -1 with errno set.
int longwire_timerfd_set(int descriptor, int64_t nanoseconds);

/// Calls accept4 with SOCK_NONBLOCK and SOCK_CLOEXEC. `address` holds up to `*address_byte_count` bytes of sockaddr.
int longwire_accept4(int listener, void *address, uint32_t *address_byte_count);

/// Reserves blocks for a range of a file and extends the file to include it. Returns 0, or -1 with errno set.
int longwire_fallocate(int descriptor, int64_t offset, int64_t byte_count);

/// Returns the creation time of an open file in nanoseconds since 1970, 0 if the file system does not store it, or -1 with errno
/// set.
int64_t longwire_birth_time(int descriptor);

/// Names the calling thread for debuggers and `top`. The name is cut to 15 bytes.
void longwire_name_this_thread(const char *name);

#endif
