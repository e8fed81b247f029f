#define _GNU_SOURCE
#include "CSystemCalls.h"
#include <sys/eventfd.h>

int longwire_eventfd(void) { return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); }
