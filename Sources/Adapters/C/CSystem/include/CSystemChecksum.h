#ifndef LONGWIRE_CSYSTEM_CHECKSUM_H
#define LONGWIRE_CSYSTEM_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/// Returns the CRC32C (Castagnoli) of `byte_count` bytes, continued from `seed` (0 to start), with the CPU's instruction if
/// available.
uint32_t longwire_crc32c(uint32_t seed, const void *bytes, size_t byte_count);

#endif
