#include "CSystemChecksum.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
__attribute__((target("sse4.2"))) static uint32_t hardware(uint32_t crc, const unsigned char *bytes, size_t count) {
    uint64_t wide = crc;
    while (count >= 8) {
        uint64_t word;
        __builtin_memcpy(&word, bytes, 8);
        wide = _mm_crc32_u64(wide, word);
        bytes += 8;
        count -= 8;
    }
    crc = (uint32_t)wide;
    while (count-- > 0) crc = _mm_crc32_u8(crc, *bytes++);
    return crc;
}
static int has_hardware(void) { return __builtin_cpu_supports("sse4.2"); }
#else
static uint32_t hardware(uint32_t crc, const unsigned char *bytes, size_t count) { (void)bytes; (void)count; return crc; }
static int has_hardware(void) { return 0; }
#endif

static uint32_t software(uint32_t crc, const unsigned char *bytes, size_t count) {
    while (count-- > 0) {
        crc ^= *bytes++;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82F63B78u & (0u - (crc & 1)));
    }
    return crc;
}

uint32_t longwire_crc32c(uint32_t seed, const void *bytes, size_t byte_count) {
    uint32_t crc = ~seed;
    crc = has_hardware() ? hardware(crc, bytes, byte_count) : software(crc, bytes, byte_count);
    return ~crc;
}
