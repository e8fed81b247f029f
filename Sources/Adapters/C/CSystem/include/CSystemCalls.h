#ifndef LONGWIRE_CSYSTEM_CALLS_H
#define LONGWIRE_CSYSTEM_CALLS_H

#include <stddef.h>
#include <stdint.h>

/// A non-blocking, close-on-exec eventfd; -1 with errno set on failure.
int longwire_eventfd(void);

/// A non-blocking, close-on-exec timerfd of the monotonic clock; -1 with errno set on failure.
int longwire_timerfd(void);

/// Makes a timerfd readable once, `nanoseconds` from now, at least 1; 0, or -1 with errno set.
int longwire_timerfd_set(int descriptor, int64_t nanoseconds);

/// accept4 with SOCK_NONBLOCK and SOCK_CLOEXEC; `address` takes up to `*address_byte_count` bytes of sockaddr.
int longwire_accept4(int listener, void *address, uint32_t *address_byte_count);

/// Reserves blocks for a range of a file and extends the file to hold it; 0, or -1 with errno set.
int longwire_fallocate(int descriptor, int64_t offset, int64_t byte_count);

/// When an open file was made, in nanoseconds since 1970; 0 if its file system does not keep that, -1 with errno set.
int64_t longwire_birth_time(int descriptor);

/// Names the calling thread for debuggers and `top`; the name is cut to 15 bytes.
void longwire_name_this_thread(const char *name);

#endif
