#define _GNU_SOURCE
#include "CSystemCalls.h"
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

int longwire_eventfd(void) { return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); }

int longwire_timerfd(void) { return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC); }

int longwire_timerfd_set(int descriptor, int64_t nanoseconds) {
    struct itimerspec time = {.it_value = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000}};
    return timerfd_settime(descriptor, 0, &time, NULL);
}

int longwire_accept4(int listener, void *address, uint32_t *address_byte_count) {
    return accept4(listener, (struct sockaddr *)address, address_byte_count, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

int longwire_fallocate(int descriptor, int64_t offset, int64_t byte_count) {
    return fallocate(descriptor, 0, offset, byte_count);
}

int64_t longwire_birth_time(int descriptor) {
    struct statx status;
    if (statx(descriptor, "", AT_EMPTY_PATH, STATX_BTIME, &status)) return -1;
    if (!(status.stx_mask & STATX_BTIME)) return 0;
    return (int64_t)status.stx_btime.tv_sec * 1000000000 + status.stx_btime.tv_nsec;
}

void longwire_name_this_thread(const char *name) {
    char cut[16];
    strncpy(cut, name, sizeof cut - 1);
    cut[sizeof cut - 1] = 0;
    pthread_setname_np(pthread_self(), cut);
}
