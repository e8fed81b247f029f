// libevent's generated configuration defines _GNU_SOURCE; without features.h first, glibc types get two definitions.
#include <features.h>
#include <event2/event.h>
#include <event2/event_struct.h>
