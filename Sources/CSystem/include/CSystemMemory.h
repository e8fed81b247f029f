#ifndef LONGWIRE_CSYSTEM_MEMORY_H
#define LONGWIRE_CSYSTEM_MEMORY_H

/// Asks the processor for a line of memory that will be read or written soon; any address will do.
static inline void longwire_prefetch(const void *address) { __builtin_prefetch(address); }

#endif
