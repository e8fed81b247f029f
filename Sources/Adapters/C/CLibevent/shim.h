// libevent's configuration defines _GNU_SOURCE. Unless features.h is included first, glibc types get two definitions.
#include <features.h>
#include <event2/event.h>
#include <event2/event_struct.h>
