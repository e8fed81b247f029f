#ifndef LONGWIRE_CSYSTEM_CALLS_H
#define LONGWIRE_CSYSTEM_CALLS_H

#include <stddef.h>
#include <stdint.h>

/// A non-blocking, close-on-exec eventfd; -1 with errno set on failure.
int longwire_eventfd(void);

#endif
