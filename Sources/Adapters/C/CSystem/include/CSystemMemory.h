#ifndef LONGWIRE_CSYSTEM_MEMORY_H
#define LONGWIRE_CSYSTEM_MEMORY_H

#include <malloc.h>

/// Prefetches a cache line of memory. Any address is allowed.
static inline void longwire_prefetch(const void *address) { __builtin_prefetch(address); }

/// Sets fixed malloc thresholds instead of adaptive ones: the size from which mmap is used, and the free memory kept at a heap's
/// end.
static inline void longwire_fix_malloc_thresholds(int mapped, int kept) {
    mallopt(M_MMAP_THRESHOLD, mapped);
    mallopt(M_TRIM_THRESHOLD, kept);
}

/// Returns free memory of the allocator to the system.
static inline void longwire_trim_malloc(void) { malloc_trim(0); }

#endif
