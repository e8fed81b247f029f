#define _GNU_SOURCE
#include <errno.h>
#include <sys/epoll.h>
#include <time.h>

#include "CSystemPoll.h"

enum { EVENT_COUNT = 512 };

int longwire_poll_create(void) {
    return epoll_create1(EPOLL_CLOEXEC);
}

int longwire_poll_add(int poll, int descriptor, uint64_t token) {
    struct epoll_event event = {
        .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
        .data.u64 = token,
    };
    return epoll_ctl(poll, EPOLL_CTL_ADD, descriptor, &event);
}

int longwire_poll_wait(int poll, struct longwire_ready *ready, int capacity, int64_t nanoseconds) {
    struct epoll_event events[EVENT_COUNT];
    if (capacity > EVENT_COUNT) {
        capacity = EVENT_COUNT;
    }
    struct timespec bound = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
    int count = epoll_pwait2(poll, events, capacity, nanoseconds < 0 ? NULL : &bound, NULL);
    if (count < 0 && errno == ENOSYS) {
        // A kernel before 5.11: whole milliseconds, rounded up so that a short wait does not busy-loop.
        count = epoll_wait(poll, events, capacity, nanoseconds < 0 ? -1 : (int)((nanoseconds + 999999) / 1000000));
    }
    if (count < 0) {
        return errno == EINTR ? 0 : -1;
    }
    for (int index = 0; index < count; index += 1) {
        uint32_t flags = 0;
        if (events[index].events & EPOLLIN) {
            flags |= LONGWIRE_READABLE;
        }
        if (events[index].events & EPOLLOUT) {
            flags |= LONGWIRE_WRITABLE;
        }
        if (events[index].events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) {
            flags |= LONGWIRE_HUNG_UP;
        }
        ready[index].token = events[index].data.u64;
        ready[index].flags = flags;
    }
    return count;
}
