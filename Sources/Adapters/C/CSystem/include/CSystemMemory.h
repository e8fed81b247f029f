#ifndef LONGWIRE_CSYSTEM_MEMORY_H
#define LONGWIRE_CSYSTEM_MEMORY_H

#include <malloc.h>

/// Asks the processor for a line of memory that will be read or written soon; any address will do.
static inline void longwire_prefetch(const void *address) { __builtin_prefetch(address); }

/// Fixes what the allocator would adapt: the size from which an allocation is mapped by itself, and what stays free at a
/// heap's end.
static inline void longwire_fix_malloc_thresholds(int mapped, int kept) {
    mallopt(M_MMAP_THRESHOLD, mapped);
    mallopt(M_TRIM_THRESHOLD, kept);
}

/// Gives the system what the allocator holds free.
static inline void longwire_trim_malloc(void) { malloc_trim(0); }

#endif
